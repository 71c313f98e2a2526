"""The runners of blocking calls: threads for real members, in place in simulations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class RunBlocking(Protocol):
    """Runs a call that may block, and returns what it returned."""

    def __call__(self, call: Callable[[], Result], /) -> Awaitable[Result]: ...


class StartBlocking(Protocol):
    """Starts calls that may block, one after another; the caller may wait a while for each."""

    def __call__(self, call: Callable[[], None], /) -> Future[None]: ...


async def run_in_place(call: Callable[[], Result], /) -> Result:
    """Run ``call`` here and now."""
    return call()


async def run_in_thread(call: Callable[[], Result], /) -> Result:
    """Run ``call`` in a thread: syncing a whole snapshot takes longer than a heartbeat."""
    return await asyncio.to_thread(call)


def start_in_place(call: Callable[[], None], /) -> Future[None]:
    """Run ``call`` here and now."""
    done: Future[None] = Future()
    try:
        call()
        done.set_result(None)
    except Exception as error:
        done.set_exception(error)
    return done


def start_in_thread() -> StartBlocking:
    """Return a runner with a thread of its own, which starts at the first call."""
    return ThreadPoolExecutor(1, thread_name_prefix="sync").submit
