"""The history of grants: who held what, from when to when, and how it ended. Bounded.

1. A grant enters the history when it ends; what is held now is in the contenders' records, and
   a query shows both as one list.
2. Grants are numbered in the order in which they were granted; the number is the place to go on
   from in a long list.
3. ``count_max`` and ``bytes_max`` bound what is kept; each text and note in it is bounded where it
   comes in. A wait that ended without a grant is not history. ``limits`` says what happens when
   one is lowered.
4. Beyond those bounds the oldest goes. But if an owner has more than ``percent_max`` of all, the
   history of the queue in which its oldest is goes first, from its begin: so no owner pushes out
   what others did in other queues, and of one queue nothing is left out in between. An owner is an
   identity; where there is none, a queue.
5. The times are labels for people, as given by the proposers; order is that of the zxids.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from coordinator.model.limits import MachineLimits
from coordinator.state.commands import Kind
from coordinator.state.emptying import emptied
from coordinator.state.limits import DROPPED_AT_ONCE
from coordinator.state.locks.contender import ContenderRecord, EndedGrant, Ending
from coordinator.state.locks.end_order import EndOrder
from coordinator.state.locks.grant_order import GrantOrder, number_of
from coordinator.state.paths import parent_of
from coordinator.state.thread_breaks import with_breaks

_GRANT_BYTES: Final = 512
_ENDED_ZXID: Final = attrgetter("ended_zxid")
LIMIT_DEFAULT: Final = 1_000


class KeptGrant(NamedTuple):
    """One acquisition, as it is shown. The fields that begin with ``ended`` are None while held."""

    number: int
    directory: str
    path: str
    czxid: int
    """Its fencing token, and the zxid at which it entered the queue."""
    kind: Kind
    session_id: str
    owner: str
    data: bytes
    note: bytes
    group: tuple[str, ...]
    entered_ms: int
    granted_zxid: int
    granted_ms: int
    ended_zxid: int | None = None
    ended_ms: int | None = None
    how: Ending = Ending.HELD
    by: str = ""
    reason: str = ""
    silent_ms: int = 0
    term: int = 0
    next_token: int | None = None
    """The token of the next grant of the same queue, given when this one ended or later."""

    @property
    def fencing_token(self) -> int:
        """The token of the grant."""
        return self.czxid

    @property
    def entered_zxid(self) -> int:
        """The zxid at which its contender entered the queue."""
        return self.czxid

    @classmethod
    def of(
        cls, contender: ContenderRecord, ended: EndedGrant | None, next_token: int | None
    ) -> KeptGrant:
        """Return the grant of a contender that holds, or that ended so."""
        granted_zxid = contender.granted_zxid
        assert granted_zxid is not None, "it holds, or did"
        end: tuple[Any, ...] = ()
        if ended is not None:
            how, term, by, reason, silent_ms = ended.departure.row()
            end = (
                ended.ended_zxid, ended.ended_ms, how, by, reason, silent_ms, term, next_token,
            )  # fmt: skip
        return cls(
            contender.grant_number, parent_of(contender.path), contender.path, contender.czxid,
            contender.kind, contender.session_id, contender.owner, contender.data, contender.note,
            contender.group, contender.entered_ms, granted_zxid, contender.granted_ms, *end,
        )  # fmt: skip


class GrantQuery(NamedTuple):
    """Which grants are asked for; None asks for all. ``after`` is a grant's number."""

    directory: str | None = None
    session_id: str | None = None
    token: int | None = None
    since_ms: int | None = None
    """Held at this wall time or later."""
    until_ms: int | None = None
    """Held at this wall time or earlier."""
    how: Ending | None = None
    after: int = 0
    limit: int = LIMIT_DEFAULT

    def among(self, grants: list[GrantAndEnd]) -> list[GrantAndEnd]:
        """Return those of ``grants`` that are asked for, from whichever queue they are.

        Each condition looks only at what those before it have left.
        """
        _, session_id, token, since_ms, until_ms, how, after, _ = self
        if after:
            grants = [each for each in grants if each[0].grant_number > after]
        if token is not None:
            grants = [each for each in grants if each[0].czxid == token]
        if session_id is not None:
            grants = [each for each in grants if each[0].session_id == session_id]
        if since_ms is not None:
            grants = [each for each in grants if each[1] is None or each[1].ended_ms >= since_ms]
        if until_ms is not None:
            grants = [each for each in grants if each[0].granted_ms <= until_ms]
        if how is not None:
            grants = [each for each in grants if how is _how(each)]
        return grants


GrantAndEnd = tuple[ContenderRecord, EndedGrant | None]
"""A grant that may be shown: its contender, and its end if it has ended."""


class _QueueEnds:
    """The ended grants of one queue, in the order of their ends and in that of the grants."""

    __slots__ = ("ends", "order")

    def __init__(self) -> None:
        self.ends: deque[EndedGrant] = deque()
        self.order = GrantOrder()


class KeptGrants:
    """The last grants that ended, in the order of their ends; also those of each queue."""

    def __init__(self, limits: MachineLimits, ended: Iterable[EndedGrant] = ()) -> None:
        self.use(limits)
        self._ended = EndOrder()
        self._order = GrantOrder()
        self._of_owner: dict[str, EndOrder] = {}
        self._by_count: dict[int, dict[str, None]] = {}
        """The owners by how many grants they have here."""
        self._most = 0
        """How many the owner has that has most."""
        self._of_queue: dict[str, _QueueEnds] = {}
        self._bytes = 0
        for each in with_breaks(ended):
            self._keep(each, parent_of(each.contender.path))

    def use(self, limits: MachineLimits) -> None:
        """Keep as much as ``limits`` say from now on."""
        self.count_max = limits.grant_history_max
        self.bytes_max = limits.grant_history_bytes_max
        self.percent_max = limits.remembered_percent_max

    def __len__(self) -> int:
        return len(self._ended)

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def add(self, ended: EndedGrant, directory: str) -> None:
        """Keep a grant of the queue ``directory`` that has ended; drop others beyond the limits,
        or this one."""
        self._keep(ended, directory)
        left = DROPPED_AT_ONCE
        while left and (len(self._ended) > self.count_max or self._bytes > self.bytes_max):
            self._drop(self._next_to_go())
            left -= 1

    def _next_to_go(self) -> EndedGrant:
        """Return what goes first."""
        if self._most * 100 <= self.percent_max * len(self._ended):
            return self._ended.first()
        # They are few: each has more than its share.
        oldest = min([self._of_owner[each].first() for each in self._by_count[self._most]],
                     key=_place_of)  # fmt: skip
        return self._of_queue[parent_of(oldest.contender.path)].ends[0]

    def _keep(self, ended: EndedGrant, directory: str) -> None:
        number = ended.contender.grant_number
        self._order.add(ended, number)
        self._ended.add(ended)
        owner = _owner_of(ended)
        of_owner = self._of_owner.get(owner)
        if of_owner is None:
            of_owner = self._of_owner[owner] = EndOrder()
        of_owner.add(ended)
        self._recount(owner, len(of_owner) - 1, len(of_owner))
        of_queue = self._of_queue.get(directory)
        if of_queue is None:
            of_queue = self._of_queue[directory] = _QueueEnds()
        of_queue.ends.append(ended)
        of_queue.order.add(ended, number)
        self._bytes += _bytes_of(ended)

    def _drop(self, ended: EndedGrant) -> None:
        """Forget the oldest of a queue."""
        self._ended.remove(ended)
        self._order.remove(ended)
        self._bytes -= _bytes_of(ended)
        directory, owner = parent_of(ended.contender.path), _owner_of(ended)
        of_queue = self._of_queue[directory]
        of_queue.ends.popleft()
        of_queue.order.remove(ended)
        if not of_queue.ends:
            del self._of_queue[directory]
        of_owner = self._of_owner[owner]
        of_owner.remove(ended)
        self._recount(owner, len(of_owner) + 1, len(of_owner))
        if not of_owner:
            del self._of_owner[owner]

    def _recount(self, owner: str, before: int, count: int) -> None:
        """Note that an owner has ``count``, one more or less than ``before``."""
        by_count = self._by_count
        if before:
            alike = by_count[before]
            del alike[owner]
            if not alike:
                del by_count[before]
        if count:
            by_count.setdefault(count, {})[owner] = None
        if count > self._most or (before == self._most and before not in by_count):
            self._most = count

    def _ends_of(self, directory: str) -> Sequence[EndedGrant]:
        of_queue = self._of_queue.get(directory)
        return () if of_queue is None else of_queue.ends

    def directories(self) -> tuple[str, ...]:
        """Return the queues that a kept grant is of."""
        return tuple(self._of_queue)

    def last_of(self, directory: str) -> EndedGrant | None:
        """Return the end of the queue's grant that ended last, None when none is known."""
        ends = self._ends_of(directory)
        return ends[-1] if ends else None

    def latest(self, directory: str, count_max: int) -> list[EndedGrant]:
        """Return the latest ends of a queue, the last first."""
        return list(islice(reversed(self._ends_of(directory)), count_max))

    def __iter__(self) -> Iterator[KeptGrant]:
        """Iterate over all grants, in the order of their ends."""
        for each in self._ended:
            yield KeptGrant.of(each.contender, each, None)

    def latest_first(self) -> Iterator[EndedGrant]:
        """Return the ended grants, the latest first."""
        return reversed(self._ended)

    def is_of_queue(self, ended: EndedGrant) -> bool:
        """Whether that end of a grant is among those of its queue, in its place in each order."""
        directory = parent_of(ended.contender.path)
        if not (self._order.has(ended) and self._order_of(directory).has(ended)):
            return False
        of_queue = self._ends_of(directory)
        at = bisect_left(of_queue, ended.ended_zxid, key=_ENDED_ZXID)
        for each in islice(of_queue, at, None):
            if each is ended or each == ended:
                return True
            if each.ended_zxid != ended.ended_zxid:
                return False
        return False

    def counts(self) -> tuple[int, ...]:
        """Return the limits, and how much is in each table."""
        return (
            self.count_max, self.bytes_max, len(self._ended), self._bytes, len(self._of_queue),
        )  # fmt: skip

    def capture(self) -> tuple[EndedGrant, ...]:
        """Return the ended grants as they are now, the oldest first."""
        return tuple(self._ended)

    def emptied(self) -> Iterator[None]:
        """Empty a history that is no longer used, by one value at each step."""
        self._order = GrantOrder()
        for each in self._of_owner.values():
            yield from each.emptied()
        yield from self._ended.emptied()
        yield from emptied(self._of_queue, self._by_count)

    def behind(self, directory: str | None, number: int, count: int) -> list[EndedGrant]:
        """Return the first ``count`` ended grants behind a number, of one queue or of all.

        They are in the order of the grants, and nothing else is looked at."""
        order = self._order_of(directory)
        return list(islice(order.since(number + 1, number_of), count))

    def with_token(self, directory: str, token: int) -> EndedGrant | None:
        """Return the ended grant of a queue with this token, None when there is none."""
        found = next(self._order_of(directory).since(token, _token_of), None)
        return found if found is not None and found.contender.czxid == token else None

    def granted_since(self, directory: str, zxid: int) -> ContenderRecord | None:
        """Return the first who was granted a queue at ``zxid`` or later, of those that ended."""
        found = next(self._order_of(directory).since(zxid, _granted_zxid_of), None)
        return None if found is None else found.contender

    def _order_of(self, directory: str | None) -> GrantOrder:
        if directory is None:
            return self._order
        of_queue = self._of_queue.get(directory)
        return _NOTHING if of_queue is None else of_queue.order


_NOTHING: Final = GrantOrder()


def _token_of(ended: EndedGrant) -> int:
    return ended.contender.czxid


def _granted_zxid_of(ended: EndedGrant) -> int:
    granted_zxid = ended.contender.granted_zxid
    assert granted_zxid is not None, "it has held"
    return granted_zxid


def _owner_of(ended: EndedGrant) -> str:
    contender = ended.contender
    return contender.identity or parent_of(contender.path)


def _place_of(ended: EndedGrant) -> tuple[int, int]:
    return ended.ended_zxid, ended.contender.grant_number


def _how(each: GrantAndEnd) -> Ending:
    ended = each[1]
    return Ending.HELD if ended is None else ended.departure.how


def _bytes_of(ended: EndedGrant) -> int:
    """Return a fixed estimate of the memory of a grant that ended."""
    contender = ended.contender
    total = _GRANT_BYTES + len(contender.path) + len(contender.data) + len(contender.note)
    total += len(ended.departure.by) + len(ended.departure.reason)
    for path in contender.group:
        total += len(path)
    return total
