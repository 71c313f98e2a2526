"""Where calls that block are run: in a thread for real members, in place in simulations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class RunBlocking(Protocol):
    """Runs a call that may block, and returns what it returned."""

    def __call__(self, call: Callable[[], Result], /) -> Awaitable[Result]: ...


async def run_in_place(call: Callable[[], Result], /) -> Result:
    """Run ``call`` here and now."""
    return call()


async def run_in_thread(call: Callable[[], Result], /) -> Result:
    """Run ``call`` in a thread: syncing a whole snapshot takes longer than a heartbeat."""
    return await asyncio.to_thread(call)
