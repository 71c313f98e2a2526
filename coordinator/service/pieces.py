"""Work that is split into commands: the leader proposes one piece after another until none is left.

The state holds what is left, so a new leader continues where the former one stopped.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.clock import Clock
from coordinator.errors import CoordinatorError
from coordinator.raft.engine import Engine
from coordinator.service.tasks import Tasks
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Operation


class Pieces:
    """One kind of such work. ``next_piece`` returns None when nothing is left."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        tasks: Tasks,
        name: str,
        next_piece: Callable[[], Operation | None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._tasks = tasks
        self._name = name
        self._next_piece = next_piece
        self._leads = False
        self._is_running = False

    def start(self) -> None:
        """This member leads."""
        self._leads = True
        self.go_on()

    def stop(self) -> None:
        """This member no longer leads; the new leader continues."""
        self._leads = False

    def go_on(self) -> None:
        """Propose what is left, if this member leads and is not proposing it already."""
        if self._leads and not self._is_running and self._next_piece() is not None:
            self._is_running = True
            self._tasks.spawn(self._propose(), self._name)

    async def _propose(self) -> None:
        try:
            while self._leads and (piece := self._next_piece()) is not None:
                command = Command(piece, self._clock.wall_ms())
                await self._engine.propose(encode_command(command))
        except CoordinatorError:
            pass  # the leader of then looks again soon
        finally:
            self._is_running = False
