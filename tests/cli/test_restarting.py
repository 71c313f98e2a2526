"""When ``elect`` starts its command again, and what it tells the service manager."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.cli.restarting import RestartPolicy, Restarts
from coordinator.node.service_manager import ServiceManager
from tests.patience import patient


def test_pauses_double_up_to_the_longest() -> None:
    """After so many in a row it is enough; a long run begins again."""
    restarts = Restarts(RestartPolicy("always", pause_s=1, pause_s_max=10, in_a_row=6))

    pauses = [restarts.pause_s(0.1) for _ in range(7)]
    again = [restarts.pause_s(each) for each in (10, 0, 10)]

    assert pauses == [1, 2, 4, 8, 10, 10, None]
    assert again == [1, 2, 1]
    assert (
        Restarts(RestartPolicy("always", pause_s=1, pause_s_max=10, in_a_row=0)).pause_s(0) is None
    )


@pytest.mark.parametrize(
    ("when", "wants"), [("never", []), ("on-failure", [1, 143]), ("always", [0, 1, 143])]
)
def test_which_ends_want_a_restart(when: str, wants: list[int]) -> None:
    """By the exit code, as a shell says it."""
    policy = RestartPolicy(when)  # type: ignore[arg-type]
    assert [code for code in (0, 1, 143) if policy.wants(code)] == wants


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_manager_hears_what_changes(tmp_path: Path, is_abstract: bool) -> None:
    """Once for each change; its variables are not handed on to the command."""
    name = f"@coordinator-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid()),
               "HOME": "/"}  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(name.replace("@", "\0"))
        manager = ServiceManager(environ)
        manager.say("waiting", "READY=1")
        manager.say("waiting", "READY=1")
        manager.say("elected, epoch 7", "READY=1")
        asyncio.run(_a_moment(manager))
        channel.setblocking(False)
        heard = [channel.recv(1_000).decode() for _ in range(4)]

    assert environ == {"HOME": "/"}
    assert heard == ["READY=1\nSTATUS=waiting", "READY=1\nSTATUS=elected, epoch 7",
                     "WATCHDOG=1", "WATCHDOG=1"]  # fmt: skip
    manager.say("nobody listens any more")


async def _a_moment(manager: ServiceManager) -> None:
    alive = asyncio.create_task(manager.keep_alive())
    await asyncio.sleep(0.015)
    alive.cancel()


async def test_the_sign_of_life_goes_on_when_the_status_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A status is for people: a healthy member is not ended for it. The log says what failed."""
    statuses = iter([ValueError("no status"), "leads"])

    def status() -> str:
        found = next(statuses, "leads")
        if isinstance(found, str):
            return found
        raise found

    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(name)
        manager = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000"})
        heard = await _heard(manager, channel, 3, status)

    assert heard == ["WATCHDOG=1", "WATCHDOG=1", "STATUS=leads"]
    assert "no status" in caplog.text


async def test_what_was_lost_is_said_again_until_it_is_sent(tmp_path: Path) -> None:
    """``READY=1`` above all, with the status as it is then; once it was sent, not again."""
    name = str(tmp_path / "notify")
    manager = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000"})
    manager.say("starts", "READY=1")
    manager.say("waits")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(name)
        heard = await _heard(manager, channel, 4)
        manager.say("leads")
        heard.append(channel.recv(1_000).decode())

    assert heard == ["WATCHDOG=1", "READY=1\nSTATUS=waits", "WATCHDOG=1", "WATCHDOG=1",
                     "STATUS=leads"]  # fmt: skip


async def _heard(
    manager: ServiceManager,
    channel: socket.socket,
    count: int,
    status: Callable[[], str] | None = None,
) -> list[str]:
    """Return the first messages that the manager gets from ``keep_alive``."""
    channel.setblocking(False)
    alive = asyncio.create_task(manager.keep_alive(status))
    try:
        async with asyncio.timeout(patient(10)):
            receive = asyncio.get_running_loop().sock_recv
            return [(await receive(channel, 1_000)).decode() for _ in range(count)]
    finally:
        alive.cancel()


def test_without_a_manager_nothing_is_said() -> None:
    """No socket, no watchdog, no error; that of another process is not answered."""
    for environ in ({}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}):
        manager = ServiceManager(environ)
        manager.say("waiting", "READY=1")
        asyncio.run(manager.keep_alive())
