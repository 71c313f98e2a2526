"""``coordinator once`` and ``jobs``: a command once in each interval, and what came of it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli.output import EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_USAGE
from coordinator.client import connect
from coordinator.recipes import Job
from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember

ROOT = Path(__file__).resolve().parents[2]
YEARLY = ("--every", "8760h")


def test_jobs_are_listed_shown_and_forgotten(coordinator: CommandLine) -> None:
    """As text and as JSON: the last run, the next, who failed and why."""

    def failing(_: Any) -> None:
        raise RuntimeError("no such table\x1b[2J")

    with connect(coordinator.url) as client:
        Job(client, "good", every="8760h", label="host 1").run(lambda run: 42)
        with pytest.raises(RuntimeError):
            Job(client, "bad", every="8760h", label="host 2").run(failing)

    table = coordinator.text("jobs").splitlines()
    assert table[0].split() == ["NAME", "SCHEDULE", "LAST", "NEXT", "LATE", "STATE", "TROUBLE"]
    bad, good = (next(each for each in table if each.startswith(n)) for n in ("bad", "good"))
    assert "host 2: RuntimeError: no such table" in bad
    assert "\x1b" not in bad
    assert " failing " in bad
    assert good.split()[-2:] == ["ok", "-"]
    shown = coordinator.text("jobs", "good")
    assert "every 8760h" in shown
    assert "host 1" in shown
    result = coordinator.json("jobs", "bad")
    assert (result["state"], result["failures"], result["runs"][0]["attempt"]) == ("failing", 1, 1)
    assert result["late_ms"] > 0
    assert coordinator.text("jobs", "bad", "--forget") == ""
    assert coordinator("jobs", "bad").exit_code == EXIT_USAGE
    assert coordinator("jobs", "--forget").exit_code == EXIT_USAGE


_LEDGER = {
    "schedule": {"text": "every 1h", "length_ms": 3_600_000, "cron": "", "tz": "UTC"},
    "catch_up": "last", "guarantee": "at_least_once", "settled_ms": None, "open_ms": None,
    "time_ms": 0, "skipped": 0, "failures": 0, "jumps": 0, "jump_at_ms": 0, "jump_by_ms": 0,
}  # fmt: skip
_RUN = {"state": "done", "attempt": 1, "fencing_token": 1, "by": "a", "started_ms": 1,
        "result": None, "reason": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("ledger", "run"),
    [
        ("no ledger", None),
        (_LEDGER | {"time_ms": 10**30}, None),
        (_LEDGER | {"settled_ms": -(10**15)}, None),
        (_LEDGER | {"catch_up": []}, None),
        (_LEDGER | {"schedule": {"text": 5, "length_ms": 1, "cron": "", "tz": "UTC"}}, None),
        (_LEDGER, _RUN | {"started_ms": "soon"}),
        (_LEDGER, _RUN | {"by": {}}),
        (_LEDGER, _RUN | {"state": []}),
    ],
)
def test_what_one_client_wrote_hides_no_other_job(
    coordinator: CommandLine, ledger: Any, run: Any
) -> None:
    """The others are listed; the one is named, and the exit code says that not all is there."""
    with connect(coordinator.url) as client:
        Job(client, "good", every="8760h").run(lambda run: 42)
        client.create("/schedules/jobs/bad", json.dumps(ledger).encode(), parents="persistent")
        if run is not None:
            data = json.dumps(run).encode()
            client.create("/schedules/jobs/bad/0000000000001", data)

    done = coordinator("jobs")
    coordinator.text("jobs", "bad", "--forget")

    assert "good" in done.stdout
    assert done.stderr.startswith("coordinator: bad: ")
    assert done.exit_code == EXIT_REFUSED


def test_a_schedule_moves_no_cursor(coordinator: CommandLine) -> None:
    """Its words are what a client wrote."""
    schedule = _LEDGER["schedule"] | {"text": "every\x1b[2J"}  # type: ignore[operator]
    with connect(coordinator.url) as client:
        data = json.dumps(_LEDGER | {"schedule": schedule}).encode()
        client.create("/schedules/jobs/bad", data, parents="persistent")

    assert "\x1b" not in coordinator.text("jobs", "bad")
    assert "\x1b" not in coordinator.text("jobs")
    coordinator.text("jobs", "bad", "--forget")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--every", "1d", "--cron", "0 2 * * *"), "expected every= or cron="),
        (("--at", "02:00"), "--at goes with --every or --cron"),
        (("--every", "1x"), "every: expected a length as 90s"),
        (("--every", "1d", "--at", "25:00"), "at: expected a time as 02:00"),
        (("--every", "1d", "--tz", "Mars/Base"), "tz: expected a time zone"),
        (("--cron", "61 * * * *"), "cron: expected minute (0-59), found '61'"),
        (("--every", "1h", "--catch-up", "some"), "--catch-up"),
        (("--every", "1h", "--history", "501"), "--history"),
    ],
)
def test_a_bad_word_is_wrong_usage(
    coordinator: CommandLine, words: tuple[str, ...], expected: str
) -> None:
    """And nothing is run."""
    result = coordinator("once", "x", *words, "--", "true")

    assert result.exit_code == EXIT_USAGE
    assert expected in result.stderr


def begin(member: ServedMember, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "coordinator", "once", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COORDINATOR_ENDPOINTS": member.url},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.check
@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")
def test_a_command_runs_once_and_its_exit_code_is_kept(
    member: ServedMember, coordinator: CommandLine
) -> None:
    """Its environment says which interval; a failure may be tried again."""
    script = 'echo "$COORDINATOR_JOB_KEY $COORDINATOR_ATTEMPT $COORDINATOR_FENCING_TOKEN"'
    first = ended(begin(member, "report", *YEARLY, "--", "sh", "-c", script))
    again = ended(begin(member, "report", *YEARLY, "--", "sh", "-c", script))

    key, attempt, token = first[1].split()
    assert (first[0], attempt, int(token) > 0) == (0, "1", True)
    assert key.startswith("report/20")
    assert again[:2] == (0, "")
    assert "nothing is due; the next one is 20" in again[2]

    failed = ended(begin(member, "fails", *YEARLY, "--", "sh", "-c", "exit 3"))
    assert failed[0] == 3
    assert "this attempt has failed: exit code 3" in failed[2]
    assert ended(begin(member, "fails", *YEARLY, "--", "true"))[0] == 0
    assert coordinator.json("jobs", "fails")["runs"][0]["attempt"] == 2
    assert ended(begin(member, "no", *YEARLY, "--", "/no/such"))[0] == EXIT_NOT_FOUND


@pytest.mark.check
@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")
def test_a_killed_host_is_taken_over_with_a_higher_token(
    member: ServedMember, coordinator: CommandLine, tmp_path: Path
) -> None:
    """One runs, one leaves, one waits; the first is killed, and the one that waits takes over."""
    log = tmp_path / "runs"
    script = f'echo "$COORDINATOR_ATTEMPT $COORDINATOR_FENCING_TOKEN" >> {log}'
    slow = [*YEARLY, "--ttl", "1", "--", "sh", "-c", f"{script}; exec sleep 60"]
    first = begin(member, "taken", "--label", "host 1", *slow)
    deadline = time.monotonic() + 20
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert coordinator.json("jobs", "taken")["state"] == "running"
    busy = ended(begin(member, "taken", *YEARLY, "--", "sh", "-c", script))
    patient = [*YEARLY, "--timeout", "20", "--", "sh", "-c", script]
    second = begin(member, "taken", "--label", "host 2", *patient)

    first.kill()
    first.communicate()
    assert ended(second)[0] == 0

    assert busy[0] == 0
    assert "another host is at it" in busy[2]
    runs = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    assert [attempt for attempt, _ in runs] == [1, 2]
    assert runs[0][1] < runs[1][1]
    assert coordinator.json("jobs", "taken")["runs"][0]["by"] == "host 2"


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")
def test_a_person_decides_about_a_key_that_runs_at_most_once(coordinator: CommandLine) -> None:
    """The refusal says which two verbs; one runs it again, one counts it as done."""
    for key, decision in (("import it", "--forget"), ("-x", "--settle")):
        named = ("once", "--at-most-once", "--", key)
        assert coordinator(*named, "false").exit_code == 1
        refused = coordinator(*named, "true")
        assert refused.exit_code == EXIT_REFUSED
        said = f"{decision} -- -x`" if key == "-x" else f"{decision} {shlex.quote(key)}`"
        assert f"coordinator once {said}" in refused.stderr
        assert coordinator.text("once", decision, "--", key) == ""
        after = coordinator(*named, "true")
        assert after.exit_code == 0
        assert ("it was done before" in after.stderr) == (decision == "--settle")
        assert "it was done before" in coordinator(*named, "true").stderr
    assert coordinator.json("once", "new", "--settle") == {"key": "new", "state": "done"}
    assert coordinator.json("once", "new", "--forget") == {"key": "new", "state": "forgotten"}
    for wrong in (("new", "--forget"), ("new",), ("new", "--settle", "--", "true"),
                  ("new", "--forget", "--every", "1h")):  # fmt: skip
        assert coordinator("once", *wrong).exit_code == EXIT_USAGE, wrong


@pytest.mark.check
@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")
def test_without_a_schedule_a_command_runs_once_at_all(
    member: ServedMember, coordinator: CommandLine
) -> None:
    """A failure is repeated, or with --at-most-once is not; what was done is not run again."""
    script = 'echo "$COORDINATOR_JOB_KEY $COORDINATOR_ATTEMPT $COORDINATOR_FENCING_TOKEN"'
    failed = ended(begin(member, "migrate-v42", "--", "sh", "-c", "exit 3"))
    first = ended(begin(member, "migrate-v42", "--", "sh", "-c", script))
    again = ended(begin(member, "migrate-v42", "--", "sh", "-c", script))

    assert failed[0] == 3
    key, attempt, token = first[1].split()
    assert (first[0], key, attempt, int(token) > 0) == (0, "migrate-v42", "2", True)
    assert again[:2] == (0, "")
    assert "it was done before" in again[2]

    slow = begin(member, "slow", "--ttl", "1", "--", "sleep", "60")
    deadline = time.monotonic() + 20
    while coordinator.json("why", "once:slow")["holder"] is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "another host is at it" in ended(begin(member, "slow", "--", "true"))[2]
    slow.kill()
    slow.communicate()
    taken = ended(begin(member, "slow", "--timeout", "20", "--", "sh", "-c", script))
    assert taken[1].split()[1] == "2"

    once = ("once-only", "--at-most-once", "--")
    assert ended(begin(member, *once, "false"))[0] == 1
    refused = ended(begin(member, *once, "true"))
    assert refused[0] == EXIT_REFUSED
    assert "once-only" in refused[2]
