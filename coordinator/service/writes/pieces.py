"""Work that is split into commands: the leader proposes pieces until none is left.

The state holds what is left, so a new leader continues where the former one stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coordinator.errors import CoordinatorError
from coordinator.service.base.context import MemberContext
from coordinator.state.commands import Operation


class Pieces:
    """One kind of such work. ``next_pieces`` returns none when nothing is left."""

    def __init__(
        self, context: MemberContext, name: str, next_pieces: Callable[[], Sequence[Operation]]
    ) -> None:
        self._propose_one = context.propose
        self._clock = context.clock
        self._timers = context.timers
        self._again_ms = context.config.sessions.tick_ms
        self._tasks = context.tasks
        self._name = name
        self._next_pieces = next_pieces
        self._leads = False
        self._is_running = False

    def start(self) -> None:
        """Begin: this member leads."""
        self._leads = True
        self.go_on()

    def stop(self) -> None:
        """This member no longer leads; the new leader continues."""
        self._leads = False

    def go_on(self) -> None:
        """Propose what is left, if this member leads and is not proposing it already."""
        if self._leads and not self._is_running and self._next_pieces():
            self._is_running = True
            self._tasks.spawn(self._propose(), self._name)

    async def _propose(self) -> None:
        try:
            while self._leads and (pieces := self._next_pieces()):
                found = await asyncio.gather(
                    *map(self._propose_one, pieces), return_exceptions=True
                )
                for each in found:
                    if isinstance(each, BaseException):
                        raise each
        except CoordinatorError:
            self._timers.at(self._clock.monotonic_ms() + self._again_ms, self.go_on)
        finally:
            self._is_running = False
