"""A supervised command runs only while the lease is safe; everything here is a real process.

Each test starts a supervisor with a pretended lease (``supervised.py``) over a command that stamps
the time into files while it runs (``stamper.py``); both clocks are the machine's monotonic one, so
"dead before the lease ended" is a comparison of two numbers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.cli.output import EXIT_LOST, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from coordinator.cli.supervisor import Patience
from tests.cli.supervising import DEADLINE_S, HERE, ROOT, Supervised, eventually, is_alive
from tests.patience import patient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    it = Supervised(tmp_path)
    yield it
    if it.process is not None:
        it.process.kill()
        it.process.wait()
    for pid in it.pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
def test_the_exit_code_is_the_commands_own(supervised: Supervised, script: str, code: int) -> None:
    """An end by itself is passed on, an end by a signal as a shell would say it."""
    supervised.start(["sh", "-c", script])

    assert supervised.wait() == code


@pytest.mark.parametrize(
    ("command", "code"),
    [("no-such-command-here", EXIT_NOT_FOUND), ("/etc/passwd", EXIT_NOT_EXECUTABLE)],
)
def test_a_command_that_cannot_be_started_says_so(
    supervised: Supervised, command: str, code: int
) -> None:
    """Not found and not executable have the codes that shells give them."""
    supervised.start([command])

    assert supervised.wait() == code


@pytest.mark.check
def test_renewals_keep_the_command_running(supervised: Supervised) -> None:
    """As long as the lease is renewed, the command outlives its leases."""
    # Long enough for a machine that is busy: a lease that is missed does end the command.
    supervised.start(["sleep", "5"], lease_ms=2_000, grace_ms=50)

    assert supervised.wait() == 0


def test_loss_is_told_by_term_in_time_to_clean_up(supervised: Supervised) -> None:
    """A command that obeys SIGTERM ends by itself, before the lease does."""
    supervised.start(supervised.stamper(), lease_ms=2_000, grace_ms=700, renewals_ms=0)

    code = supervised.wait()

    assert code == EXIT_LOST
    assert [line.split()[1] for line in supervised.signals] == [str(int(signal.SIGTERM))]
    assert supervised.last_stamp_ms < supervised.lease_end_ms - 200


@pytest.mark.parametrize(
    "wishes",
    [("ignore-term",), ("ignore-term", "child"), ("ignore-term", "child", "detached-child")],
    ids=["alone", "with a child", "with a child and a detached one"],
)
def test_a_command_that_ignores_term_is_dead_before_the_lease_ends(
    supervised: Supervised, wishes: tuple[str, ...]
) -> None:
    """SIGKILL reaches the command and all its descendants while the lease still lasts."""
    supervised.start(supervised.stamper(*wishes), lease_ms=2_500, grace_ms=300, renewals_ms=0)
    supervised.wait_running(len(wishes))

    code = supervised.wait()

    assert code == EXIT_LOST
    assert not any(map(is_alive, supervised.pids))
    assert supervised.last_stamp_ms < supervised.lease_end_ms


def test_a_stopped_supervisor_does_not_keep_its_command_alive(supervised: Supervised) -> None:
    """SIGSTOP of the wrapper: the command is dead before the lease ends; on waking it says lost."""
    command = supervised.stamper("ignore-term", "child")
    supervised.start(command, lease_ms=2_000, grace_ms=300)
    supervised.wait_running(2)

    supervised.signal(signal.SIGSTOP)
    supervised.wait_dead()
    last_stamp_ms, lease_end_ms = supervised.last_stamp_ms, supervised.lease_end_ms
    supervised.signal(signal.SIGCONT)

    assert last_stamp_ms < lease_end_ms
    assert supervised.wait() == EXIT_LOST


def test_a_killed_supervisor_takes_its_command_along(supervised: Supervised) -> None:
    """kill -9 of the wrapper leaves nothing: not the command, not its children, not the guard."""
    command = supervised.stamper("ignore-term", "child", "detached-child")
    supervised.start(command, lease_ms=60_000, grace_ms=100)
    supervised.wait_running(3)
    guard = supervised.guard()

    supervised.signal(signal.SIGKILL)

    supervised.wait_dead()
    eventually(lambda: not is_alive(guard), "the guard has gone")


def test_a_killed_guard_takes_the_command_along(supervised: Supervised) -> None:
    """Without its guard a command does not run: the kernel ends it, the supervisor its group."""
    supervised.start(supervised.stamper("ignore-term", "child"), lease_ms=60_000)
    supervised.wait_running(2)

    os.kill(supervised.guard(), signal.SIGKILL)

    assert supervised.wait() == 128 + signal.SIGKILL
    supervised.wait_dead()


def test_signals_reach_every_process_of_the_command(supervised: Supervised) -> None:
    """A forwarded signal goes to the group, and the command decides what it means."""
    supervised.start(supervised.stamper("child"), lease_ms=60_000)
    supervised.wait_running(2)

    supervised.signal(signal.SIGUSR1)
    eventually(lambda: len(supervised.signals) == 2, "both have been told")
    supervised.signal(signal.SIGTERM)

    assert supervised.wait() == 0
    assert {int(line.split()[0]) for line in supervised.signals} == set(supervised.pids)


def test_what_the_command_leaves_running_is_ended(supervised: Supervised) -> None:
    """Nothing of the command goes on after the lock was given back, detached or not."""
    command = supervised.stamper("ignore-term", "child", "detached-child", "leave")
    supervised.start(command, lease_ms=60_000, grace_ms=100)

    code = supervised.wait()

    assert code == 5
    assert not any(map(is_alive, supervised.pids))


def test_a_child_that_ends_while_the_guard_looks_hides_no_other() -> None:
    """What it leaves is adopted after the look: the next one finds it, and ends nothing before."""
    looks = subprocess.run(
        [sys.executable, str(HERE / "orphaned.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(DEADLINE_S),
    )

    assert looks.stdout.splitlines() == ["none, perhaps not all", "one, all of them"]


def test_stop_by_the_terminal_does_not_reach_the_guard(supervised: Supervised) -> None:
    """The guard is in a session of its own, so stopping the wrapper's group leaves it awake."""
    supervised.start(["sleep", "60"], lease_ms=60_000)
    assert supervised.process is not None
    wrapper = supervised.process.pid
    eventually(lambda: "until" in supervised.log, "the supervisor is at work")

    guard = supervised.guard()

    assert os.getsid(guard) == guard
    assert os.getsid(guard) != os.getsid(wrapper)


def test_the_default_grace_fits_the_lease() -> None:
    """Three tenths of the lease, at most 5 s; the margin is smaller still."""
    assert Patience.for_lease(10_000) == Patience(grace_ms=3_000, margin_ms=200)
    assert Patience.for_lease(1_000) == Patience(grace_ms=300, margin_ms=50)
    assert Patience.for_lease(3_600_000) == Patience(grace_ms=5_000, margin_ms=200)
    assert Patience.for_lease(10_000, 0) == Patience(grace_ms=0, margin_ms=200)
