"""Waiting until what is read of the tree is as wanted: watch first, look, look after each change.

1. The watch begins before the look, so a change in between is not missed.
2. While no member can be reached the wait goes on, up to its deadline; then an error is raised,
   because what is there now is not known.
3. "Not in time" needs a last look when the time is up, since a silent watch may be one whose member
   cannot be reached. That look has a part of the margin of every wait.
4. A look may be repeated at any time. It may write if that may be repeated, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from coordinator.client import LAST_MS, AsyncClient
from coordinator.errors import (
    ClientClosedError,
    CompactedError,
    OutcomeUnknownError,
    UnavailableError,
)

T = TypeVar("T")


async def until(
    core: AsyncClient,
    path: str,
    kind: Literal["znode", "children", "subtree"],
    look: Callable[[], Awaitable[T | None]],
    wait_ms: int | None,
    last: Callable[[], Awaitable[T | None]] | None = None,
) -> T | None:
    """Return what ``look`` returns once that is not None; None when ``wait_ms`` have passed.

    ``wait_ms`` 0 looks once, None waits without end. ``last`` is the last look, where ``look`` may
    take its time.

    Raises:
        UnavailableError, OutcomeUnknownError: no member answered at the end of the time.
        What else ``look`` raises.
    """
    if wait_ms == 0:
        return await look()
    trouble: list[UnavailableError | OutcomeUnknownError] = []
    try:
        async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000) as scope:
            return await _watching(core, path, kind, look, trouble)
    except TimeoutError:
        if not scope.expired():
            raise
    if trouble:
        raise trouble[-1]
    return await last_look(path, (last or look)())


async def last_look(path: str, look: Awaitable[T]) -> T:
    """Return the result of ``look``, when the time of a wait is up.

    Raises:
        UnavailableError: no answer in the margin of a wait: what is there is not known.
        What else ``look`` raises.
    """
    try:
        async with asyncio.timeout(LAST_MS / 1000) as scope:
            return await look
    except TimeoutError:
        if not scope.expired():
            raise
        raise UnavailableError(
            f"{path}: no member answered at the end of the time; what is there now is not known"
        ) from None


async def _watching(
    core: AsyncClient,
    path: str,
    kind: Literal["znode", "children", "subtree"],
    look: Callable[[], Awaitable[T | None]],
    trouble: list[UnavailableError | OutcomeUnknownError],
) -> T:
    """Look until there is something; ``trouble`` has why the last look failed, if it did."""
    failures = 0
    while True:
        try:
            if (found := await look()) is not None:
                return found
            async with core.watch(path, kind=kind) as changes:
                while (found := await look()) is None:
                    trouble.clear()
                    failures = 0
                    await anext(changes)
                return found
        except ClientClosedError:
            raise
        except CompactedError:
            continue  # watch again from now on, and look again
        except (UnavailableError, OutcomeUnknownError) as error:
            trouble[:] = [error]
            failures += 1
            await core.wait(core.retry_delay_ms(failures))
