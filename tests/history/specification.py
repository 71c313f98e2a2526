"""What a sequential specification is, and how the search sees an operation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from tests.history.operations import Operation

FOREVER = 1 << 62
BEGINNING = -1 << 62


class Entry(NamedTuple):
    """An operation as the search sees it. ``group`` is None for what must be placed."""

    operation: Operation
    action: Any
    called_at: int
    returned_at: int
    rank: int | None = None
    group: Hashable | None = None
    breadth: int = 0


class Model(Protocol):
    """A sequential specification. States are hashable values; None is never a state."""

    def init(self) -> Any:
        """Return the state of a key before its first operation."""
        ...

    def action(self, operation: Operation) -> Any | None:
        """Translate an operation, as recorded; None when it says nothing and changes nothing."""
        ...

    def step(self, state: Any, action: Any) -> Any | None:
        """Return the state after the action; None if it cannot happen here as it was recorded.

        For an unknown outcome: the state if it takes effect, None if here it would have none.
        """
        ...

    def is_observation(self, action: Any) -> bool:
        """Say that the action changes nothing in any state; at most it tells of one."""
        ...

    def prepare(self, operations: Sequence[Operation]) -> list[Entry]:
        """Translate the operations of one key, with what follows from all of them together."""
        ...

    def split(self, state: Any) -> tuple[Hashable, tuple[int, ...]]:
        """Return what must be equal, and numbers of which smaller ones allow no less later."""
        ...

    def is_futile(
        self, state: Any, due: Sequence[Any], optional: Sequence[Any], rank_due: int | None
    ) -> bool:
        """Say that an optional operation leading to ``state`` was in vain; False when unsure.

        ``due`` are the actions one of which must be placed next, ``optional`` what may be placed
        before it (one of each group), ``rank_due`` is the lowest rank of all that are left.
        In vain: no optional operations can lead from here to a state in which one of them fits, or
        they lead to none that they do not reach as well without this one.
        """
        ...


def plain_entries(model: Model, operations: Iterable[Operation]) -> list[Entry]:
    """Translate each operation on its own: what a model does that knows no better."""
    entries = []
    for number, operation in enumerate(operations):
        action = model.action(operation)
        if action is None:
            continue
        if operation.returned_at is None:
            entries.append(
                Entry(operation, action, operation.called_at, FOREVER, group=("alone", number))
            )
        else:
            entries.append(Entry(operation, action, operation.called_at, operation.returned_at))
    return entries
