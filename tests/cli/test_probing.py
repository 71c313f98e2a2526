"""``--probe``, as processes: a program that is not well loses its lock, in order."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from coordinator.cli.output import EXIT_LOST
from tests.cli.conftest import CommandLine
from tests.cli.supervising import eventually
from tests.cli.test_locks import Start, ended, stamper, stamps, start, wait_running

__all__ = ["start"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")

OFTEN = ("--probe-every", "0.1", "--probe-failures", "2", "--probe-timeout", "0.5")


@pytest.mark.check
def test_who_is_not_well_stops_before_the_next_is_granted(
    start: Start, coordinator: CommandLine, tmp_path: Path
) -> None:
    """The program ends first, then the lock stays closed for its delay; the reason is kept."""
    sick = tmp_path / "sick"
    probe = f"test ! -e {sick} || {{ echo; echo no disk >&2; exit 3; }}"
    first = start("lock", "probed", "--ttl", "60", "--lock-delay", "1.5", "--probe", probe, *OFTEN,
                  "--", *stamper(tmp_path / "a"))  # fmt: skip
    wait_running(tmp_path / "a")
    second = start("lock", "probed", "--timeout", "30", "--", *stamper(tmp_path / "b"))
    eventually(lambda: bool(coordinator.json("locks", "probed")["queue"]), "the second one waits")
    time.sleep(1)
    assert first.poll() is None
    grant_id = coordinator.json("locks", "probed")["holder"]["grant_id"]

    sick.touch()
    code, _, err = ended(first)
    wait_running(tmp_path / "b")

    reason = "health probe failed 2 times in a row: exit status 3: no disk"
    assert code == EXIT_LOST
    assert reason in err
    last = max(stamps(tmp_path / "a").values())
    story = coordinator.json("why-lost", "probed", grant_id)
    assert (story["grant"]["how"], story["grant"]["reason"]) == ("failed", reason)
    gap_ms = story["next"]["granted_ms"] - story["grant"]["ended_ms"]
    assert 1_400 <= gap_ms <= 4_000
    assert last < min(int(path.stat().st_mtime * 1000) for path in (tmp_path / "b").iterdir()) + 1
    assert reason in coordinator.text("why-lost", "probed", grant_id)
    second.kill()


def test_a_program_gets_its_grace(start: Start, coordinator: CommandLine, tmp_path: Path) -> None:
    """SIGTERM comes first; while it cleans up nobody else is granted."""
    log = tmp_path / "log"
    script = (
        f"trap 'sleep 1; echo cleaned >> {log}; exit 0' TERM; echo up >> {log}; "
        "while :; do sleep 0.1; done"
    )
    first = start("lock", "grace", "--ttl", "60", "--probe", "false", *OFTEN, "--probe-failures",
                  "8", "--shell", "--", script)  # fmt: skip
    eventually(log.exists, "the command runs")
    second = start("lock", "grace", "--timeout", "30", "--shell", "--", f"echo next >> {log}")

    code, _, err = ended(first)
    assert ended(second)[0] == 0

    assert code == EXIT_LOST
    assert "health probe failed 8 times in a row: exit status 1" in err
    assert log.read_text().split() == ["up", "cleaned", "next"]


def test_a_probe_that_hangs_has_failed_and_leaves_nothing(start: Start) -> None:
    """What it started is gone as well."""
    probe = "sleep 4321.125 & sleep 4321.125"
    process = start("lock", "hangs", "--probe", probe, *OFTEN, "--", "sleep", "60")

    code, _, err = ended(process)

    assert code == EXIT_LOST
    assert "no answer within 0.5 s" in err
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "sleep 4321.125" not in listed.stdout.splitlines()


def test_a_program_that_is_well_ends_by_itself(start: Start, coordinator: CommandLine) -> None:
    """The probe runs with the command's environment, and the lock is given back as always."""
    probe = 'test "$COORDINATOR_LOCK_NAME" = well && test -n "$COORDINATOR_FENCING_TOKEN"'

    code, _, err = ended(start("lock", "well", "--probe", probe, *OFTEN, "--", "sleep", "1.5"))

    assert (code, err) == (0, "")
    assert coordinator.json("grants", "well")["how"] == "released"


def test_the_elected_stands_again_when_it_was_not_well(start: Start, tmp_path: Path) -> None:
    """The election goes on; the program is started anew."""
    log, sick = tmp_path / "log", tmp_path / "sick"
    sick.touch()
    process = start("elect", "probed", "--probe", f"test ! -e {sick}", *OFTEN, "--shell", "--",
                    f"echo run >> {log}; exec sleep 60")  # fmt: skip

    eventually(lambda: log.exists() and log.read_text().count("run") >= 2, "it was started again")
    sick.unlink()
    time.sleep(1.5)
    runs = log.read_text().count("run")
    time.sleep(1)

    assert log.read_text().count("run") == runs
    assert process.poll() is None
