"""The verb ``status``: the sentence of the member that is asked, and an exit code for scripts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner, Result

from coordinator.cli.main import cli
from coordinator.cli.output import EXIT_UNAVAILABLE, EXIT_USAGE, coloured
from coordinator.cli.status import show_status
from coordinator.model.members import (
    ClusterHealth,
    HealthFinding,
    MemberFacts,
    MemberList,
    MemberReport,
)
from coordinator.model.status import Status
from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember


def until_it_exits(coordinator: CommandLine, code: int, verb: str = "status") -> Result:
    """Return the first ``verb`` with this exit code: looks within half a second are shared."""
    end_s = time.monotonic() + 10
    while (result := coordinator(verb)).exit_code != code:
        assert time.monotonic() < end_s, result.output
        time.sleep(0.05)
    return result


def test_status_says_how_it_is(coordinator: CommandLine) -> None:
    """status begins with the sentence of GET /v1/members; exit code 0 says that all is well."""
    status = coordinator.json("status")

    assert status["is_ready"] is True
    assert status["health"]["level"] == "good"
    assert [each["facts"]["role"] for each in status["reports"]] == ["leader"]
    lines = coordinator.text("status").splitlines()
    assert lines[0] == status["health"]["text"]
    assert lines[0].startswith("All is well: member 1 leads in term ")
    assert lines[2].split()[:4] == ["MEMBER", "URL", "ROLE", "LAG"]
    assert lines[3].split()[:5] == ["1", "(answers)", "leader", "0", "in"]


def test_status_exits_with_3_when_an_operator_is_wanted(coordinator: CommandLine) -> None:
    """The finding is the first line, and nowhere it says that all is well."""
    coordinator.text("limits", "set", "children_max=99999")
    differing = until_it_exits(coordinator, EXIT_UNAVAILABLE)
    coordinator.text("limits", "set", "children_max=100000")
    well = until_it_exits(coordinator, 0)

    assert differing.stdout.startswith("The configuration of member 1 has other limits than")
    assert "children_max is 100000 in it and 99999" in differing.stdout
    assert "All is well" not in differing.stdout
    assert "children_max" not in well.stdout


def test_status_claims_nothing_of_a_member_that_is_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A member that cannot be reached is not called a follower; all that was found is listed."""
    url = "http://127.0.0.1:1"
    own = Status(
        member_id="2", cluster="c", role="follower", leader_id=None, term=2, commit_index=1,
        applied_index=1, zxid=1, is_ready=False, summary="member 2 knows no leader", version="0",
        sessions=0, znodes=1, members=(),
    )  # fmt: skip
    facts = MemberFacts(
        member_id="2", role="follower", leader_id=None, term=2, commit_index=1, applied_index=1,
        last_index=1, snapshot_index=0, log_entries=1, zxid=1, is_ready=False, summary="",
        version="0", started_ms=0, sees=(), disk_free_bytes=3 * 1024**3, is_disk_slow=True,
    )  # fmt: skip
    found = (
        HealthFinding(level="bad", text="No leader.", todo="Wait."),
        HealthFinding(level="warn", text="Slow."),
    )
    health = ClusterHealth(level="bad", text="No leader. There is one thing more.", findings=found)
    reports = (
        MemberReport(member_id="1", client_url=url, is_self=False, facts=None, silence="gone"),
        MemberReport(member_id="2", client_url=url, is_self=True, facts=facts),
    )

    show_status(own, MemberList(members=reports, health=health))

    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["No leader. There is one thing more.", "  No leader. Wait.", "  Slow."]
    assert "0 sessions, 1 znode, access rights" in lines[3]
    assert [line.split() for line in lines[5:]] == [
        ["1", url, "silent", "-", "-", "-", "-", "-"],
        ["2", "(answers)", url, "follower,", "not", "ready", "0", "slow:", "3.0", "GiB", "2", "0",
         "no"],
    ]  # fmt: skip


@pytest.mark.parametrize("verb", [["status"], ["locks"], ["locks", "deploys"]])
def test_a_verb_is_shown_again_until_it_is_ended(member: ServedMember, verb: list[str]) -> None:
    """With --json a document each time, for what reads along."""
    command = [sys.executable, "-m", "coordinator", *verb, "--watch", "--json"]
    with subprocess.Popen(
        [*command, "--endpoints", member.url], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130

    assert first.keys() == second.keys()


def test_a_terminal_gets_colours_unless_it_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is what other programs heed, too; click takes colours away from files."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured("well", "green") == "\x1b[32m\x1b[1mwell\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("well", "green") == "well"


@pytest.mark.parametrize(
    ("verb", "said"),
    [("loks", "'locks'"), ("stat us", "'status'"), ("diagnos", "'diagnose'"), ("zzzz", "")],
)
def test_a_misspelt_verb_is_refused_with_those_alike(verb: str, said: str) -> None:
    """Options have this from click; verbs are loaded when they are used, so it knows none."""
    result = CliRunner().invoke(cli, [verb])

    assert result.exit_code == EXIT_USAGE
    assert f"No such command '{verb}'." in result.output
    assert said in result.output
    assert ("Did you mean" in result.output) is bool(said)
