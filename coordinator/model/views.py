"""Views of locks and elections: who holds, who waits, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

from msgspec import Struct

from coordinator.model.contention import HolderInfo, Kind, LockDelay, MaxHold, Size
from coordinator.model.fields import LEFT_OUT, Count, Positive, described
from coordinator.model.history import Note

HOLD_LINE = (
    "client.lock(name) tells who holds a lock; to hold it: "
    "`with Lock(client, name, timeout=10) as grant:` (from coordinator import Lock)"
)


class Contender(HolderInfo, frozen=True, kw_only=True):
    """A contender that holds a lock, or waits for it, since the wall time ``since_ms``.

    ``position`` counts those before it; several may hold a shared lock or a semaphore, so
    ``is_holder`` says who does. ``granted_ms`` is the wall time of the grant. ``safe_ms`` is what
    was left of its lease and of ``max_hold_ms`` when the leader was asked: so long nobody else is
    granted, unless it gives back or is forced to. None: not known.
    """

    grant_id: str
    fencing_token: Positive
    session_id: str = ""
    path: str = ""
    position: Count = 0
    since_ms: Count = 0
    is_holder: bool = False
    kind: Kind = "exclusive"
    owner: str = ""
    granted_ms: Count | None = None
    lock_delay_ms: LockDelay = 0
    max_hold_ms: MaxHold = 0
    extensions: Annotated[
        Count, described("how often max_hold_ms was extended; it counts from the last time")
    ] = 0
    note: Note = b""
    lease_ms: Annotated[
        Count | None, described("how long its lease is: the timeout of its session")
    ] = None
    safe_ms: Annotated[
        Count | None,
        described("what the leader said is left of its lease and of its max_hold_ms"),
    ] = None


class Candidate(Struct, frozen=True, kw_only=True):
    """Who is elected, or a candidate since the wall time ``since_ms``.

    ``epoch`` is its fencing token, ``label`` that of its session. ``value`` is None when there was
    no room for it in a long answer.
    """

    grant_id: str
    fencing_token: Positive
    session_id: str = ""
    path: str = ""
    position: Count = 0
    since_ms: Count = 0
    label: str = ""
    epoch: Positive
    value: Annotated[bytes | None, LEFT_OUT, described("what the election publishes")] = None


class Closed(Struct, frozen=True):
    """A queue that is closed after an unclean loss (its lock-delay). ``remaining_ms`` is how long
    still, as the leader counts; None when it was not asked, or did not say."""

    delay_ms: Positive
    remaining_ms: Count | None = None


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """Return the least of these, the least first, that so many percent of them do not exceed."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


class Spread(Struct, frozen=True):
    """How long ``count`` waits or holds took, by the wall clocks of the leaders that proposed
    them."""

    count: Positive
    p50_ms: Count
    p95_ms: Count
    p99_ms: Count
    max_ms: Count = 0

    @classmethod
    def of(cls, lengths_ms: Iterable[int]) -> Spread | None:
        """Return that of ``lengths_ms``, by nearest rank; None of nothing."""
        ordered = sorted(lengths_ms)
        if not ordered:
            return None
        p50, p95, p99 = (nearest_rank(ordered, percent) for percent in (50, 95, 99))
        return cls(len(ordered), p50, p95, p99, ordered[-1])


class Denied(Struct, frozen=True):
    """Who did not get a lock, as the member that answers has seen it since the wall time
    ``since_ms``: ``tries`` that were refused at once, and waiters that ``left`` ungranted (they
    timed out, were cancelled, or their session ended)."""

    tries: Count
    left: Count
    since_ms: Count


class LockView(Struct, frozen=True):
    """The reply of GET /v1/locks/{name}; ``is_current`` only when a token was asked about.

    ``holder`` is the first of the ``holders``. Of those who hold and of those in the ``queue`` the
    first 5,000 are shown; ``holder_count`` and ``queue_length`` count all. ``size`` is that of a
    semaphore. ``waits`` and ``holds`` are of the grants that the history still knows; None when it
    knows none. While the lock is held by hand ``by_hand`` says by whom and what for: a holder is
    then who has its turn, and is told of no grant before that ends.
    """

    lock: str
    holder: Contender | None
    holders: tuple[Contender, ...]
    queue: tuple[Contender, ...]
    zxid: Count
    size: Size | None = None
    closed: Closed | None = None
    waits: Spread | None = None
    holds: Spread | None = None
    denied: Denied | None = None
    is_current: Annotated[bool | None, LEFT_OUT] = None
    holder_count: Count = 0
    queue_length: Count = 0
    by_hand: str | None = None
    is_overdue: Annotated[
        bool, described("whether it is held by hand for longer than was planned")
    ] = False

    if not TYPE_CHECKING:  # other libraries' ``client.lock(name)`` is the lock itself

        def __enter__(self) -> NoReturn:
            raise TypeError(HOLD_LINE)

        def __exit__(self, *_: object) -> None:
            """Never entered."""

        def __getattr__(self, name: str) -> NoReturn:
            message = f"'LockView' object has no attribute {name!r}"
            is_ours = name in ("acquire", "release", "try_acquire", "locked", "owned")
            message += f"; {HOLD_LINE}" if is_ours else ""
            raise AttributeError(message, name=name, obj=self)


class LockSummary(Struct, frozen=True):
    """One lock in a list that is not free; ``queue_length`` counts those who wait,
    ``holder_count`` who hold. Nobody does while it is ``closed`` after an unclean loss. While it is
    held by hand ``by_hand`` says by whom and what for, and a holder is who has its turn then.

    ``held_ms``: how long the member has seen the holder hold, never overstated; of a lock that is
    held by hand, by wall clocks.
    ``waiting_since_ms``: the wall time since which the first in the queue waits; None if nobody
    does.
    """

    lock: str
    holder: Contender | None
    queue_length: Count
    held_ms: Count
    holder_count: Count = 1
    denied: Denied | None = None
    waiting_since_ms: Annotated[
        Count | None, described("wall time since which the first in its queue waits")
    ] = None
    by_hand: str | None = None
    is_overdue: Annotated[
        bool, described("whether it is held by hand for longer than was planned")
    ] = False
    closed: Closed | None = None


class LockList(Struct, frozen=True):
    """The reply of GET /v1/locks: those that are not free. ``next`` is what to pass as ``after``
    for the rest."""

    locks: tuple[LockSummary, ...]
    next: str | None = None


class ElectionView(Struct, frozen=True):
    """The reply of GET /v1/elections/{name}: who is elected, and who would be next, in order.

    Of the candidates the first 5,000 are shown; ``candidate_count`` counts all.
    """

    election: str
    elected: Candidate | None
    candidates: tuple[Candidate, ...]
    zxid: Count
    candidate_count: Count = 0


class Elected(Struct, frozen=True, tag_field="type", tag="elected"):
    """A line of an observed election: who is elected now, with which value; None: nobody."""

    elected: Candidate | None
    zxid: Count
