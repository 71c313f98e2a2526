"""Tasks go on where their answers are read, each once, whatever the others do."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

import anyio
import pytest

from coordinator.client.stream.task_wait import TaskWait, let_go_on
from coordinator.wire.stream import frames
from tests.client.stream.nested import run_inside
from tests.client.stream.scripted import A, Peer, echo, get, linked
from tests.client.virtual_time import run


class Waiting:
    """Some tasks, each of which awaits something; ``said`` is what they said in the end."""

    def __init__(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        self.awaited = [TaskWait(loop) for _ in range(count)]
        self.said: list[str] = []
        self.then: dict[int, Callable[[], object]] = {}
        self.tasks = [asyncio.create_task(self._wait(at)) for at in range(count)]

    async def _wait(self, at: int) -> None:
        try:
            await self.awaited[at]
        except asyncio.CancelledError:
            self.said.append(f"{at} was cancelled")
            raise
        self.said.append(f"{at} went on")
        if at in self.then:
            self.then[at]()

    def answer(self) -> None:
        """Let all go on, as a connection does that has read what they wait for."""
        for each in self.awaited:
            each.is_done = True
        let_go_on(self.awaited)

    async def answered(self) -> list[str]:
        """Answer in a callback of the loop; return what was said when that was over."""
        await asyncio.sleep(0)
        done = asyncio.get_running_loop().create_future()

        def answer() -> None:
            self.answer()
            done.set_result(list(self.said))

        asyncio.get_running_loop().call_soon(answer)
        found: list[str] = await done
        return found


async def test_tasks_go_on_in_the_callback_that_answers_them() -> None:
    """In the order in which they were answered, and not in a later pass."""
    waiting = Waiting(3)

    assert await waiting.answered() == ["0 went on", "1 went on", "2 went on"]

    await asyncio.gather(*waiting.tasks)


async def test_where_a_task_runs_the_others_go_on_later() -> None:
    """No task is entered within another one."""
    waiting = Waiting(2)
    await asyncio.sleep(0)

    waiting.answer()

    assert waiting.said == []
    await asyncio.gather(*waiting.tasks)
    assert waiting.said == ["0 went on", "1 went on"]


async def test_a_task_that_was_answered_may_be_cancelled_by_one_before_it() -> None:
    """It is cancelled once, as with a future that is done."""
    waiting = Waiting(2)
    waiting.then[0] = waiting.tasks[1].cancel

    assert await waiting.answered() == ["0 went on", "1 was cancelled"]

    await asyncio.wait(waiting.tasks)
    assert waiting.tasks[1].cancelled()


async def test_a_task_that_was_cancelled_is_not_answered_after_it() -> None:
    """The answer that comes meanwhile changes nothing."""
    waiting = Waiting(1)
    await asyncio.sleep(0)

    waiting.tasks[0].cancel()
    waiting.answer()

    await asyncio.wait(waiting.tasks)
    assert waiting.said == ["0 was cancelled"]


async def test_one_that_is_cancelled_before_it_waits_never_waits() -> None:
    """A task that was cancelled while it ran is cancelled where it waits first."""
    awaited = TaskWait(asyncio.get_running_loop())

    async def cancel_oneself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await awaited

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(cancel_oneself())


async def test_each_task_goes_on_in_its_own_context() -> None:
    """A context variable has what the task has set."""
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    found: list[str] = []
    awaited = [TaskWait(asyncio.get_running_loop()) for _ in range(2)]

    async def wait(at: int) -> None:
        name.set(f"task {at}")
        await awaited[at]
        found.append(name.get())

    tasks = [asyncio.create_task(wait(at)) for at in range(2)]
    await asyncio.sleep(0)
    for each in awaited:
        each.is_done = True
    asyncio.get_running_loop().call_soon(let_go_on, awaited)
    await asyncio.gather(*tasks)

    assert found == ["task 0", "task 1"]


async def test_a_task_whose_context_is_entered_goes_on_later() -> None:
    """A loop may call what reads in the very context of a task."""
    waiting = Waiting(1)
    await asyncio.sleep(0)
    context = waiting.awaited[0]._context
    assert context is not None

    asyncio.get_running_loop().call_soon(waiting.answer, context=context)
    await asyncio.gather(*waiting.tasks)

    assert waiting.said == ["0 went on"]


def test_what_ends_the_loop_leaves_the_other_tasks_for_later() -> None:
    """Ctrl-C within one task: the others, whose answers were read with it, are not forgotten."""
    loop = asyncio.new_event_loop()

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def begin() -> Waiting:
        waiting = Waiting(3)
        waiting.then[0] = interrupt
        await asyncio.sleep(0)
        return waiting

    try:
        waiting = loop.run_until_complete(begin())
        loop.call_soon(waiting.answer)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()

        loop.run_until_complete(asyncio.wait(waiting.tasks[1:]))

        assert waiting.said == ["0 went on", "1 went on", "2 went on"]
        assert isinstance(waiting.tasks[0].exception(), KeyboardInterrupt)
    finally:
        loop.close()


@pytest.mark.parametrize("message", [None, "why"])
async def test_the_message_of_a_cancellation_arrives(message: str | None) -> None:
    """With a future it does; who cancels may look for it."""
    awaited = TaskWait(asyncio.get_running_loop())

    async def wait() -> None:
        await awaited

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel(message)

    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert cancelled.value.args == (() if message is None else (message,))


def silent(peer: Peer, frame: frames.FromClient) -> None:
    """Answer no request."""
    if not isinstance(frame, frames.RequestFrame):
        echo(peer, frame)


def test_a_request_may_be_given_up_by_a_scope_of_anyio() -> None:
    """The scope knows its own cancellation by the message; any other one it lets through."""

    async def scenario() -> None:
        _, transport = linked(silent)
        with anyio.move_on_after(1) as scope:
            await transport.request(A, get("/"), 10_000)
        assert scope.cancelled_caught

        with pytest.raises(TimeoutError), anyio.fail_after(1):
            await transport.request(A, get("/"), 10_000)

        with anyio.move_on_after(1) as scope:
            async with transport.stream(A, get("/"), 10_000):
                raise AssertionError("nothing was answered")
        assert scope.cancelled_caught
        await transport.close()

    run(scenario())


async def test_anyio_sees_that_a_task_waits() -> None:
    """``wait_all_tasks_blocked`` asks what each task awaits whether it is done."""
    waiting = Waiting(1)

    await anyio.wait_all_tasks_blocked()

    assert not waiting.said
    waiting.tasks[0].cancel()


@pytest.mark.parametrize("first", [0, 1])
async def test_a_step_that_runs_the_loop_inside_itself_starves_nobody(first: int) -> None:
    """Those that were answered after it go on in that loop, once."""
    waiting = Waiting(3)
    meanwhile: list[str] = []

    def run_loop() -> None:
        run_inside(passes=2)
        meanwhile.extend(waiting.said)

    waiting.then[first] = run_loop

    assert await waiting.answered() == ["0 went on", "1 went on", "2 went on"]
    assert meanwhile == ["0 went on", "1 went on", "2 went on"]
    await asyncio.gather(*waiting.tasks)
