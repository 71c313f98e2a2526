"""The end of a pass of the event loop: one call for all that asked for it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from coordinator.raft.pass_end import AtPassEnd


async def test_a_call_runs_once_after_all_that_was_ready_in_the_pass() -> None:
    """Messages of several sockets are acted on together, whatever their number."""
    seen: list[str] = []
    loop = asyncio.get_running_loop()
    at_end = AtPassEnd(lambda: seen.append("end"))

    def act(name: str) -> None:
        at_end.leave()
        seen.append(name)

    loop.call_soon(act, "first")
    loop.call_soon(act, "second")
    await asyncio.sleep(0)
    assert seen == ["first", "second"]
    assert at_end.is_left
    await asyncio.sleep(0)

    assert seen == ["first", "second", "end"]
    assert not at_end.is_left


async def test_a_call_that_was_taken_back_does_not_run_until_it_is_left_again() -> None:
    seen: list[str] = []
    at_end = AtPassEnd(lambda: seen.append("end"))

    at_end.leave()
    at_end.take_back()
    at_end.take_back()
    await asyncio.sleep(0)
    assert seen == []

    at_end.leave()
    at_end.take_back()
    at_end.leave()
    at_end.leave()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == ["end"]


async def test_what_leaves_itself_again_lets_sockets_be_read_in_between() -> None:
    """A pass of Raft that has more to do asks for the next one, and messages come meanwhile."""
    read = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    loop.add_reader(reader, read.set)

    def again() -> None:
        if not read.is_set():
            at_end.leave()

    at_end = AtPassEnd(again)
    at_end.leave()
    writer.send(b"x")
    await read.wait()

    loop.remove_reader(reader)
    reader.close()
    writer.close()


async def test_a_call_that_fails_is_reported_and_may_be_left_again() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fail() -> None:
        raise ValueError("no")

    at_end = AtPassEnd(fail)
    for _ in range(2):
        at_end.leave()
        await asyncio.sleep(0)

    assert [type(each["exception"]) for each in told] == [ValueError, ValueError]
