"""The exactly-once table: a repeated request gets its first outcome again.

1. A client's record holds the outcomes of its last ``request_window`` numbers, refusals included.
   A number below the window is refused with RequestForgotten: its outcome is no longer known. It
   stays forgotten when the window grows; a smaller window cuts a record at its next new number.
2. A client id that is the id of an open session is *bound* to it, if a member drew that id: its
   record lives as long as the session. Afterwards its requests are refused with SessionExpired. An
   id that a client drew may be that of another client, whose requests it says nothing about.
3. Other clients are remembered by last use, ``clients_max`` of them.
4. A client without a record is new if the index it knew before it drew its id is not below the last
   use of every dropped record. Otherwise its record may be one of those: RequestForgotten. A bound
   client cannot have made requests before its session opened.
5. All outcomes together stay within ``remembered_bytes_max`` (by a fixed estimate). Beyond it the
   least recently used clients are dropped; when only bound clients are left, their outcomes are
   dropped. What is answered now is spared. One command drops at most ``DROPPED_AT_ONCE``.
6. An identity with more than ``remembered_percent_max`` of one of these two limits loses its own
   clients first, or the outcomes of its bound ones (``owner_shares``): so no identity pushes out
   what others may still ask for. While access rights are off, clients belong to nobody.

A captured record is never changed: ``_own`` copies it before its first change since the capture. So
a capture copies nothing (``recency_map``).

Source: Raft thesis, section 6.3. Where we differ: outcomes are kept in a window, not up to an
acknowledged number, and clients are ordered by use.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

from coordinator.errors import BadArgumentsError, RequestForgottenError, SessionExpiredError
from coordinator.model.limits import MachineLimits
from coordinator.state.capture_hold import CaptureHold
from coordinator.state.commands import RequestId
from coordinator.state.emptying import emptied
from coordinator.state.limits import DROPPED_AT_ONCE
from coordinator.state.outcomes import Outcome
from coordinator.state.owner_shares import OwnedKeys, OwnerShares
from coordinator.state.recency_map import RecencyMap
from coordinator.state.remembered import kept_of, recalled, remembered_bytes_of
from coordinator.state.sessions import SessionRecord
from coordinator.state.thread_breaks import with_breaks

CLIENT_ID: Final = re.compile(r"[!-~]{1,64}")
_UNBOUND: Final = -1
"""In place of the last use, for an ended session that bound no client."""


@dataclass(slots=True)
class ClientRecord:
    """The record of one client.

    ``highest`` is the highest number it used. The outcomes of numbers up to ``forgotten`` are below
    the window or were dropped for room. Outcomes are kept as bytes (``remembered``).
    """

    highest: int = 0
    forgotten: int = 0
    last_index: int = 0
    outcomes: dict[int, bytes] = field(default_factory=dict)
    remembered_bytes: int = 0
    generation: int = 0
    owner: str = ""
    """Whose it is (``access.coverage.Standing.owner``); "" of nobody who was named."""


@dataclass(frozen=True, slots=True)
class RequestsCapture:
    """The table at one moment; the records in it do not change any more."""

    free: Collection[tuple[str, ClientRecord]]
    bound: Collection[tuple[str, ClientRecord]]
    ended: Collection[tuple[str, int]]
    dropped_index: int
    holds: tuple[CaptureHold, ...] = ()
    """Keep the first three as they were."""


class RequestTable:
    """First outcomes by client id and request number."""

    def __init__(self, limits: MachineLimits, capture: RequestsCapture | None = None) -> None:
        self._free = RecencyMap[str, ClientRecord](() if capture is None else capture.free)
        self._bound = RecencyMap[str, ClientRecord](() if capture is None else capture.bound)
        self._ended = RecencyMap[str, int](() if capture is None else capture.ended)
        self._dropped_index = 0
        self._remembered_bytes = 0
        self._generation = 1
        self._free_of = OwnedKeys()
        self._bound_of = OwnedKeys()
        self._clients = OwnerShares()
        """The clients without a session."""
        self._bytes = OwnerShares()
        """The outcomes of all clients."""
        self.use(limits)
        if capture is not None:
            self._dropped_index = capture.dropped_index
            for home, is_bound in ((self._free, False), (self._bound, True)):
                for client_id, record in with_breaks(home.items()):
                    self._count(client_id, record, is_bound=is_bound)
                    self._grow(record, record.remembered_bytes)

    def use(self, limits: MachineLimits) -> None:
        """Keep as much as ``limits`` say from now on."""
        self.limits = limits
        self._clients.use(limits.clients_max, limits.remembered_percent_max)
        self._bytes.use(limits.remembered_bytes_max, limits.remembered_percent_max)

    def __len__(self) -> int:
        return len(self._free) + len(self._bound)

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    @property
    def remembered_bytes(self) -> int:
        """The estimated size of all remembered outcomes."""
        return self._remembered_bytes

    @property
    def free(self) -> RecencyMap[str, ClientRecord]:
        """The clients without a session, least recently used first."""
        return self._free

    @property
    def bound(self) -> RecencyMap[str, ClientRecord]:
        """The clients whose id is that of a session."""
        return self._bound

    @property
    def ended(self) -> RecencyMap[str, int]:
        """The sessions that have ended, with the last use by their client (-1: they bound none)."""
        return self._ended

    def counts(self) -> tuple[int, ...]:
        """Return the counters, and the size of each table."""
        return (
            self._dropped_index, self._remembered_bytes, len(self._free), len(self._bound),
            len(self._ended),
        )  # fmt: skip

    def owner(self, client_id: str) -> str:
        """Return whose id this is; "" if it is not known or that of nobody who was named."""
        record: ClientRecord | None = self._free.get(client_id) or self._bound.get(client_id)
        return "" if record is None else record.owner

    def was_session(self, session_id: str) -> bool:
        """Whether a session of this id has ended (as far back as is remembered)."""
        return session_id in self._ended

    def is_ended(self, client_id: str) -> bool:
        """Whether the session that the client was bound to has ended."""
        last_index: int = self._ended.get(client_id, _UNBOUND)
        return last_index != _UNBOUND

    def has_seen(self, request: RequestId) -> bool:
        """Whether a request came before, as far as its client is known still."""
        client_id, number = request.client_id, request.number
        record: ClientRecord | None = self._free.get(client_id) or self._bound.get(client_id)
        if record is None:
            return self.is_ended(client_id)
        return number in record.outcomes or number <= record.forgotten

    def recall(self, request: RequestId, session: SessionRecord | None) -> Outcome | None:
        """Return the first outcome of ``request``; None if it is new and may run.

        ``session`` is the open session that the client is bound to, if there is one.

        Raises:
            BadArgumentsError: it is not a request id.
            SessionExpiredError: the session the client was bound to has ended.
            RequestForgottenError: it may have run before; its outcome is no longer known.
        """
        client_id, number = request.client_id, request.number
        record: ClientRecord | None = self._free.get(client_id) or self._bound.get(client_id)
        if record is None:
            self._check_new(request, session)
            return None
        if number < 1:
            raise _bad_request(request)
        kept = record.outcomes.get(number)
        if kept is not None:
            return recalled(kept)
        lowest = record.forgotten
        if number <= lowest:
            raise RequestForgottenError(
                f"request {number} of client {client_id}: expected a number above {lowest}; "
                "older outcomes are not kept",
                client_id=client_id,
                number=number,
                highest=record.highest,
            )
        return None

    def _check_new(self, request: RequestId, session: SessionRecord | None) -> None:
        client_id = request.client_id
        if CLIENT_ID.fullmatch(client_id) is None or request.number < 1 or request.floor_index < 0:
            raise _bad_request(request)
        if self.is_ended(client_id):
            raise SessionExpiredError(
                f"request {request.number} of client {client_id}: its session has ended",
                session_id=client_id,
            )
        floor_index = request.floor_index
        if session is not None and session.bound_index > floor_index:
            floor_index = session.bound_index
        if floor_index < self._dropped_index:
            raise RequestForgottenError(
                f"request {request.number} of client {client_id}: the client is not known; it may "
                f"be one forgotten at index {self._dropped_index}, and it knew only {floor_index}",
                client_id=client_id,
                number=request.number,
                floor_index=floor_index,
                dropped_index=self._dropped_index,
            )

    def remember(
        self,
        request: RequestId,
        outcome: Outcome,
        *,
        index: int,
        is_bound: bool,
        owner: str = "",
    ) -> None:
        """Keep the first outcome of ``request``, or replace it if the request was abandoned."""
        client_id, number = request.client_id, request.number
        record = self._own(client_id, is_bound, owner)
        record.last_index = index
        outcomes, before = record.outcomes, record.remembered_bytes
        if number > record.highest:
            self._slide(record, number)
        kept, old = kept_of(outcome), outcomes.get(number)
        grown = remembered_bytes_of(kept) - (0 if old is None else remembered_bytes_of(old))
        outcomes[number] = kept
        record.remembered_bytes += grown
        if record.remembered_bytes != before:
            self._grow(record, record.remembered_bytes - before)
        self._make_room(client_id, number)

    def touch(self, client_id: str, *, index: int, is_bound: bool) -> None:
        """Note that a known client was used now."""
        self._own(client_id, is_bound).last_index = index

    def _own(self, client_id: str, is_bound: bool, owner: str = "") -> ClientRecord:
        """Return the client's record for a change, as the most recently used one."""
        home, other = (self._bound, self._free) if is_bound else (self._free, self._bound)
        record: ClientRecord | None = home.get(client_id)
        if record is None:
            record = other.pop(client_id, None)
            if record is None:
                record = ClientRecord()
            else:
                self._discount(client_id, record, is_bound=not is_bound)
        if record.generation != self._generation:
            record = ClientRecord(
                record.highest,
                record.forgotten,
                record.last_index,
                record.outcomes.copy(),
                record.remembered_bytes,
                self._generation,
                record.owner,
            )
        home.use(client_id, record)
        if owner and not record.owner:
            record.owner = owner
            self._bytes.add(owner, record.remembered_bytes)
        self._count(client_id, record, is_bound=is_bound)
        return record

    def _count(self, client_id: str, record: ClientRecord, *, is_bound: bool) -> None:
        """Note a client that was used now, for whose it is."""
        owner = record.owner
        if not owner:
            return
        if is_bound:
            self._bound_of.use(owner, client_id)
        elif self._free_of.use(owner, client_id):
            self._clients.add(owner, 1)

    def _discount(self, client_id: str, record: ClientRecord, *, is_bound: bool) -> None:
        """Note that a client is gone from one of the two, for whose it was."""
        owner = record.owner
        if not owner:
            return
        if is_bound:
            self._bound_of.remove(owner, client_id)
        else:
            self._free_of.remove(owner, client_id)
            self._clients.add(owner, -1)

    def _grow(self, record: ClientRecord, size: int) -> None:
        """Count so many more bytes of outcomes of a client, or less."""
        self._remembered_bytes += size
        if record.owner:
            self._bytes.add(record.owner, size)

    def _slide(self, record: ClientRecord, highest: int) -> None:
        """Move the window up to ``highest``, dropping what falls out below."""
        outcomes = record.outcomes
        forgotten = max(record.forgotten, highest - self.limits.request_window)
        for number in range(record.forgotten + 1, min(forgotten, record.highest) + 1):
            kept = outcomes.pop(number, None)
            if kept is not None:
                record.remembered_bytes -= remembered_bytes_of(kept)
        record.highest = highest
        record.forgotten = forgotten

    def _make_room(self, client_id: str, number: int) -> None:
        """Drop what is beyond the limits, but not what ``client_id`` was answered now: what is
        nobody's in its turn, then of who has more than its share, then the least recently used."""
        bytes_max, clients_max = self.limits.remembered_bytes_max, self.limits.clients_max
        left = DROPPED_AT_ONCE
        while left and len(self._free) > clients_max:
            first = self._free.first()
            if self._free[first].owner:
                first = self._free_of.first(self._clients.largest()) or first
            self._drop(first)
            left -= 1
        while left and self._remembered_bytes > bytes_max:
            first = self._free.first(client_id)
            if first != client_id and not self._free[first].owner:
                self._drop(first)
            else:
                owner = self._bytes.largest()
                if not owner or not (
                    self._drop_of(owner, client_id) or self._shorten(owner, client_id, number)
                ):
                    break
            left -= 1
        while left and self._remembered_bytes > bytes_max:
            first = self._free.first(client_id)
            if first == client_id:
                break
            self._drop(first)
            left -= 1
        for _ in range(min(len(self._bound), left)):
            if self._remembered_bytes <= bytes_max:
                return
            self._forget_bound(self._bound.first(), client_id)

    def _drop_of(self, owner: str, spared: str) -> bool:
        """Drop a client of an owner, or the outcomes of a bound one; return whether it could."""
        first = self._free_of.first(owner)
        if first is not None and first != spared:
            self._drop(first)
            return True
        for _ in range(min(self._bound_of.count_of(owner), DROPPED_AT_ONCE)):
            bound = self._bound_of.first(owner)
            if bound is not None and self._forget_bound(bound, spared):
                return True
        return False

    def _shorten(self, owner: str, client_id: str, number: int) -> bool:
        """Drop the oldest outcome of the client that was answered now, if it is this owner's;
        return whether there was another one."""
        record = self._free.get(client_id) or self._bound.get(client_id)
        if record is None or record.owner != owner:
            return False
        lowest = min(record.outcomes)
        if lowest == number:
            return False
        size = remembered_bytes_of(record.outcomes.pop(lowest))
        record.remembered_bytes -= size
        record.forgotten = max(record.forgotten, lowest)
        self._grow(record, -size)
        return True

    def _drop(self, client_id: str) -> None:
        """Drop a client without a session."""
        record = self._free.pop(client_id, None)
        self._discount(client_id, record, is_bound=False)
        self._grow(record, -record.remembered_bytes)
        self._dropped_index = max(self._dropped_index, record.last_index)

    def _forget_bound(self, client_id: str, spared: str) -> bool:
        """Drop the outcomes of a bound client, unless it is the spared one, and move it to the end;
        return whether there were any."""
        record = self._bound[client_id]
        is_dropped = client_id != spared and bool(record.outcomes)
        if is_dropped:
            self._grow(record, -record.remembered_bytes)
            record = ClientRecord(
                record.highest,
                record.highest,
                record.last_index,
                generation=self._generation,
                owner=record.owner,
            )
        self._bound.use(client_id, record)
        self._count(client_id, record, is_bound=True)
        return is_dropped

    def end_session(self, session: SessionRecord) -> None:
        """Drop the record of the client that was bound to the session; remember that it ended."""
        session_id, last_index = session.session_id, _UNBOUND
        if session.is_bound:
            last_index = 0
            for home, is_bound in ((self._bound, True), (self._free, False)):
                record = home.pop(session_id, None)
                if record is not None:
                    self._discount(session_id, record, is_bound=is_bound)
                    self._grow(record, -record.remembered_bytes)
                    last_index = record.last_index
        self._ended.use(session_id, last_index)
        for _ in range(min(len(self._ended) - self.limits.clients_max, DROPPED_AT_ONCE)):
            _, index = self._ended.pop_first()
            self._dropped_index = max(self._dropped_index, index)

    def emptied(self) -> Iterator[None]:
        """Empty a table that is no longer used: a step for each outcome and each client."""
        for table in (self._free, self._bound, self._ended):
            while table.is_captured:
                yield None
        for home in (*self._free.given_up(), *self._bound.given_up()):
            while home:
                _, record = home.popitem()
                yield from repeat(None, len(record.outcomes))  # freed with it
                yield None
        yield from emptied(*self._ended.given_up())
        for derived in (self._free_of, self._bound_of, self._clients, self._bytes):
            yield from derived.emptied()

    def merge_some(self) -> bool:
        """As ``RecencyMap.merge_some``, for the clients."""
        left = [each.merge_some() for each in (self._free, self._bound, self._ended)]
        return True in left

    def capture(self) -> RequestsCapture:
        """Freeze the records as they are; later changes are made to copies."""
        self._generation += 1
        tables = (self._free.capture(), self._bound.capture(), self._ended.capture())
        (free, _), (bound, _), (ended, _) = tables
        return RequestsCapture(
            free.items(), bound.items(), ended.items(), self._dropped_index,
            tuple([hold for _, hold in tables]),
        )  # fmt: skip


class ReleasedTable:
    """The last contenders that were released, so that a repeated release succeeds again."""

    def __init__(self, count_max: int, released: Iterable[tuple[str, int]] = ()) -> None:
        self.count_max = count_max
        self._released = RecencyMap[tuple[str, int], None](zip(released, repeat(None)))

    def __len__(self) -> int:
        return len(self._released)

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def __contains__(self, contender: tuple[str, int]) -> bool:
        return contender in self._released

    @property
    def recent(self) -> RecencyMap[tuple[str, int], None]:
        """The released grants as (path, czxid), those of long ago first."""
        return self._released

    def add(self, path: str, czxid: int) -> None:
        """Remember a released grant, and forget the oldest ones beyond the limit."""
        self._released.use((path, czxid), None)
        for _ in range(min(len(self._released) - self.count_max, DROPPED_AT_ONCE)):
            self._released.pop_first()

    def emptied(self) -> Iterator[None]:
        """Empty a table that is no longer used, by one grant at each step."""
        while self._released.is_captured:
            yield None
        yield from emptied(*self._released.given_up())

    def merge_some(self) -> bool:
        """As ``RecencyMap.merge_some``, for the released grants."""
        return self._released.merge_some()

    def capture(self) -> tuple[Collection[tuple[str, int]], CaptureHold]:
        """Return the released grants as they are now, the oldest first, and what keeps them so."""
        return self._released.capture()


def _bad_request(request: RequestId) -> BadArgumentsError:
    return BadArgumentsError(
        "request id: expected a client id of 1 to 64 printable ASCII characters, a number from 1 "
        f"and a floor index from 0, found {request.client_id[:80]!a}, {request.number}, "
        f"{request.floor_index}",
        number=request.number,
    )
