"""Functions of the program that the client of threads calls: whatever they do, it goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator.client.running.callbacks import THREADS_MAX, Callback, answered, call_in_threads
from coordinator.client.running.process import OwnLoop
from tests.patience import patient

ENDS = [StopIteration, SystemExit, KeyboardInterrupt, asyncio.CancelledError]


@pytest.mark.parametrize("kind", ENDS)
async def test_whatever_ends_a_function_is_an_answer(kind: type[BaseException]) -> None:
    """A future takes no StopIteration, and a loop ends with a SystemExit."""
    call_in_threads(asyncio.get_running_loop())

    def function() -> None:
        raise kind

    with pytest.raises(RuntimeError, match=kind.__name__):
        await asyncio.wait_for(answered(OwnLoop(), function), patient(20))


async def test_answers_do_not_wait_for_callbacks() -> None:
    """All callbacks may be waiting for one."""
    threads = call_in_threads(asyncio.get_running_loop())
    may_return = threading.Event()
    for _ in range(THREADS_MAX):
        threads.run(may_return.wait)
    try:
        assert await asyncio.wait_for(answered(OwnLoop(), lambda: 1), patient(20)) == 1
    finally:
        may_return.set()


@pytest.mark.parametrize("kind", ENDS)
async def test_a_callback_is_called_again_whatever_it_raised(kind: type[BaseException]) -> None:
    loop = asyncio.get_running_loop()
    call_in_threads(loop)
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    was_called = asyncio.Event()

    def function(is_first: bool) -> None:
        if is_first:
            raise kind
        loop.call_soon_threadsafe(was_called.set)

    callback = Callback(OwnLoop(), "a test", function)
    callback(True)
    callback(False)

    await asyncio.wait_for(was_called.wait(), patient(20))
    await asyncio.sleep(0)
    assert len(reported) == 1
    assert isinstance(reported[0], Exception)
