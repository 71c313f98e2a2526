"""``coordinator lock`` and ``elect``, as processes, against a member with real leases.

Whether two commands overlapped is read from files into which each stamps the time while it runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.cli.output import EXIT_LOST, EXIT_NOT_FOUND, EXIT_NOT_IN_TIME, EXIT_NOT_STARTED
from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember
from tests.cli.supervising import eventually, is_alive

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEADLINE_S = 30.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(member: ServedMember) -> Iterator[Start]:
    """Start ``coordinator`` with these arguments as a process; ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, endpoint: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "coordinator", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "COORDINATOR_ENDPOINTS": endpoint or member.url},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def stamper(directory: Path, *wishes: str) -> list[str]:
    """Return a command that stamps the time into ``directory`` while it runs."""
    directory.mkdir(exist_ok=True)
    # Not the wrapper's own Python path: a command gets the environment as it was.
    return ["env", f"PYTHONPATH={ROOT}", sys.executable, str(HERE / "stamper.py"), str(directory),
            *wishes]  # fmt: skip


def stamps(directory: Path) -> dict[int, int]:
    """Return the last stamp of each process that ran, by its id."""
    paths = [path for path in directory.glob("*") if path.name.isdigit()]
    return {int(path.name): int(path.read_text()) for path in paths}


def wait_running(directory: Path) -> None:
    eventually(lambda: bool(stamps(directory)), "the command runs")


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


@pytest.mark.check
def test_a_command_gets_a_signal_when_its_lock_is_asked_for(
    start: Start, coordinator: CommandLine
) -> None:
    """It ends, and its lock is released; who asked learns of both."""
    script = "trap 'exit 7' USR1; echo ready; sleep 30 & wait"
    holder = start("lock", "asked", "--on-asked", "USR1", "--", "sh", "-c", script)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"

    asked = coordinator("ask", "asked", "--reason", "urgent", "--by", "bob", "--within", "20")

    assert (asked.exit_code, asked.stdout) == (0, "ended\n")
    code, _, err = ended(holder)
    assert (code, "bob asks for it: urgent" in err) == (7, True)


def test_the_command_knows_its_grant(start: Start, coordinator: CommandLine) -> None:
    """Token, lock and grant are in the environment; exit code and output are the command's own."""
    script = "echo $COORDINATOR_FENCING_TOKEN $COORDINATOR_LOCK_NAME $COORDINATOR_GRANT_ID; exit 7"

    code, out, _ = ended(start("lock", "env", "--", "sh", "-c", script))

    token, name, grant_id = out.split()
    assert code == 7
    assert (int(token) > 0, name) == (True, "env")
    assert grant_id.endswith(f"-{token}")
    assert coordinator.json("locks", "env")["holder"] is None


def test_tokens_grow(start: Start) -> None:
    """Each run has a larger token than the one before."""
    command = ["lock", "growing", "--shell", "--", "echo $COORDINATOR_FENCING_TOKEN"]

    tokens = [int(ended(start(*command))[1]) for _ in range(3)]

    assert tokens == sorted(set(tokens))


def test_who_holds_can_be_seen(start: Start, coordinator: CommandLine, tmp_path: Path) -> None:
    """The list shows holder and waiters with label, host and process."""
    holder = start("lock", "seen", "--label", "first", "--", *stamper(tmp_path / "a"))
    wait_running(tmp_path / "a")
    start("lock", "seen", "--label", "second", "--", "true")
    eventually(lambda: bool(coordinator.json("locks", "seen")["queue"]), "the second one waits")

    view = coordinator.json("locks", "seen")

    assert (view["holder"]["label"], view["holder"]["pid"]) == ("first", holder.pid)
    assert [each["label"] for each in view["queue"]] == ["second"]
    assert "seen" in coordinator.text("locks")
    assert "waits 1" in coordinator.text("locks", "seen")


def test_not_had_in_time(start: Start, coordinator: CommandLine, tmp_path: Path) -> None:
    """Exit code 75, the command is not started, and nothing is left in the queue."""
    start("lock", "busy", "--", *stamper(tmp_path / "a"))
    wait_running(tmp_path / "a")

    tried, tried_out, _ = ended(start("lock", "busy", "--timeout", "0", "--", "echo", "ran"))
    waited, waited_out, _ = ended(start("lock", "busy", "--timeout", "0.3", "--", "echo", "ran"))

    assert (tried, waited) == (EXIT_NOT_IN_TIME, EXIT_NOT_IN_TIME)
    assert (tried_out, waited_out) == ("", "")
    assert coordinator.json("locks", "busy")["queue"] == []


def test_a_signal_while_waiting_leaves_the_queue(
    start: Start, coordinator: CommandLine, tmp_path: Path
) -> None:
    """SIGTERM ends the wait at once; the place in the queue is gone when the process is."""
    start("lock", "queue", "--", *stamper(tmp_path / "a"))
    wait_running(tmp_path / "a")
    waiter = start("lock", "queue", "--timeout", "forever", "--", "echo", "ran")
    eventually(lambda: bool(coordinator.json("locks", "queue")["queue"]), "it waits")

    waiter.send_signal(signal.SIGTERM)
    code, out, _ = ended(waiter)

    assert (code, out) == (128 + signal.SIGTERM, "")
    assert coordinator.json("locks", "queue")["queue"] == []


def test_a_signal_is_passed_on(start: Start, coordinator: CommandLine, tmp_path: Path) -> None:
    """SIGTERM while the command runs is the command's; then the lock is released."""
    process = start("lock", "passed", "--", *stamper(tmp_path / "a"))
    wait_running(tmp_path / "a")

    process.send_signal(signal.SIGTERM)
    code, _, _ = ended(process)

    assert code == 0, "the stamper ends with 0 on SIGTERM"
    assert (tmp_path / "a" / "signals").exists()
    assert coordinator.json("locks", "passed")["holder"] is None


@pytest.mark.parametrize("verb", ["lock", "elect"])
def test_a_signal_while_releasing_leaves_the_exit_code_of_the_command(
    start: Start, tmp_path: Path, verb: str
) -> None:
    """The command ran to its end: that a release takes long, and is cut short, changes nothing."""
    serving = subprocess.Popen(
        [sys.executable, str(HERE / "serving.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert serving.stdout is not None
        url, done = serving.stdout.readline().strip(), tmp_path / "done"
        script = f"trap '' INT; kill -STOP {serving.pid}; touch {done}; exit 3"
        process = start(verb, "late", "--ttl", "60", "--", "sh", "-c", script, endpoint=url)
        eventually(done.exists, "the command has run")
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)

        assert process.returncode == 3
    finally:
        serving.kill()
        serving.communicate()


def test_a_stopped_wrapper_never_overlaps_with_the_next_holder(
    start: Start, tmp_path: Path
) -> None:
    """SIGSTOP of the wrapper beyond its lease: the command is dead before the next one."""
    command = stamper(tmp_path / "a", "ignore-term", "child")
    first = start("lock", "paused", "--ttl", "1.5", "--", *command)
    eventually(lambda: len(stamps(tmp_path / "a")) == 2, "both processes run")

    first.send_signal(signal.SIGSTOP)
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); " + (
        "from coordinator.clock import SystemClock; print(SystemClock().monotonic_ms())"
    )
    next_one = start("lock", "paused", "--timeout", "20", "--", sys.executable, "-c", script)
    code, out, err = ended(next_one)
    first.send_signal(signal.SIGCONT)

    assert code == 0, err
    assert max(stamps(tmp_path / "a").values()) < int(out)
    assert not any(map(is_alive, stamps(tmp_path / "a")))
    assert ended(first)[0] == EXIT_LOST


def test_a_killed_wrapper_takes_the_command_along(start: Start, tmp_path: Path) -> None:
    """kill -9 of the wrapper leaves no process of the command."""
    process = start("lock", "killed", "--", *stamper(tmp_path / "a", "ignore-term", "child"))
    eventually(lambda: len(stamps(tmp_path / "a")) == 2, "both processes run")

    process.kill()

    eventually(lambda: not any(map(is_alive, stamps(tmp_path / "a"))), "all are dead")


def test_when_the_service_goes_away_the_command_ends_first(start: Start, tmp_path: Path) -> None:
    """No member answers any more: SIGTERM in time, exit code 76."""
    own = ServedMember()
    own.start()
    process = start(
        "lock", "gone", "--ttl", "1.5", "--", *stamper(tmp_path / "a"), endpoint=own.url
    )
    wait_running(tmp_path / "a")

    own.stop()
    code, _, err = ended(process)

    assert code == EXIT_LOST
    assert "lost" in err
    assert (tmp_path / "a" / "signals").exists()


def test_without_members_nothing_is_run(start: Start) -> None:
    """Exit code 77 when nobody can be asked."""
    process = start("lock", "x", "--timeout", "0.5", "--", "echo", "ran",
                    endpoint="http://127.0.0.1:9")  # fmt: skip

    code, out, err = ended(process)

    assert (code, out) == (EXIT_NOT_STARTED, "")
    assert err.count("\n") == 1


def test_a_command_that_is_not_there(start: Start, coordinator: CommandLine) -> None:
    """Exit code 127 as from a shell, and the lock is free again."""
    code, _, _ = ended(start("lock", "absent", "--", "no-such-command-here"))

    assert code == EXIT_NOT_FOUND
    assert coordinator.json("locks", "absent")["holder"] is None


def test_a_grace_beyond_the_lease_is_refused(coordinator: CommandLine) -> None:
    """A command could not be dead in time, so it is wrong usage."""
    result = coordinator("lock", "x", "--ttl", "2", "--kill-grace", "1.5", "--", "true")

    assert result.exit_code == 2
    assert "--kill-grace" in result.stderr


def test_the_elected_ends_with_its_command(start: Start) -> None:
    """elect resigns when the command ends, and has its exit code; the token is the epoch."""
    script = "echo $COORDINATOR_FENCING_TOKEN; exit 3"

    first = ended(start("elect", "once", "--", "sh", "-c", script))
    second = ended(start("elect", "once", "--timeout", "5", "--", "sh", "-c", script))

    assert (first[0], second[0]) == (3, 3)
    assert int(first[1]) < int(second[1])


def test_who_lost_an_election_stands_again(start: Start, tmp_path: Path) -> None:
    """After a pause beyond its lease the command is ended, and started anew under a later epoch."""
    script = f'echo "$COORDINATOR_FENCING_TOKEN" >> {tmp_path}/epochs; exec sleep 60'
    process = start("elect", "again", "--ttl", "1", "--", "sh", "-c", script)
    epochs = tmp_path / "epochs"
    eventually(lambda: epochs.exists() and epochs.read_text().count("\n") == 1, "it is elected")

    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # longer than its lease; the pause itself is what is tested
    process.send_signal(signal.SIGCONT)
    eventually(lambda: epochs.read_text().count("\n") == 2, "it is elected again")
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)

    first, second = map(int, epochs.read_text().split())
    assert first < second
    assert "contending again" in err
    assert code == 128 + signal.SIGTERM
