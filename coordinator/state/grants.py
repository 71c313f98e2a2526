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

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from coordinator.state.commands import Kind

_GRANT_BYTES = 512
LIMIT_DEFAULT = 1_000


class Ending(StrEnum):
    """How a grant ended; HELD is not ended."""

    HELD = ""
    RELEASED = "released"
    CLOSED = "closed"
    """Its session was closed by its client."""
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    DELETED = "deleted"
    """Its znode was deleted over the tree."""
    FORCED = "forced"
    MAX_HOLD = "max_hold"


class Grant(NamedTuple):
    """One acquisition. ``session_id`` is None for a znode that outlives sessions."""

    number: int
    directory: str
    path: str
    czxid: int
    """Its fencing token, and the zxid at which it entered the queue."""
    kind: Kind
    session_id: str | None
    owner: str
    data: bytes
    """As it was when it entered; empty when it was too long to be kept."""
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
    """For how long the leader had not heard of the session when it expired."""
    term: int = 0
    """The term of the entry that ended it."""
    next_token: int | None = None
    """The token of the next grant of the same queue behind this one; found when it is asked for."""

    @property
    def fencing_token(self) -> int:
        return self.czxid

    @property
    def entered_zxid(self) -> int:
        return self.czxid


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

    def wants(self, grant: Grant) -> bool:
        ended_ms = grant.ended_ms
        return (
            grant.number > self.after
            and (self.directory is None or grant.directory == self.directory)
            and (self.session_id is None or grant.session_id == self.session_id)
            and (self.token is None or grant.czxid == self.token)
            and (self.since_ms is None or ended_ms is None or ended_ms >= self.since_ms)
            and (self.until_ms is None or grant.granted_ms <= self.until_ms)
            and (self.how is None or grant.how is self.how)
        )


class GrantHistory:
    """The last grants that ended, in the order of their ends."""

    def __init__(self, *, count_max: int, bytes_max: int, ended: Iterable[Grant] = ()) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._ended: deque[Grant] = deque()
        self._last: dict[str, Grant] = {}
        self._bytes = 0
        for grant in ended:
            self.add(grant)

    def __len__(self) -> int:
        return len(self._ended)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._ended)

    def add(self, grant: Grant) -> None:
        """Keep a grant that has ended; drop the oldest beyond the limits."""
        ended, last = self._ended, self._last
        ended.append(grant)
        last[grant.directory] = grant
        self._bytes += _bytes_of(grant)
        while len(ended) > self._count_max or (self._bytes > self._bytes_max and len(ended) > 1):
            oldest = ended.popleft()
            self._bytes -= _bytes_of(oldest)
            if last.get(oldest.directory) is oldest:
                del last[oldest.directory]

    def last_of(self, directory: str) -> Grant | None:
        """Return the grant of the queue that ended last, None when none is known."""
        return self._last.get(directory)

    def ended_at(self, zxid: int) -> Iterator[Grant]:
        """Iterate over the grants that the latest command ended, if that was ``zxid``."""
        for grant in reversed(self._ended):
            if grant.ended_zxid != zxid:
                return
            yield grant

    def capture(self) -> tuple[Grant, ...]:
        return tuple(self._ended)

    def find(self, query: GrantQuery, held: Callable[[], Iterable[Grant]]) -> tuple[Grant, ...]:
        """Return what ``query`` asks for, in the order of the grants; ``held`` are those of now."""
        every = sorted([*self._ended, *held()])
        next_of: dict[str, list[Grant]] = {}
        found: list[Grant] = []
        for grant in reversed(every):
            later = next_of.setdefault(grant.directory, [])
            if query.wants(grant):
                found.append(grant._replace(next_token=_next_token(grant, later)))
            later.append(grant)
        found.reverse()
        return tuple(found[: max(query.limit, 0)])


def _next_token(grant: Grant, later: list[Grant]) -> int | None:
    """Return the token of the first of ``later``, latest first, that was granted at its end."""
    if grant.ended_zxid is None:
        return None
    token = None
    for each in reversed(later):
        if each.granted_zxid >= grant.ended_zxid:
            token = each.czxid
            break
    return token


def _bytes_of(grant: Grant) -> int:
    """Return a fixed estimate of the memory of a grant."""
    return (
        _GRANT_BYTES
        + 2 * len(grant.path)
        + len(grant.data)
        + len(grant.note)
        + len(grant.reason)
        + sum([len(path) for path in grant.group])
    )
