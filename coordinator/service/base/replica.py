"""The state machine as the log drives it, and its listeners.

The log calls ``apply``, ``snapshot`` and ``restore``; the parts of this room listen. All of it is
synchronous: when ``apply`` returns, every watch, lease and waiter has been notified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Final, Protocol, get_args

from coordinator.errors import StorageError
from coordinator.raft.engine import Replace
from coordinator.state.access.operations import Change
from coordinator.state.codec import decode_command
from coordinator.state.commands import (
    Check,
    CloseSession,
    Command,
    ExpireSession,
    Operation,
    SetData,
    SetLevel,
)
from coordinator.state.levels import UnreadLevelError, check_level
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, Refusal
from coordinator.state.rules import RULES, difference
from coordinator.waiting import FREED_AT_ONCE, in_turns

_OnOutcome = Callable[[Command, Outcome], None]


Interest = frozenset[type]
"""The operations after which a listener is called; with Refusal among them after any refusal."""
ALL_OUTCOMES: Final[Interest] = frozenset({*get_args(Operation), Refusal})
QUEUES: Final[Interest] = ALL_OUTCOMES - {SetData, Check}
"""All that may create or delete a znode or make a grant, and refusals."""
ACCESS_CHANGES: Final[Interest] = frozenset(get_args(Change))
SESSION_ENDS: Final[Interest] = frozenset({CloseSession, ExpireSession})


class StateListener(Protocol):
    """A part of the member that follows the state. Neither call may raise."""

    interest: ClassVar[Interest]

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """``command`` has just been applied."""
        ...

    def on_restore(self) -> None:
        """The whole state was replaced by a snapshot; what happened between is not known."""
        ...


class MachineReplica:
    """Adapts a StateMachine to the engine's Replica.

    It never decides otherwise than the members that wrote the log: a state that was begun under
    other rules, or has a level that this release does not read, raises an error that stops the
    member.
    """

    def __init__(
        self,
        machine: StateMachine,
        *,
        rules: tuple[tuple[str, str], ...] = RULES,
    ) -> None:
        self.machine = machine
        self.look_index: int | None = None
        """``before_next`` is called before a command of a later entry than this is applied."""
        self.before_next: Callable[[int], None] | None = None
        self._rules = rules
        self._listeners: list[StateListener] = []
        self._listeners_of: dict[type, list[_OnOutcome]] = {}
        """The listeners of a command, by its operation; filled on first use."""
        self._is_begun = False
        """Whether the state is known to have limits and rules of its own."""

    @property
    def has_rights(self) -> bool:
        """Whether rights are checked, as far as this member has come."""
        return self.machine.access.is_on

    def add_listener(self, listener: StateListener) -> None:
        """Call ``listener`` for the outcomes in its interest, after the listeners added before."""
        self._listeners.append(listener)
        self._listeners_of.clear()

    def apply(self, index: int, term: int, command: bytes) -> Outcome:
        """Apply one entry of the log, and notify the listeners.

        Raises:
            StorageError: this member would decide otherwise than those that wrote the log.
        """
        decoded = decode_command(command)
        if self.look_index is not None and index > self.look_index and self.before_next:
            self.before_next(index)
        if not self._is_begun:
            return self._apply_first(index, term, decoded)
        outcome = self.machine.apply(decoded, index, term)
        self._notify(decoded, outcome)
        return outcome

    def _refuse_unread_level(self) -> None:
        try:
            check_level(self.machine.level)
        except UnreadLevelError as error:
            raise StorageError(str(error)) from None

    def _apply_first(self, index: int, term: int, decoded: Command) -> Outcome:
        """Apply a command of a state that may be without limits yet."""
        is_first = not self.machine.limits_record.version
        outcome = self.machine.apply(decoded, index, term)
        if is_first:
            self._refuse_other_rules()
        self._is_begun = not is_first
        self._notify(decoded, outcome)
        return outcome

    def _notify(self, command: Command, outcome: Outcome) -> None:
        if type(command.operation) is SetLevel:
            self._refuse_unread_level()
        kind = type(command.operation) if outcome.refusal is None else Refusal
        listeners = self._listeners_of.get(kind)
        if listeners is None:
            listeners = [each.on_outcome for each in self._listeners if kind in each.interest]
            self._listeners_of[kind] = listeners
        for on_outcome in listeners:
            on_outcome(command, outcome)

    def _refuse_other_rules(self) -> None:
        found = difference(self.machine.limits_record.rules, self._rules)
        if found:
            raise StorageError(
                f"this state was begun by a release that decides otherwise: {found}; "
                "run the release that began it, on every member"
            )

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as the pieces of a snapshot."""
        return self._then_merged(self.machine.snapshot())

    def _then_merged(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield all pieces; then merge what was changed since, between other work."""
        yield from pieces
        in_turns(iter(self.machine.merge_some, False), lambda _: None, 1)

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state at once."""
        self.prepare_restore(pieces)()

    def prepare_restore(self, pieces: Iterable[bytes]) -> Replace:
        """Read a snapshot; return the function that replaces the state by it in one step.

        The former state, or a snapshot that is not needed, is then freed between other work.

        Raises:
            ValueError: it is no snapshot, or damaged.
            StorageError: it is of a level that this release does not read.
        """
        try:
            replace_state = self.machine.prepare_restore(pieces)
        except UnreadLevelError as error:
            raise StorageError(str(error)) from error

        def replace(*, is_needed: bool = True) -> None:
            unused = replace_state(is_needed=is_needed)
            in_turns(unused, lambda _: None, FREED_AT_ONCE)
            if not is_needed:
                return
            self._is_begun = False
            self._refuse_other_rules()
            for listener in self._listeners:
                listener.on_restore()

        return replace
