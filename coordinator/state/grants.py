"""The history of grants: who held what, from when to when, and how it ended. Bounded, oldest out.

1. A grant enters the history when it ends; what is held now is told by the contenders' records, and
   a query shows both as one list.
2. Grants are numbered in the order in which they were granted; the number is the place to go on
   from in a long list.
3. ``count_max`` and ``bytes_max`` bound what is kept; each text and note in it is bounded where it
   comes in. A wait that ended without a grant is not history.
4. The times are labels for people, as told by the proposers; order is that of the zxids.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator.state.commands import Kind
from coordinator.state.places import Contender, Departure, Ending

_GRANT_BYTES = 512
LIMIT_DEFAULT = 1_000


class Ended(NamedTuple):
    """A grant as it is kept: the contender as it was at the end, and how it went."""

    contender: Contender
    ended_zxid: int
    ended_ms: int
    departure: Departure


class Grant(NamedTuple):
    """One acquisition, as it is told. The fields that begin with ``ended`` are None while held."""

    number: int
    directory: str
    path: str
    czxid: int
    """Its fencing token, and the zxid at which it entered the queue."""
    kind: Kind
    session_id: str | None
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
        return self.czxid

    @property
    def entered_zxid(self) -> int:
        return self.czxid

    @classmethod
    def of(cls, contender: Contender, ended: Ended | None, next_token: int | None) -> Grant:
        """Return the grant of a contender that holds, or that ended so."""
        granted_zxid = contender.granted_zxid
        assert granted_zxid is not None, "it holds, or did"
        grant = cls(
            contender.grant_number, contender.directory, contender.path, contender.czxid,
            contender.kind, contender.session_id, contender.owner, contender.data, contender.note,
            contender.group, contender.entered_ms, granted_zxid, contender.granted_ms,
        )  # fmt: skip
        if ended is None:
            return grant
        how, term, by, reason, silent_ms = ended.departure
        return grant._replace(
            ended_zxid=ended.ended_zxid,
            ended_ms=ended.ended_ms,
            how=how,
            by=by,
            reason=reason,
            silent_ms=silent_ms,
            term=term,
            next_token=next_token,
        )


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

    def wants(self, contender: Contender, ended: Ended | None) -> bool:
        return (
            contender.grant_number > self.after
            and (self.directory is None or contender.directory == self.directory)
            and (self.session_id is None or contender.session_id == self.session_id)
            and (self.token is None or contender.czxid == self.token)
            and (self.since_ms is None or ended is None or ended.ended_ms >= self.since_ms)
            and (self.until_ms is None or contender.granted_ms <= self.until_ms)
            and (self.how is None or self.how is (ended.departure.how if ended else Ending.HELD))
        )


class GrantHistory:
    """The last grants that ended, in the order of their ends."""

    def __init__(self, *, count_max: int, bytes_max: int, ended: Iterable[Ended] = ()) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._ended: deque[Ended] = deque()
        self._last: dict[str, Ended] = {}
        self._bytes = 0
        for each in ended:
            self.add(each)

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, ended: Ended) -> None:
        """Keep a grant that has ended; drop the oldest beyond the limits, this one too."""
        kept, last = self._ended, self._last
        kept.append(ended)
        last[ended.contender.directory] = ended
        self._bytes += _bytes_of(ended)
        while len(kept) > self._count_max or self._bytes > self._bytes_max:
            oldest = kept.popleft()
            self._bytes -= _bytes_of(oldest)
            if last.get(oldest.contender.directory) is oldest:
                del last[oldest.contender.directory]

    def last_of(self, directory: str) -> Grant | None:
        """Return the grant of the queue that ended last, None when none is known."""
        last = self._last.get(directory)
        return None if last is None else Grant.of(last.contender, last, None)

    def of(self, directory: str | None) -> Iterator[Grant]:
        """Iterate over the grants of one queue, or of all, in the order of their ends."""
        for each in self._ended:
            if directory in (None, each.contender.directory):
                yield Grant.of(each.contender, each, None)

    def ended_at(self, zxid: int) -> Iterator[Grant]:
        """Iterate over the grants that the latest command ended, if that was ``zxid``."""
        for each in reversed(self._ended):
            if each.ended_zxid != zxid:
                return
            yield Grant.of(each.contender, each, None)

    def capture(self) -> tuple[Ended, ...]:
        return tuple(self._ended)

    def find(self, query: GrantQuery, held: Iterable[Contender]) -> tuple[Grant, ...]:
        """Return what ``query`` asks for, in the order of the grants; ``held`` are those of now."""
        every: list[tuple[Contender, Ended | None]] = [(each, None) for each in held]
        every += [(each.contender, each) for each in self._ended]
        every.sort(key=_number_of)
        wanted = [each for each in every if query.wants(*each)][: max(query.limit, 0)]
        grants_of: dict[str, list[Contender]] = {each.directory: [] for each, _ in wanted}
        for contender, _ in every:
            grants = grants_of.get(contender.directory)
            if grants is not None:
                grants.append(contender)
        return tuple(
            [
                Grant.of(each, ended, ended and _next_token(ended, grants_of[each.directory]))
                for each, ended in wanted
            ]
        )


def _number_of(each: tuple[Contender, Ended | None]) -> int:
    return each[0].grant_number


def _granted_zxid(contender: Contender) -> int:
    assert contender.granted_zxid is not None, "it holds, or did"
    return contender.granted_zxid


def _next_token(ended: Ended, grants: list[Contender]) -> int | None:
    """Return the token of the first of a queue's ``grants``, in order, from this one's end on."""
    at = bisect_left(grants, ended.ended_zxid, key=_granted_zxid)
    return grants[at].czxid if at < len(grants) else None


def _bytes_of(ended: Ended) -> int:
    """Return a fixed estimate of the memory of a grant that ended."""
    contender = ended.contender
    total = _GRANT_BYTES + len(contender.path) + len(contender.data) + len(contender.note)
    total += len(ended.departure.by) + len(ended.departure.reason)
    for path in contender.group:
        total += len(path)
    return total
