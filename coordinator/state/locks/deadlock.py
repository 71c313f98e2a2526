"""The check for deadlocks: whether an attempt could ever be granted, decided before it waits.

An *owner* (a session and the name it gave to a task or thread; a contender without a name is an
owner of its own, and so is an unnamed multi-lock) waits while any of its contenders does not hold.
An owner that waits for nothing can go on and release everything; what that grants lets others go
on. An owner that this never reaches is in a deadlock.

1. The state never holds a deadlock: an attempt, or a smaller size, that would make one is refused.
   So an attempt is refused only for a cycle that it would close itself.
2. Exact for shared locks, slots (any of several may be released) and multi-locks (all are needed).
   Contenders that merely wait for the same lock are no cycle.
3. Lock-delays end by themselves and are ignored here. Maximum holds are not counted on: a holder
   that loses its lock has not released it.
4. Cost: one look for an owner with no other contender; the shorter end of a possible cycle, mostly;
   else what can be reached from it, each contender once. If that is more than
   ``deadlock_search_max``, the attempt is refused: whether it would deadlock is not known.
5. Everything is walked in a defined order; the cycle that is named is a shortest one.

Source: reduction of the wait-for graph (Holt 1972, "Some Deadlock Properties of Computer Systems").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from coordinator.errors import DeadlockError, QuotaExceededError
from coordinator.state.commands import Enter, Kind
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.locks.queue import Queue
from coordinator.state.locks.queues import LockTable
from coordinator.state.paths import parent_of

CYCLE_SHOWN_MAX: Final = 16
_SCANNED_EACH: Final = 10
"""How many contenders are scanned at the cost of one that is looked at."""

Owner = tuple[str, ...]
"""Session and name of an owner; the first path alone of an unnamed one."""


def owner_of(contender: ContenderRecord) -> Owner:
    """Return who acts for ``contender``: its owner, else its group or itself."""
    if contender.owner:
        return (contender.session_id, contender.owner)
    return (contender.group[0] if contender.group else contender.path,)


def check_entry(table: LockTable, operation: Enter) -> None:
    """Refuse an attempt that would never be granted.

    Raises:
        DeadlockError: it would not; ``cycle`` says who waits for whom.
        QuotaExceededError: it may, and to know it takes too long.
    """
    owner = (operation.session_id, operation.owner)
    standing = sorted(table.owners.get(owner, ())) if operation.owner else []
    is_there = False
    for path in standing:
        contender = table.contenders[path]
        if parent_of(path) in operation.directories:
            _check_own(contender, operation)
            is_there = True
    if standing and (is_there or _may_close_a_cycle(table, standing, operation.directories)):
        reduction = _Reduction(table, {}, f"enter {operation.directories[0]}")
        reduction.enter(owner, operation.directories, operation.kind)
        _check(reduction, [owner])


def _may_close_a_cycle(table: LockTable, standing: list[str], directories: tuple[str, ...]) -> bool:
    """Whether a look at both ends allows a cycle; False is certain, and what is found mostly.

    A cycle leaves by the queues that are entered and comes back by those who wait behind our own
    contenders; at neither end can it go through an owner in that one queue only.
    """
    behind: list[tuple[Queue, int]] = []
    for path in standing:
        contender = table.contenders[path]
        queue = table.queues[parent_of(path)]
        if queue.held < len(queue.contenders):
            behind.append((queue, max(queue.held, queue.index(contender.number, path) + 1)))
    queues = [table.queues.get(directory) for directory in directories]
    ahead = [(queue, 0) for queue in queues if queue is not None]
    for end in sorted([behind, ahead], key=_length):
        if not any(_stands_elsewhere(table, queue, start) for queue, start in end):
            return False
    return True


def _length(end: list[tuple[Queue, int]]) -> int:
    return sum([len(queue.contenders) - start for queue, start in end])


def _stands_elsewhere(table: LockTable, queue: Queue, start: int) -> bool:
    """Whether an owner in the queue, from ``start`` on, is in another one as well.

    Nobody looks through a queue that is far too long: then it may be so."""
    if len(queue.contenders) - start > _SCANNED_EACH * table.limits.deadlock_search_max:
        return True
    for at in range(start, len(queue.contenders)):
        if _has_others(table, table.contenders[queue.contenders[at][1]]):
            return True
    return False


def _has_others(table: LockTable, contender: ContenderRecord) -> bool:
    """Whether the owner of a contender has other ones."""
    if contender.group:
        return True
    owner, session_id = contender.owner, contender.session_id
    return bool(owner) and len(table.owners[session_id, owner]) > 1


def check_resize(table: LockTable, directory: str, size: int) -> None:
    """Refuse a smaller size if a contender for a slot could then never be granted."""
    queue = table.queues.get(directory)
    if queue is None or size >= table.sizes.get(directory, 1):
        return
    reduction = _Reduction(table, {directory: size}, f"resize {directory}")
    behind = [table.contenders[path] for _, path in queue.contenders[queue.held :]]
    # A contender that is leaving waits for nothing. And one that is in this queue alone can be in a
    # deadlock only if one that is in another queue as well is.
    waiting = [
        owner_of(each)
        for each in behind
        if _has_others(table, each) and each.session_id not in table.leaving
    ]
    for owner in waiting:
        reduction.add(owner)
    _check(reduction, waiting)


def _check_own(contender: ContenderRecord, operation: Enter) -> None:
    """Refuse what an owner could only wait for itself for, with words for each case."""
    kind = operation.kind
    if contender.kind is kind and kind is not Kind.EXCLUSIVE:
        return
    name = _name(contender.directory)
    verb = "holds" if contender.is_holder else "waits for"
    if contender.kind is kind:
        advice = "a lock is not reentrant: count in the client, or use another owner"
    elif contender.kind is Kind.SHARED and kind is Kind.EXCLUSIVE:
        advice = "there is no upgrade: release the shared grant first"
    elif contender.kind is Kind.EXCLUSIVE and kind is Kind.SHARED:
        advice = "downgrade the exclusive grant, or release it first"
    else:
        advice = "release that first"
    raise DeadlockError(
        f"enter {contender.directory}: {operation.owner!a} of session {operation.session_id} "
        f"{verb} {name!r} ({contender.kind.value}) already and would wait for itself; {advice}",
        cycle=(
            {
                "owner": operation.owner,
                "session_id": operation.session_id,
                "holds": name,
                "waits_for": name,
            },
        ),
        cycle_length=1,
        path=contender.path,
    )


def _check(reduction: _Reduction, owners: list[Owner]) -> None:
    """Refuse if one of these could never go on."""
    reduction.run()
    blocked = next((owner for owner in owners if not reduction.is_free(owner)), None)
    if blocked is None:
        return
    cycle = reduction.cycle(blocked)
    shown = cycle[:CYCLE_SHOWN_MAX]
    lines = [f"{each.shown} waits for {_name(each.waits_for)!r}" for each in shown]
    if len(cycle) > len(shown):
        lines.append(f"and {len(cycle) - len(shown)} more do")
    raise DeadlockError(
        f"{reduction.what}: deadlock: {'; '.join(lines)}",
        cycle=tuple(
            [
                {
                    "owner": each.owner,
                    "session_id": each.session_id,
                    "holds": _name(each.holds),
                    "waits_for": _name(each.waits_for),
                }
                for each in shown
            ]
        ),
        cycle_length=len(cycle),
    )


def _name(directory: str) -> str:
    return unquote(directory.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Blocked:
    """One owner of a cycle: it holds ``holds``, or is queued ahead there, and waits elsewhere."""

    owner: str
    session_id: str
    holds: str
    is_holder: bool
    waits_for: str

    @property
    def shown(self) -> str:
        """Describe it for the message of a deadlock."""
        name = f"{self.owner!a}" if self.owner else "a contender without owner"
        how = "holds" if self.is_holder else "is queued ahead in"
        return f"{name} of session {self.session_id} ({how} {_name(self.holds)!r})"


class _Line:
    """One queue of the reduction, as far as contenders that matter are in it.

    All before ``at`` have been granted; ``live`` of them are not released yet.
    """

    __slots__ = ("at", "kind", "live", "looked_at", "places", "size")

    def __init__(self, size: int) -> None:
        self.looked_at = 0
        """How many of the queue were looked at, those of ended sessions too."""
        self.places: list[tuple[Owner, Kind]] = []
        self.at = 0
        self.live = 0
        self.kind = Kind.EXCLUSIVE
        self.size = size

    def may_take_next(self) -> bool:
        if self.at == len(self.places):
            return False
        if self.live == 0:
            return True
        kind = self.places[self.at][1]
        if kind is not self.kind or kind is Kind.EXCLUSIVE:
            return False
        return kind is Kind.SHARED or self.live < self.size


class _Reduction:
    """Lets everybody who can go on give everything back, until nobody is left who can."""

    def __init__(self, table: LockTable, sizes: dict[str, int], what: str) -> None:
        self._table = table
        self.what = what
        self._left = table.limits.deadlock_search_max
        self._sizes = sizes
        """The sizes that are to be set; they count before those that are set."""
        self._lines: dict[str, _Line] = {}
        self._waits: dict[Owner, int] = {}
        """How many of its contenders do not hold yet; 0 for one that can go on."""
        self._standing: dict[Owner, list[str]] = {}
        """The lines in which an owner has a place, one for each place."""
        self._going: deque[Owner] = deque()

    # --- what can be reached

    def enter(self, owner: Owner, directories: tuple[str, ...], kind: Kind) -> None:
        """Add an owner with an attempt that is to stand last in these queues."""
        self.add(owner)
        for directory in directories:
            queue = self._table.queues.get(directory)
            self._expand(self._reach(directory, 0 if queue is None else len(queue.contenders)))
        for directory in directories:
            self._lines[directory].places.append((owner, kind))
            self._standing[owner].append(directory)
        self._waits[owner] += len(directories)

    def add(self, owner: Owner) -> None:
        """Add an owner with all that it waits for, and all that are before it there."""
        if owner not in self._waits:
            self._note(owner)
            self._expand([owner])

    def _expand(self, found: list[Owner]) -> None:
        while found:
            for contender in self._contenders(found.pop()):
                if not contender.is_holder:
                    queue = self._table.queues[contender.directory]
                    upto = queue.index(contender.number, contender.path) + 1
                    found += self._reach(contender.directory, upto)

    def _note(self, owner: Owner) -> None:
        self._waits[owner] = [each.is_holder for each in self._contenders(owner)].count(False)
        self._standing[owner] = []

    def _reach(self, directory: str, upto: int) -> list[Owner]:
        """Take in the first ``upto`` of a queue; return the owners not seen before."""
        line = self._lines.get(directory)
        if line is None:
            size = self._sizes.get(directory) or self._table.sizes.get(directory, 1)
            line = self._lines[directory] = _Line(size)
        queue = self._table.queues.get(directory)
        found: list[Owner] = []
        for at in range(line.looked_at, upto):
            assert queue is not None, "an owner is queued in it"
            line.looked_at = at + 1
            self._left -= 1
            if self._left < 0:
                raise self._too_many()
            contender = self._table.contenders[queue.contenders[at][1]]
            if contender.session_id in self._table.leaving:
                continue  # it goes by itself
            owner = owner_of(contender)
            if owner not in self._waits:
                found.append(owner)
                self._note(owner)
            line.places.append((owner, contender.kind))
            self._standing[owner].append(directory)
            if contender.is_holder:
                line.at += 1
                line.live += 1
                line.kind = contender.kind
        return found

    def _too_many(self) -> QuotaExceededError:
        maximum = self._table.limits.deadlock_search_max
        return QuotaExceededError(
            f"{self.what}: expected to know that nobody would wait for ever after a look at "
            f"{maximum} contenders, found more: release what is held first, or raise "
            "deadlock_search_max",
            limit="deadlock_search_max",
            maximum=maximum,
        )

    def _contenders(self, owner: Owner) -> list[ContenderRecord]:
        contenders = self._table.contenders
        if len(owner) > 1:
            paths: list[str] = sorted(self._table.owners.get((owner[0], owner[1]), ()))
            return [contenders[path] for path in paths]
        first = contenders[owner[0]]
        return [contenders[path] for path in first.group or (first.path,)]

    # --- the reduction

    def run(self) -> None:
        self._going.extend(owner for owner, waits in self._waits.items() if waits == 0)
        for line in self._lines.values():
            self._grant(line)
        while self._going:
            for directory in self._standing[self._going.popleft()]:
                line = self._lines[directory]
                line.live -= 1
                self._grant(line)

    def _grant(self, line: _Line) -> None:
        while line.may_take_next():
            owner, line.kind = line.places[line.at]
            line.at += 1
            line.live += 1
            self._waits[owner] -= 1
            if self._waits[owner] == 0:
                self._going.append(owner)

    def is_free(self, owner: Owner) -> bool:
        return self._waits[owner] == 0

    # --- the cycle

    def cycle(self, start: Owner) -> list[Blocked]:
        """Return a shortest cycle through ``start``.

        The owner that asks, and the first of a blocked queue, are on one: each contender behind it
        in that queue waits for it, too. Empty if that were ever not so.
        """
        came: dict[Owner, tuple[Owner, str]] = {}
        scanned: dict[tuple[str, bool], int] = {}
        looking = deque([start])
        while looking and start not in came:
            owner = looking.popleft()
            for before, directory in self._before(owner, scanned):
                if before not in came:
                    came[before] = (owner, directory)
                    looking.append(before)
        if start not in came:
            return []
        edges: list[tuple[Owner, str]] = []
        owner = start
        while not edges or owner != start:
            owner, directory = came[owner]
            edges.append((owner, directory))
        edges.reverse()
        return self._told(edges)

    def _before(
        self, owner: Owner, scanned: dict[tuple[str, bool], int]
    ) -> Iterator[tuple[Owner, str]]:
        """Iterate over the blocked whom ``owner`` waits for, each place of a line but once."""
        for directory in self._standing[owner]:
            line = self._lines[directory]
            for at in range(line.at, len(line.places)):
                if line.places[at][0] != owner:
                    continue
                is_shared = line.places[at][1] is Kind.SHARED
                for place in range(scanned.get((directory, is_shared), 0), at):
                    before, kind = line.places[place]
                    if self._waits[before] and not (is_shared and kind is Kind.SHARED):
                        yield before, directory
                scanned[directory, is_shared] = max(at, scanned.get((directory, is_shared), 0))

    def _told(self, edges: list[tuple[Owner, str]]) -> list[Blocked]:
        found: list[Blocked] = []
        holds = edges[-1][1]
        for owner, directory in edges:
            if len(owner) > 1:
                session_id, name = owner[0], owner[1]
            else:
                session_id, name = self._table.contenders[owner[0]].session_id, ""
            is_holder = any(
                each.is_holder and each.directory == holds for each in self._contenders(owner)
            )
            found.append(Blocked(name, session_id, holds, is_holder, directory))
            holds = directory
        return found
