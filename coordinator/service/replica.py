"""The state machine as the log sees it, and who is told when it changes.

The log drives ``apply``, ``snapshot`` and ``restore``; the parts of this room listen. All of it is
synchronous: when ``apply`` returns, every watch, lease and waiter knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from coordinator.state.codec import decode_command
from coordinator.state.commands import Command
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome


class StateListener(Protocol):
    """A part of the member that follows the state. Neither call may raise."""

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """``command`` has just been applied."""
        ...

    def on_restore(self) -> None:
        """The whole state was replaced by a snapshot; what happened between is not known."""
        ...


class MachineReplica:
    """Adapts a StateMachine to the engine's Replica."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self.look_index: int | None = None
        """Before a command of a later entry than this is applied, ``before_next`` is told."""
        self.before_next: Callable[[int], None] | None = None
        self._listeners: list[StateListener] = []

    def add_listener(self, listener: StateListener) -> None:
        """Tell ``listener`` of every outcome, after those added before it."""
        self._listeners.append(listener)

    def apply(self, index: int, term: int, command: bytes) -> Outcome:
        decoded = decode_command(command)
        if self.look_index is not None and index > self.look_index and self.before_next:
            self.before_next(index)
        outcome = self.machine.apply(decoded, index, term)
        for listener in self._listeners:
            listener.on_outcome(decoded, outcome)
        return outcome

    def snapshot(self) -> Iterator[bytes]:
        return self.machine.snapshot()

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state here and now."""
        self.prepare_restore(pieces)()

    def prepare_restore(self, pieces: Iterable[bytes]) -> Callable[[], None]:
        replace_state = self.machine.prepare_restore(pieces)

        def replace() -> None:
            replace_state()
            for listener in self._listeners:
                listener.on_restore()

        return replace
