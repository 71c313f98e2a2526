"""The member's event loop: the end of a pass, and how seldom the system is asked."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from coordinator.event_loop import (
    ASKED_MS,
    LATE_MS,
    AtPassEnd,
    MemberLoop,
    before_wait,
    member_loop,
    pass_end,
)


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=MemberLoop) as runner:
        runner.run(main)


def test_asyncio_has_what_the_loop_looks_at() -> None:
    """None of it is documented: a Python without it is noticed here first."""
    loop: Any = member_loop()
    assert isinstance(loop, MemberLoop)
    loop.set_debug(True)
    timer = loop.call_later(60, lambda: None)
    loop.set_debug(False)
    loop.call_soon(lambda: None)

    assert len(loop._ready) == 1
    assert loop._scheduled[0] is timer
    assert timer.when() > loop.time()
    assert 0 < loop._clock_resolution < 0.001
    assert loop._stopping is False
    assert loop._closed is False
    assert loop._debug is False
    loop.close()
    assert loop._closed is True


def test_without_it_a_member_runs_on_the_loop_of_asyncio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And says so once, when it starts."""
    loop = member_loop(("_ready", "_gone"))

    assert not isinstance(loop, MemberLoop)
    assert "asyncio's loop has no _gone in this version" in caplog.text
    loop.close()


def test_a_call_runs_at_the_end_of_its_pass_after_all_that_is_in_it() -> None:
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        at_end = pass_end(loop)
        loop.call_soon(lambda: (at_end(lambda: seen.append("end")), seen.append("first")))
        loop.call_soon(lambda: (loop.call_soon(seen.append, "next pass"), seen.append("second")))
        await asyncio.sleep(0.01)

    run(main())
    assert seen == ["first", "second", "end", "next pass"]


def test_on_any_other_loop_the_end_of_a_pass_is_the_next_pass() -> None:
    seen: list[str] = []

    async def main() -> None:
        pass_end(asyncio.get_running_loop())(lambda: seen.append("end"))
        assert not seen
        await asyncio.sleep(0)

    asyncio.run(main())
    assert seen == ["end"]


def test_what_a_call_at_the_end_leaves_there_comes_one_pass_later_and_others_meanwhile() -> None:
    """A pass of Raft that has more to do calls for the next one: sockets are read in between."""
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        at_end = pass_end(loop)
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        loop.add_reader(reader, lambda: (reader.recv(10), seen.append("read")))

        def again() -> None:
            seen.append("end")
            if "read" not in seen:
                at_end(again)

        at_end(again)
        writer.send(b"x")
        await asyncio.sleep(0.05)
        loop.remove_reader(reader)
        reader.close()
        writer.close()

    run(main())
    assert seen.count("end") < 100_000
    assert seen[-2:] == ["read", "end"]


def test_what_is_left_to_before_the_wait_runs_after_all_that_has_something_to_do() -> None:
    """Who is woken in a pass goes on in the next one, and what that sends leaves first."""
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        at_end, late = pass_end(loop), before_wait(loop)

        def answered() -> None:
            seen.append("task")
            at_end(lambda: seen.append("sent"))

        late(lambda: seen.append("late"))
        at_end(lambda: loop.call_soon(answered) and None)
        await asyncio.sleep(0.01)

    run(main())
    assert seen == ["task", "sent", "late"]


def test_a_loop_that_is_never_idle_does_before_the_wait_what_has_been_left_for_long() -> None:
    """Else nobody would do it: a commit would be told with the next heartbeat."""
    at: list[int] = []
    passes: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before_wait(loop)(lambda: at.append(len(passes)))
        for number in range(1, 21):
            passes.append(number)
            until = loop.time() + LATE_MS / 4 / 1000
            while loop.time() < until:
                pass
            await asyncio.sleep(0)

    run(main())
    assert at
    assert at[0] <= 5


def test_what_is_left_to_before_the_wait_several_times_runs_once() -> None:
    seen: list[str] = []

    async def main() -> None:
        late = before_wait(asyncio.get_running_loop())

        def act() -> None:
            seen.append("late")

        for _ in range(100):
            late(act)
        await asyncio.sleep(0.02)

    run(main())
    assert seen == ["late"]


def test_what_is_done_before_the_wait_may_wake_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(60, lambda: None)
        for _ in range(100):
            done: asyncio.Future[None] = loop.create_future()
            before_wait(loop)(lambda done=done: done.set_result(None))  # type: ignore[misc]
            await asyncio.wait_for(done, 10)

    run(main())


def test_on_any_other_loop_the_time_before_it_waits_is_the_next_pass() -> None:
    seen: list[str] = []

    async def main() -> None:
        before_wait(asyncio.get_running_loop())(lambda: seen.append("late"))
        assert not seen
        await asyncio.sleep(0)

    asyncio.run(main())
    assert seen == ["late"]


@pytest.mark.parametrize("loop_factory", [MemberLoop, asyncio.new_event_loop])
def test_a_call_at_the_end_runs_once_and_not_when_it_was_taken_back(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    seen: list[str] = []

    async def main() -> None:
        kept = AtPassEnd(lambda: seen.append("kept"))
        taken = AtPassEnd(lambda: seen.append("taken back"))
        for each in (kept, taken, kept, taken):
            each.leave()
        taken.take_back()
        await asyncio.sleep(0.01)
        assert seen == ["kept"]
        taken.take_back()
        taken.leave()
        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert seen == ["kept", "taken back"]


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="counts epoll_wait")
def test_what_was_taken_back_at_the_end_of_a_pass_costs_no_other_pass() -> None:
    """A pass of Raft sends what it has itself; the loop waits at once, asked once each time."""
    asked, times = count_asked(), 20

    async def main() -> None:
        flushing = AtPassEnd(lambda: None)
        at_end = pass_end(asyncio.get_running_loop())

        def leave_and_take_back() -> None:
            flushing.leave()
            flushing.take_back()

        for _ in range(times):
            at_end(leave_and_take_back)
            await asyncio.sleep(2 * ASKED_MS / 1000)

    assert asked(main()) <= times + 3


def test_a_timer_set_at_the_end_of_a_pass_is_not_slept_over() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        loop.call_later(60, lambda: None)
        pass_end(loop)(lambda: loop.call_later(0.001, done.set_result, None) and None)
        await asyncio.wait_for(done, 10)

    run(main())


def test_a_task_woken_at_the_end_of_a_pass_goes_on_at_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(60, lambda: None)
        for _ in range(100):
            done: asyncio.Future[None] = loop.create_future()
            pass_end(loop)(lambda done=done: done.set_result(None))  # type: ignore[misc]
            await asyncio.wait_for(done, 10)

    run(main())


def test_another_thread_wakes_the_loop() -> None:
    async def main() -> None:
        assert await asyncio.to_thread(lambda: 3) == 3

    run(main())


def test_an_exception_at_the_end_is_reported_and_nothing_else_is_lost() -> None:
    messages: list[dict[str, Any]] = []
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: messages.append(context))
        pass_end(loop)(fail)
        pass_end(loop)(lambda: seen.append("after"))
        await asyncio.sleep(0)

    run(main())
    assert seen == ["after"]
    assert [type(each["exception"]) for each in messages] == [ValueError]


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="counts epoll_wait")
def test_short_passes_in_a_row_ask_the_system_once_in_a_while() -> None:
    passes, asked = 1_000, count_asked()

    async def main() -> None:
        for _ in range(passes):
            await asyncio.sleep(0)

    found = asked(main())
    assert found < passes / 2, "passes of microseconds, in each of which the system was asked"


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="counts epoll_wait")
def test_the_system_is_asked_in_each_pass_that_takes_long() -> None:
    passes, asked = 20, count_asked()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(passes):
            end = loop.time() + 2 * ASKED_MS / 1000
            while loop.time() < end:
                pass
            await asyncio.sleep(0)

    assert asked(main()) >= passes


def count_asked() -> Callable[[Coroutine[Any, Any, None]], int]:
    """Return what runs a coroutine and returns how often the loop asked what is ready."""

    class Counting(MemberLoop):
        count = 0

        def __init__(self) -> None:
            super().__init__()
            poll = self._ending._selector  # type: ignore[attr-defined]

            class Counted:
                def poll(_, *arguments: Any) -> Any:
                    self.count += 1
                    return poll.poll(*arguments)

                def __getattr__(_, name: str) -> Any:
                    return getattr(poll, name)

            self._ending._selector = Counted()  # type: ignore[attr-defined]

    def run_it(main: Coroutine[Any, Any, None]) -> int:
        with asyncio.Runner(loop_factory=Counting) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, Counting)
            before = loop.count
            runner.run(main)
            return loop.count - before

    return run_it


def test_a_call_for_the_next_pass_is_that_of_asyncio() -> None:
    """In its order, cancelled or not, with its context; of a closed loop it is refused."""
    seen: list[object] = []
    name = ContextVar("name", default="outer")
    inner = copy_context()
    inner.run(name.set, "inner")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        name.set("mine")
        loop.call_soon(lambda: seen.append(name.get()))
        loop.call_soon(seen.append, "cancelled").cancel()
        loop.call_soon(lambda: seen.append(name.get()), context=inner)
        loop.call_soon(seen.append, "last")
        await asyncio.sleep(0)

    run(main())
    assert seen == ["mine", "inner", "last"]
    loop = MemberLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(seen.append, "never")


def test_the_steps_of_a_task_are_left_without_a_handle() -> None:
    """Also where the loop is made to look for mistakes before it comes to them."""
    seen: list[str] = []

    async def step(name: str) -> None:
        await asyncio.sleep(0)
        seen.append(name)

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        woken = loop.create_future()
        waits = loop.create_task(step("waits"))
        assert type(loop._ready[-1]) is tuple
        woken.add_done_callback(lambda _: seen.append("callback"))
        woken.set_result(None)
        assert type(loop._ready[-1]) is asyncio.Handle
        loop.set_debug(True)
        await waits
        loop.set_debug(False)
        await step("again")

    run(main())
    assert seen == ["callback", "waits", "again"]


def test_steps_left_at_the_end_of_a_pass_of_asyncio_have_handles() -> None:
    """asyncio makes the passes as long as it has a timer of before, also without debug mode."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_debug(True)
        timer = loop.call_later(100, bool)
        loop.set_debug(False)
        assert loop._scheduled
        for _ in range(3):
            woken = loop.create_future()
            loop.call_at_pass_end(lambda woken=woken: woken.set_result(None))
            await woken
        timer.cancel()
        await asyncio.sleep(0)

    run(main())


def test_a_task_that_ends_the_program_ends_the_loop() -> None:
    """As with asyncio's loop: the loop is left at once, and may run again."""
    loop = MemberLoop()

    async def leave() -> None:
        await asyncio.sleep(0)
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        loop.run_until_complete(leave())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_step_that_cannot_be_taken_is_reported() -> None:
    """Here because its context is entered already: nobody else would say so."""
    told: list[dict[str, Any]] = []
    loop = MemberLoop()
    loop.set_exception_handler(lambda _, said: told.append(said))
    inner = copy_context()
    steps = asyncio.sleep(0)
    task: Any = loop.create_task(steps, context=inner)
    task._log_destroy_pending = False

    inner.run(loop.run_until_complete, asyncio.sleep(0))

    assert isinstance(told[0]["exception"], RuntimeError)
    assert "Handle" in told[0]["message"]
    assert "handle" not in told[0], "asyncio would call the handler in its context, and fail"
    steps.close()
    loop.close()


def test_the_loop_still_finds_mistakes_for_who_asks() -> None:
    """As asyncio's does in its debug mode, which may be set at any time."""
    loop = MemberLoop()
    assert loop.get_debug() is False
    loop.set_debug(True)
    assert loop.get_debug() is True
    with pytest.raises(TypeError, match="coroutines cannot be used"):
        loop.call_soon(asyncio.sleep)
    loop.close()
