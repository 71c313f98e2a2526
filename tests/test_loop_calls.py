"""What the member's event loop does in the place of asyncio's: timers, sockets, tasks."""

from __future__ import annotations

import asyncio
import select
import socket
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from coordinator import event_loop
from coordinator.event_loop import MemberLoop
from tests.test_event_loop import count_asked, run


def test_a_timer_is_that_of_asyncio() -> None:
    """In the order of time, then of setting; cancelled or not; with its context and arguments."""
    seen: list[object] = []
    name = ContextVar("name", default="outer")
    inner = copy_context()
    inner.run(name.set, "inner")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        loop.call_at(now + 0.02, seen.append, "third")
        loop.call_at(now + 0.01, seen.append, "first")
        loop.call_at(now + 0.01, seen.append, "second")
        loop.call_at(now + 0.01, seen.append, "cancelled").cancel()
        last = loop.call_later(0.03, lambda: seen.append(name.get()), context=inner)
        assert last.when() > now
        loop.call_at(now - 1, seen.append, "past")
        loop.call_soon(seen.append, "soon")
        await asyncio.sleep(0.05)

    run(main())
    assert seen == ["soon", "past", "first", "second", "third", "inner"]
    loop = MemberLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, seen.append, "never")


def test_timers_set_while_the_loop_looks_for_mistakes_are_called_with_the_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called = {each: loop.create_future() for each in ("before", "meanwhile", "after")}
        loop.call_later(0.001, called["before"].set_result, None)
        loop.set_debug(True)
        loop.call_later(0.002, called["meanwhile"].set_result, None)
        loop.set_debug(False)
        loop.call_later(0.003, called["after"].set_result, None)
        loop.call_later(60, lambda: None)
        await asyncio.wait_for(asyncio.gather(*called.values()), 10)

    run(main())


def test_timers_that_were_cancelled_are_not_kept() -> None:
    """Each request has one, and most are answered long before it is due."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        kept = loop.call_later(60, lambda: None)
        for _ in range(10_000):
            loop.call_later(30, lambda: None).cancel()
        assert len(loop._ending.timers) < 500
        assert kept in [each[2] for each in loop._ending.timers]

    run(main())


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="counts epoll_wait")
def test_a_timer_that_was_cancelled_does_not_wake_the_loop() -> None:
    times, asked = 20, count_asked()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(times):
            loop.call_later(0.002 * number, lambda: None).cancel()
        await asyncio.sleep(0.1)

    assert asked(main()) < times / 2


def test_sockets_are_read_and_written_as_by_asyncio() -> None:
    """Also to the end of what comes."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        here.setblocking(False)
        done: asyncio.Future[bytes] = loop.create_future()

        def act(is_read: bool) -> None:
            loop.remove_reader(here)
            loop.remove_writer(here)
            done.set_result(here.recv(10) if is_read else b"written")

        for deed, expected in (("write", b"written"), ("read", b"x"), ("end", b"")):
            done = loop.create_future()
            if deed == "write":
                loop.add_writer(here, act, False)
            else:
                there.send(b"x") if deed == "read" else there.close()
                loop.add_reader(here, act, True)
            assert await asyncio.wait_for(done, 10) == expected
        here.close()

    run(main())


def test_a_socket_is_not_called_after_it_was_removed_in_the_same_pass() -> None:
    seen: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        pairs = [socket.socketpair() for _ in range(3)]

        def read(number: int) -> None:
            seen.append(number)
            for pair in pairs:
                loop.remove_reader(pair[0])
            loop.call_later(0.01, over.set_result, None)

        for number, pair in enumerate(pairs):
            loop.add_reader(pair[0], read, number)
            pair[1].send(b"x")
        await asyncio.wait_for(over, 10)
        for pair in pairs:
            pair[0].close()
            pair[1].close()

    run(main())
    assert len(seen) == 1


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="compares with epoll")
def test_a_member_runs_where_the_system_has_no_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: what is ready is what ``selectors`` says."""
    monkeypatch.setattr(event_loop, "_HAS_EPOLL", False)
    test_sockets_are_read_and_written_as_by_asyncio()


def test_tasks_and_futures_are_those_of_asyncio() -> None:
    """With their names and contexts; a factory of tasks is asked, once there is one."""
    name = ContextVar("name", default="outer")
    inner = copy_context()
    inner.run(name.set, "inner")
    made: list[str | None] = []

    async def what() -> str:
        return name.get()

    def factory(loop: Any, coroutine: Any, **options: Any) -> Any:
        made.append("made")
        return asyncio.Task(coroutine, loop=loop, **options)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        assert future.get_loop() is loop
        loop.call_soon(future.set_result, 3)
        assert await future == 3
        task = loop.create_task(what(), name="named")
        assert task.get_name() == "named"
        assert await task == "outer"
        assert await asyncio.create_task(what(), context=inner) == "inner"
        loop.set_task_factory(factory)
        assert await asyncio.create_task(what()) == "outer"
        assert made == ["made"]
        loop.set_task_factory(None)
        assert await asyncio.create_task(what(), name="last") == "outer"

    run(main())
    loop = MemberLoop()
    loop.close()
    coroutine = what()
    with pytest.raises(RuntimeError, match="closed"):
        loop.create_task(coroutine)
    coroutine.close()


def test_a_callback_that_fails_is_reported_as_asyncio_does() -> None:
    """With its handle; the others of the pass are called all the same."""
    seen: list[dict[str, Any]] = []
    called: list[str] = []

    def fail() -> None:
        raise ValueError("a test")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: seen.append(context))
        handle = loop.call_soon(fail)
        loop.call_soon(called.append, "next")
        await asyncio.sleep(0)
        assert [context["handle"] for context in seen] == [handle]
        with pytest.raises(TypeError):
            loop.call_at(None, called.append, "never")  # type: ignore[arg-type]

    run(main())
    assert str(seen[0]["exception"]) == "a test"
    assert called == ["next"]


def test_a_closed_loop_holds_on_to_nothing_that_was_left() -> None:
    loop = MemberLoop()
    left = [loop.call_later(60, lambda: None), loop.call_soon(lambda: None)]
    loop.call_at_pass_end(lambda: None)
    loop.call_before_wait(lambda: None)
    ending = loop._ending
    loop.close()

    assert left
    assert (ending.timers, ending.calls, ending._late) == ([], [], [])
