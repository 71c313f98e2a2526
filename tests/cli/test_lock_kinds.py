"""``coordinator lock`` with other kinds of locks, and with an end of its own, as processes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from coordinator.cli.output import EXIT_LOST, EXIT_NOT_IN_TIME
from tests.cli.conftest import CommandLine
from tests.cli.supervising import eventually
from tests.cli.test_locks import Start, ended, stamper, stamps, start, wait_running
from tests.patience import patient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")

__all__ = ["start"]  # the fixture


def test_readers_run_together_and_a_writer_waits(start: Start, tmp_path: Path) -> None:
    """--shared beside --shared; without it only when nobody holds."""
    for name in ("a", "b"):
        start("lock", "accounts", "--shared", "--", *stamper(tmp_path / name))
        wait_running(tmp_path / name)

    code, out, _ = ended(start("lock", "accounts", "--timeout", "0", "--", "echo", "ran"))

    assert (code, out) == (EXIT_NOT_IN_TIME, "")


def test_as_many_run_as_there_are_slots(
    start: Start, coordinator: CommandLine, tmp_path: Path
) -> None:
    """--size N: the next one does not get a slot."""
    for name in ("a", "b"):
        start("lock", "licences", "--size", "2", "--", *stamper(tmp_path / name))
        wait_running(tmp_path / name)

    code, out, _ = ended(
        start("lock", "licences", "--size", "2", "--timeout", "0", "--", "echo", "ran")
    )

    assert (code, out) == (EXIT_NOT_IN_TIME, "")
    assert "licences has 2 holders of 2." in coordinator.text("why", "licences")


def test_a_bounded_command_is_ended_before_the_next_holds(
    start: Start, coordinator: CommandLine, tmp_path: Path
) -> None:
    """--max-hold: SIGTERM in time, exit code 76 with the reason, then the next one runs."""
    began = time.monotonic()
    first = start("lock", "bounded", "--max-hold", "3", "--", *stamper(tmp_path / "a"))
    wait_running(tmp_path / "a")
    second = start("lock", "bounded", "--timeout", "60", "--", *stamper(tmp_path / "b"))

    code, _, err = ended(first)
    wait_running(tmp_path / "b")
    (last_of_a,) = stamps(tmp_path / "a").values()
    eventually(lambda: min(stamps(tmp_path / "b").values()) > last_of_a, "the second one runs on")

    assert code == EXIT_LOST
    assert "max-hold" in err or "max_hold" in err
    assert time.monotonic() - began < patient(30)
    assert coordinator.json("locks", "bounded")["holder"]["pid"] == second.pid
    assert last_of_a < min(stamps(tmp_path / "b").values())


def test_a_command_whose_lock_was_taken_by_force_is_ended_and_told_why(
    start: Start, coordinator: CommandLine, tmp_path: Path
) -> None:
    """Within a heartbeat: exit code 76, by whom and the reason."""
    process = start("lock", "forced", "--ttl", "3", "--", *stamper(tmp_path / "a"))
    wait_running(tmp_path / "a")

    coordinator.text("revoke", "forced", "--by", "ops", "--reason", "stuck")
    code, _, err = ended(process)

    assert code == EXIT_LOST
    assert "ops took it by force: stuck" in err


def test_what_does_not_go_together_is_wrong_usage(coordinator: CommandLine) -> None:
    """Said before anything is asked of a member."""
    for wrong in (
        ("--shared", "--size", "2"),
        ("--size", "0"),
        ("--max-hold", "0"),
        ("--max-hold", "2", "--kill-grace", "1.5"),
        ("--lock-delay", "61"),
    ):
        assert coordinator("lock", "wrong", *wrong, "--", "true").exit_code == 2


def test_the_owner_is_shown(start: Start, coordinator: CommandLine, tmp_path: Path) -> None:
    """--owner and --lock-delay are seen by who looks."""
    start(
        "lock", "owned", "--owner", "import 7", "--lock-delay", "2", "--", *stamper(tmp_path / "a")
    )
    wait_running(tmp_path / "a")

    text = coordinator.text("why", "owned")

    assert "import 7" in text
    assert "stays closed for another 2.0 s" in text
