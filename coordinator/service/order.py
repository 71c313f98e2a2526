"""The order of long queues, kept up to date, so that a place in one costs O(log n) to find.

``recipes.contention`` decides; it looks at every name. For a short queue that is the cheapest way.
For a long one this keeps the contenders sorted as the same module sorts them, and asks it about the
two neighbours that matter: the nearest before, and oneself.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import replace

from coordinator.service.replica import MachineReplica
from coordinator.state.commands import Command
from coordinator.state.events import EventType
from coordinator.state.outcomes import Outcome
from recipes.contention import Standing, holder, sequence_of, standing

_SHORT_LENGTH = 32
_QUEUES_MAX = 1_000


class Order:
    """The places in every queue, as of the state applied here."""

    def __init__(self, replica: MachineReplica) -> None:
        self._replica = replica
        self._sorted: dict[str, list[tuple[int, str]]] = {}  # of long queues that were asked for

    def standing(self, directory: str, name: str) -> Standing:
        """Return where the contender ``name`` stands in the queue ``directory``."""
        contenders = self._long(directory)
        if contenders is None:
            return standing(self._replica.machine.children(directory) or (), name)
        number = sequence_of(name)
        at = bisect_left(contenders, (number or 0, name))
        if number is None or at == len(contenders) or contenders[at] != (number, name):
            return standing((), name)
        before = contenders[at - 1 : at]
        decided = standing([*(each for _, each in before), name], name)
        return replace(decided, position=at)

    def holder(self, directory: str) -> str | None:
        """Return the name of who holds; None when nobody contends."""
        contenders = self._long(directory)
        if contenders is None:
            return holder(self._replica.machine.children(directory) or ())
        return holder(name for _, name in contenders[:1])

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        if not self._sorted or outcome.is_repeat:
            return
        for event in outcome.events:
            if event.type is EventType.DATA_CHANGED:
                continue
            directory, _, name = event.path.rpartition("/")
            contenders = self._sorted.get(directory)
            number = sequence_of(name)
            if contenders is None or number is None:
                continue
            if event.type is EventType.CREATED:
                insort(contenders, (number, name))
            else:
                del contenders[bisect_left(contenders, (number, name))]
                if len(contenders) < _SHORT_LENGTH:
                    del self._sorted[directory]

    def on_restore(self) -> None:
        self._sorted.clear()

    def _long(self, directory: str) -> list[tuple[int, str]] | None:
        """Return the sorted contenders of a long queue, None for a short one."""
        contenders = self._sorted.get(directory)
        if contenders is not None:
            return contenders
        machine = self._replica.machine
        stat = machine.stat(directory)
        if stat is None or stat.num_children <= _SHORT_LENGTH:
            return None
        contenders = sorted(
            (number, name)
            for name in machine.children(directory) or ()
            if (number := sequence_of(name)) is not None
        )
        if len(self._sorted) >= _QUEUES_MAX:
            del self._sorted[next(iter(self._sorted))]
        self._sorted[directory] = contenders
        return contenders
