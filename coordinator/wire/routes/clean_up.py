"""The clean-up behind clients that have gone: grants given back, sessions ended.

The door owns each task until it ends. What could not be cleaned up is left to the end of the
session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from coordinator.clock import Clock
from coordinator.errors import (
    CoordinatorError,
    OutcomeUnknownError,
    RequestForgottenError,
    ShuttingDownError,
    UnavailableError,
)
from coordinator.node.config import HttpConfig
from coordinator.wire.routes.closing import DoorClosing

logger = logging.getLogger("coordinator.http")

_AGAIN_MS = 1_000

Undo = Callable[[int], Awaitable[object]]
"""Cleans one thing up by a deadline; twice does no more than once."""


class CleanUp:
    """The clean-up of one door; once ``closing`` has begun nothing is tried again."""

    def __init__(self, closing: DoorClosing, config: HttpConfig, clock: Clock) -> None:
        self._closing = closing
        self._config = config
        self._clock = clock
        self._under_way: set[asyncio.Future[None]] = set()

    def begin(self, undo: Undo, name: str, *, is_lasting: bool) -> None:
        """Clean up in a task.

        Args:
            undo: does it, by the deadline that it is given; again when nobody knows of the first.
            is_lasting: it is repeated until it is done; else only for as long as a request takes,
                because its client may have gone on elsewhere. All are when the door has many.
        """
        is_lasting = is_lasting and len(self._under_way) < self._config.connections_max
        task = asyncio.ensure_future(self._until_done(undo, name, is_lasting=is_lasting))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def finish(self) -> None:
        """Wait for what is under way; each task has a deadline, and is not begun again."""
        while self._under_way:
            await asyncio.wait(set(self._under_way))

    async def _until_done(self, undo: Undo, name: str, *, is_lasting: bool) -> None:
        give_up_ms = self._deadline_ms()
        found: CoordinatorError
        while True:
            try:
                await undo(self._deadline_ms() if is_lasting else give_up_ms)
                return
            except (UnavailableError, OutcomeUnknownError) as error:
                found, again_ms = error, self._clock.monotonic_ms() + _AGAIN_MS
                is_final = isinstance(error, ShuttingDownError | RequestForgottenError)
                is_final = is_final or (not is_lasting and again_ms >= give_up_ms)
            except CoordinatorError as error:
                found, is_final = error, True
            if is_final or await self._is_closing_within(_AGAIN_MS):
                logger.info("could not %s: %r", name, found.message)
                return

    async def _is_closing_within(self, wait_ms: int) -> bool:
        closing = asyncio.Event()
        with self._closing.ends(closing.set), suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1_000):
                await closing.wait()
        return self._closing.has_begun

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + self._config.request_deadline_ms
