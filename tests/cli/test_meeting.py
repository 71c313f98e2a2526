"""Counters, flags, barriers and latches, from a shell."""

from __future__ import annotations

from coordinator.cli.output import EXIT_NOT_IN_TIME, EXIT_REFUSED, EXIT_USAGE
from tests.cli.conftest import CommandLine


def test_a_counter_is_shown_and_added_to(coordinator: CommandLine) -> None:
    """The sum is printed; out of bounds is exit code 1."""
    assert coordinator.text("counter", "seats") == "0\n"
    assert coordinator.text("counter", "seats", "--add", "2") == "2\n"
    assert coordinator.json("counter", "seats", "--add", "-1", "--at-least", "0") == {
        "name": "seats",
        "value": 1,
    }
    refused = coordinator("counter", "seats", "--add", "-2", "--at-least", "0")

    assert (refused.exit_code, refused.stdout) == (EXIT_REFUSED, "")
    assert "nothing was added" in refused.stderr
    assert coordinator("counter", "seats", "--at-most", "3").exit_code == EXIT_USAGE


def test_permits_of_a_bucket_are_taken(coordinator: CommandLine) -> None:
    """At once, or when they have come; together or none."""
    mails = ("bucket", "mails", "--rate", "20", "--burst", "4")
    assert coordinator.json(*mails, "--take", "4") == {"name": "mails", "taken": 4}
    assert coordinator.text(*mails, "--take", "4", "--wait", "30") == ""
    slow = ("bucket", "slow", "--rate", "0.001", "--burst", "2")
    assert coordinator(*slow, "--take", "2").exit_code == 0
    assert coordinator(*slow).exit_code == EXIT_NOT_IN_TIME
    assert coordinator(*slow, "--take", "3").exit_code == EXIT_REFUSED
    assert coordinator("bucket", "slow", "--rate", "0", "--burst", "2").exit_code == EXIT_REFUSED


def test_a_flag_is_set_waited_for_and_cleared(coordinator: CommandLine) -> None:
    """Not set is exit code 1, not in time another."""
    assert coordinator("flag", "ready").exit_code == EXIT_REFUSED
    assert coordinator("flag", "ready", "--wait", "0.1").exit_code == EXIT_NOT_IN_TIME
    assert coordinator.text("flag", "ready", "--set", "by me") == ""
    assert coordinator.text("flag", "ready", "--wait", "9") == "by me\n"
    assert coordinator.json("flag", "ready") == {"name": "ready", "value": "by me"}
    assert coordinator.text("flag", "ready", "--clear") == ""
    assert coordinator("flag", "ready").exit_code == EXIT_REFUSED
    assert coordinator("flag", "ready", "--clear", "--wait", "1").exit_code == EXIT_USAGE


def test_a_barrier_is_closed_and_opened(coordinator: CommandLine) -> None:
    """Open at first."""
    assert coordinator("barrier", "work").exit_code == 0
    assert coordinator("barrier", "work", "--close").exit_code == 0
    assert coordinator("barrier", "work").exit_code == EXIT_REFUSED
    assert coordinator("barrier", "work", "--wait", "0.1").exit_code == EXIT_NOT_IN_TIME
    assert coordinator("barrier", "work", "--open").exit_code == 0
    assert coordinator("barrier", "work", "--wait", "1").exit_code == 0


def test_a_latch_counts_each_part_once(coordinator: CommandLine) -> None:
    """What is left is printed."""
    assert coordinator.text("latch", "import", "2") == "2\n"
    for _ in range(2):
        done = coordinator.text("latch", "import", "2", "--count-down", "--part", "1")
        assert done == "1\n"
    waited = coordinator("latch", "import", "2", "--wait", "0.1")
    assert (waited.exit_code, waited.stdout) == (EXIT_NOT_IN_TIME, "1\n")
    assert coordinator.json("latch", "import", "2", "--count-down") == {"name": "import", "left": 0}
    assert coordinator.text("latch", "import", "2", "--wait", "9") == "0\n"
    assert coordinator("latch", "import", "2", "--part", "1").exit_code == EXIT_USAGE
