"""Candidacy again and again: what ``Election.run`` does for both clients."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

from coordinator.client import AsyncClient, Client
from coordinator.errors import (
    ClientClosedError,
    LockLostError,
    OutcomeUnknownError,
    SessionError,
    UnavailableError,
)
from recipes.context import Context
from recipes.grant import Grant

T = TypeVar("T")

_AGAIN = (LockLostError, SessionError, UnavailableError, OutcomeUnknownError)
"""What a candidacy ends with that may go better the next time."""


class _Rests:
    """The pauses between rounds, longer after each that did not come to work."""

    def __init__(self, core: AsyncClient) -> None:
        self._core = core
        self._failures = 0

    def begun(self) -> None:
        self._failures = 0

    async def rest(self) -> None:
        self._failures += 1
        await self._core.wait(self._core.retry_delay_ms(self._failures))


def lead_again(election: Context[Grant[Client], Client], work: Callable[[Grant[Client]], T]) -> T:
    """Run ``work`` in this thread whenever elected."""
    rests = _Rests(election.client.core)
    is_main = threading.current_thread() is threading.main_thread()
    while True:
        is_final = False
        try:
            with election as leadership:
                rests.begun()
                try:
                    with leadership.interrupting() if is_main else nullcontext():
                        result = work(leadership)
                finally:
                    is_final = not leadership.is_lost  # nor released: then it was handed over
                if is_final:
                    return result
        except ClientClosedError:
            raise
        except _AGAIN:
            if is_final:
                raise
        election.client.call(rests.rest())


async def lead_again_async(
    election: Context[Grant[AsyncClient], AsyncClient],
    work: Callable[[Grant[AsyncClient]], Awaitable[T]],
) -> T:
    """Run ``work`` in this task whenever elected."""
    rests = _Rests(election.client)
    while True:
        is_final = False
        try:
            async with election as leadership:
                rests.begun()
                try:
                    result = await work(leadership)
                finally:
                    is_final = not leadership.is_lost
                if is_final:
                    return result
        except ClientClosedError:
            raise
        except _AGAIN:
            if is_final:
                raise
        await rests.rest()
