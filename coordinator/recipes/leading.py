"""Candidacy again and again: what ``Election.run`` does for both clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from coordinator.client import AsyncClient, Client, entered, returned, settled
from coordinator.errors import (
    ClientClosedError,
    LockLostError,
    OutcomeUnknownError,
    SessionError,
    UnavailableError,
)
from coordinator.recipes.context import Context
from coordinator.recipes.grant import Grant

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


async def lead_again(election: Context[Grant[Any], Any], work: Callable[[Grant[Any]], Any]) -> Any:
    """Run ``work`` whenever elected, in this thread or task; for ``run_either``."""
    client = election.client
    rests = _Rests(client.core)
    is_main = threading.current_thread() is threading.main_thread()
    is_to_interrupt = is_main and isinstance(client, Client)
    while True:
        is_final = False
        try:
            async with entered(client, election) as leadership:
                rests.begun()
                try:
                    with leadership.interrupting() if is_to_interrupt else nullcontext():
                        result = await returned(client, work, leadership)
                finally:
                    is_final = not leadership.is_lost  # nor released: then it was handed over
                if is_final:
                    return result
        except ClientClosedError:
            raise
        except _AGAIN:
            if is_final:
                raise
        await settled(client.call(rests.rest()))
