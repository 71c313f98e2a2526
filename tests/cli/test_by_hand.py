"""Locks that are held by hand, from a shell."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from coordinator.cli.output import EXIT_NOT_IN_TIME, EXIT_REFUSED, EXIT_USAGE
from tests.cli.conftest import CommandLine


def test_a_lock_is_held_planned_again_and_released(coordinator: CommandLine) -> None:
    """The token is printed; whoever knows it releases; who did is kept."""
    took = ("hold", "deploys", "--note", "the database moves", "--by", "ann", "--wait", "0")
    token = coordinator.text(*took, "--alarm-after", "3600").strip()
    listed = coordinator.json("hold")
    assert (listed["lock"], listed["by"], listed["note"]) == ("deploys", "ann", took[3])
    assert (str(listed["fencing_token"]), listed["is_overdue"]) == (token, False)
    assert coordinator(*took).exit_code == EXIT_NOT_IN_TIME
    assert "1 h" in coordinator.text("hold", "deploys")
    coordinator.text("extend", "deploys", token, "--by", "1800")
    assert coordinator.json("hold", "deploys")["alarm_after_ms"] == 5_400_000
    coordinator.text("extend", "deploys", token, "--to", "0.001")
    [found] = [each for each in coordinator.json("diagnose")["locks"] if each["lock"] == "deploys"]
    assert (found["findings"][0]["code"], found["findings"][0]["severity"]) == (
        "held-by-hand", "problem",
    )  # fmt: skip
    assert f"coordinator unlock deploys {token}" in coordinator.text("diagnose", "deploys")

    wrong = coordinator("unlock", "deploys", "0")
    assert (wrong.exit_code, "not held by hand" in wrong.stderr) == (EXIT_REFUSED, True)
    coordinator.text("unlock", "deploys", token, "--by", "bob", "--note", "moved")
    assert coordinator("unlock", "deploys", token).exit_code == EXIT_REFUSED
    assert coordinator.text("hold") == ""
    ended = coordinator.json("hold", "deploys", "--history")
    assert (ended["released_by"], ended["release_note"]) == ("bob", "moved")
    assert "bob" in coordinator.text("hold", "deploys", "--history")


def test_every_verb_says_that_it_is_held_by_hand(coordinator: CommandLine) -> None:
    """One list of what is not free, and one verdict: nothing says that nothing is wrong with it."""
    token = coordinator.text("hold", "harbour", "--note", "a crane", "--by", "ann").strip()
    words = "held by hand by 'ann': 'a crane'"
    listed = coordinator.text("locks").splitlines()
    one, why = coordinator.text("locks", "harbour"), coordinator.text("why", "harbour")
    diagnosed = coordinator.text("diagnose", "harbour").splitlines()
    long_held = coordinator.json("locks", "--held-longer-than", "3600")
    coordinator.text("unlock", "harbour", token)

    [row] = [line for line in listed if line.startswith("harbour ")]
    assert row.endswith(words)
    assert one == f"harbour is {words}\n"
    assert why.splitlines()[0] == f"harbour is {words}."
    assert [line for line in diagnosed if line.startswith("harbour: ")] == [
        "harbour: It is held by hand."
    ]
    assert f"  Release it: coordinator unlock harbour {token}" in diagnosed
    assert "harbour" not in [each["lock"] for each in long_held["locks"]]
    assert "harbour" not in coordinator.text("locks")


@pytest.mark.parametrize("name", ["x; touch pwned #", "$(id)", "-rf", "a'b", "two words"])
def test_what_is_advised_can_be_copied_into_a_shell(coordinator: CommandLine, name: str) -> None:
    """Whoever takes a lock chooses its name; the advice is a command about it, and no other."""
    taken = ("hold", "--note", "n", "--alarm-after", "0.001", "--", name)
    token = coordinator.text(*taken).strip()
    advice = coordinator.text("diagnose", "--", name)

    unlock = re.search(r"Release it: coordinator (.+)", advice)
    extend = re.search(r"Or plan again: coordinator (.+)", advice)
    assert unlock, advice
    assert extend, advice
    assert name in shlex.split(unlock[1])
    words = shlex.split(extend[1].replace("SECONDS", "60"))
    assert name in words
    coordinator.text(*words)
    assert shlex.split(unlock[1])[-1] == token
    coordinator.text(*shlex.split(unlock[1]))
    assert coordinator("unlock", "--", name, "9" * 5_000).exit_code == EXIT_REFUSED


def test_the_verb_lock_waits_for_the_hand(coordinator: CommandLine) -> None:
    """Its command does not run while the lock is held by hand."""
    token = coordinator.text("hold", "nightly", "--note", "maintenance").strip()
    refused = coordinator("lock", "nightly", "--timeout", "0.2", "--", "true")
    assert (refused.exit_code, refused.stdout) == (EXIT_NOT_IN_TIME, "")
    assert "maintenance" in refused.stderr
    assert "maintenance" in coordinator.text("why", "nightly").splitlines()[0]
    coordinator.text("unlock", "nightly", token)
    assert coordinator("lock", "nightly", "--", "true").exit_code == 0


def test_what_does_not_go_together_is_wrong_usage(coordinator: CommandLine) -> None:
    """Before anything is asked."""
    for wrong in (
        ("hold", "--note", "x"),
        ("hold", "--history"),
        ("hold", "a", "--note", "x", "--history"),
        ("extend", "a", "1"),
        ("extend", "a", "1", "--by", "1", "--to", "1"),
    ):
        assert coordinator(*wrong).exit_code == EXIT_USAGE, wrong
    assert coordinator("hold", "a", "--note", "").exit_code == EXIT_REFUSED


def test_a_command_moves_the_end_of_the_hold_that_it_runs_under(
    coordinator: CommandLine, tmp_path: Path
) -> None:
    """It is known by the token that its shell finds in the environment."""
    said = tmp_path / "said"
    inner = (
        f"{shlex.quote(sys.executable)} -m coordinator extend copy $COORDINATOR_FENCING_TOKEN "
        f"--to 600 --json > {shlex.quote(str(said))}"
    )
    held = coordinator("lock", "copy", "--max-hold", "30", "--", "sh", "-c", inner)

    assert held.exit_code == 0, held.stderr
    moved = json.loads(said.read_text())
    assert moved["lock"] == "copy"
    assert 600_000 <= moved["max_hold_ms"] <= 630_000
    assert coordinator("extend", "copy", "1", "--to", "60").exit_code == EXIT_REFUSED
