"""Views of locks: who holds, who waits, what closes them, how long it usually takes.

1. What is read is the applied state, as fresh as the read mode says; ``safe_ms`` and what is left
   of a lock-delay are asked from the leader, and None if that did not answer in time.
2. How long waits and holds took comes from the history of grants: by wall clocks, for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from coordinator.clock import Clock
from coordinator.model.access import NOBODY, Caller
from coordinator.model.manual_holds import ROOT
from coordinator.model.views import (
    Closed,
    Contender,
    Denied,
    LockList,
    LockSummary,
    LockView,
    Spread,
)
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.slices import in_slices
from coordinator.service.locks.contenders import (
    LOCKS,
    SHOWN_MAX,
    Captured,
    QueuedContender,
    captured,
    first_holder,
    queued,
)
from coordinator.service.locks.denials import Denials
from coordinator.service.locks.hold_times import HoldTimes
from coordinator.service.locks.holder_info import said_in
from coordinator.service.locks.manual_holds import held_of, in_words
from coordinator.service.locks.sight import LOOKING, Sight
from coordinator.service.reads.reads import Consistency, ReadMode, ReadReply, Reads, names_shown
from coordinator.service.sessions.lease_remaining import NOTHING_KNOWN, Remaining, RemainingTimes
from coordinator.state.machine import StateMachine

_SPREAD_OF_MAX = 1_000


class Seen(NamedTuple):
    """The facts, all of one moment, from which the view of a contender is made."""

    contender: QueuedContender
    position: int
    lease_ms: int | None

    @classmethod
    def of(cls, machine: StateMachine, contender: QueuedContender, position: int) -> Seen:
        """Return ``contender`` as it is now, with the timeout of its session."""
        session = machine.session(contender.session_id)
        return cls(contender, position, None if session is None else session.timeout_ms)

    def shown(self) -> Contender:
        """Return the contender as clients see it."""
        contender, position, lease_ms = self
        recorded = contender.recorded
        return Contender(
            **said_in(contender.data),
            grant_id=contender.grant_id,
            fencing_token=contender.czxid,
            session_id=contender.session_id,
            path=contender.path,
            position=position,
            since_ms=recorded.entered_ms,
            is_holder=recorded.is_holder,
            kind=recorded.kind.value,
            owner=recorded.owner,
            granted_ms=recorded.granted_ms if recorded.is_holder else None,
            lock_delay_ms=recorded.lock_delay_ms,
            max_hold_ms=recorded.max_hold_ms,
            extensions=recorded.extensions,
            note=recorded.note,
            lease_ms=lease_ms,
        )


class _Held(NamedTuple):
    """The facts, all of one moment, from which a line of the list of locks is made."""

    segment: str
    holder: Seen | None
    queue_length: int
    held_ms: int
    holder_count: int
    denied: Denied
    waiting_since_ms: int | None
    by_hand: str
    is_overdue: bool
    closed: Closed | None

    def summary(self) -> LockSummary:
        return LockSummary(
            lock=LOCKS.name_of(self.segment),
            holder=None if self.holder is None else self.holder.shown(),
            queue_length=self.queue_length,
            held_ms=self.held_ms,
            holder_count=self.holder_count,
            denied=self.denied,
            waiting_since_ms=self.waiting_since_ms,
            by_hand=self.by_hand or None,
            is_overdue=self.is_overdue,
            closed=self.closed,
        )


class LockViews:
    """The locks as one member sees them."""

    def __init__(
        self,
        reads: Reads,
        replica: MachineReplica,
        holds: HoldTimes,
        clock: Clock,
        denials: Denials,
        remaining_times: RemainingTimes,
    ) -> None:
        self._reads = reads
        self._replica = replica
        self._holds = holds
        self._clock = clock
        self._denials = denials
        self._remaining_times = remaining_times

    async def query(
        self,
        name: str,
        mode: ReadMode,
        deadline_ms: int,
        *,
        fencing_token: int | None = None,
        session_id: str | None = None,
        caller: Caller = NOBODY,
    ) -> ReadReply[LockView]:
        """Return who holds ``name`` and who waits; for a lock that does not exist, neither.

        Args:
            fencing_token: say whether this is a current one. Else the leader is asked what it
                promises (not for a stale read), and the history how long it usually takes.
            session_id: show the contenders of this session alone.
        """
        directory = LOCKS.directory(name)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        sight = Sight(self._replica.machine, caller)
        sight.check(directory)
        labels = self._reads.reply(None, age_ms)
        if fencing_token is None:
            view = await self.whole(
                name, mode, deadline_ms, sight, caller=caller, session_id=session_id
            )
            return labels.with_value(view)
        holder = self._replica.machine.locks.with_token(directory, fencing_token)
        is_current = holder is not None and holder.is_holder
        view = await self._look(name, directory, session_id, caller)
        return labels.with_value(await _shown_to(sight, with_fields(view, is_current=is_current)))

    async def whole(
        self,
        name: str,
        mode: ReadMode,
        deadline_ms: int,
        sight: Sight,
        *,
        caller: Caller,
        session_id: str | None = None,
        shown_max: int = SHOWN_MAX,
    ) -> LockView:
        """Return the lock as it is in this very step, with what the leader promises and how long it
        usually takes; of holders and waiters ``shown_max`` each."""
        directory = LOCKS.directory(name)
        view = await self._look(name, directory, session_id, caller, shown_max)
        waits, holds = self._spreads(directory)
        view = with_fields(view, waits=waits, holds=holds)
        if mode.consistency is not Consistency.STALE:
            view = await self._with_safe_times(view, directory, deadline_ms)
        return await _shown_to(sight, view)

    async def _look(
        self,
        name: str,
        directory: str,
        session_id: str | None,
        caller: Caller,
        shown_max: int = SHOWN_MAX,
    ) -> LockView:
        """Return the lock as it is now, though its parts are made one after the other."""
        machine = self._replica.machine
        queue = captured(machine, directory, session_id, shown_max)
        size = machine.locks.size(directory)
        denied = self._denials.of(directory)
        closed = _closed(machine, directory)
        by_hand = in_words(machine, directory, caller)
        held = held_of(machine, directory, self._clock.wall_ms())
        places = [*queue.holders, *queue.waiting]
        views = await in_slices(places, lambda each: _seen(each, queue.zxid).shown())
        shown = len(queue.holders)
        return LockView(
            lock=name,
            holder=views[0] if shown else None,
            holders=tuple(views[:shown]),
            queue=tuple(views[shown:]),
            zxid=queue.zxid,
            holder_count=queue.holder_count,
            queue_length=queue.waiting_count,
            size=size,
            closed=closed,
            denied=denied,
            by_hand=by_hand or None,
            is_overdue=held is not None and held[1],
        )

    def _spreads(self, directory: str) -> tuple[Spread | None, Spread | None]:
        """Return how long the latest waits and holds took, of the grants that have ended."""
        ended = self._replica.machine.locks.latest_ended(directory, _SPREAD_OF_MAX)
        times = [(each.contender, each.ended_ms) for each in ended]
        return (
            Spread.of(max(0, each.granted_ms - each.entered_ms) for each, _ in times),
            Spread.of(max(0, ended_ms - each.granted_ms) for each, ended_ms in times),
        )

    async def lease_left(
        self, session_id: str, bounded_paths: Sequence[str], deadline_ms: int
    ) -> tuple[int, int] | None:
        """Return how long the lease of a session is, and how much of it, and of the bounded holds,
        is left at least, as the leader promises; None if it does not in time."""
        session = self._replica.machine.session(session_id)
        if session is None:
            return None
        left_ms = await self._remaining_times.remaining_ms(session_id, bounded_paths, deadline_ms)
        return None if left_ms is None else (session.timeout_ms, left_ms)

    async def _with_safe_times(self, view: LockView, directory: str, deadline_ms: int) -> LockView:
        closing_paths = [each.path for each in self._replica.machine.locks.closed(directory)]
        paths = [each.path for each in view.holders if each.max_hold_ms]
        remaining = await self._remaining_times.ask(
            [each.session_id for each in view.holders], [*closing_paths, *paths], deadline_ms
        )
        if remaining is NOTHING_KNOWN:
            return view
        closed = view.closed
        left_ms = [remaining.bounds.get(path) for path in closing_paths]
        known_ms = [each for each in left_ms if each is not None]
        if closed is not None and known_ms and len(known_ms) == len(left_ms):
            closed = with_fields(closed, remaining_ms=max(known_ms))
        holders = tuple(
            await in_slices(
                view.holders,
                lambda each: with_fields(each, safe_ms=_safe_ms(each, remaining)),
            )
        )
        holder = holders[0] if holders else None
        return with_fields(view, holder=holder, holders=holders, closed=closed)

    async def list_locks(
        self,
        mode: ReadMode,
        deadline_ms: int,
        *,
        after: str | None = None,
        limit: int = 1_000,
        held_ms_min: int = 0,
        caller: Caller = NOBODY,
    ) -> ReadReply[LockList]:
        """Return the locks that are not free, and have been held for ``held_ms_min``, by their
        znodes' names: those that clients hold, that are held by hand, or closed after a loss. Those
        that the caller may neither read nor lock are left out, and ``next`` is none of them.

        ``limit`` bounds the locks that are looked at, so a page may be short, or empty, and still
        have a ``next``.
        """
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        behind = None if after is None else LOCKS.segment(after)
        machine = self._replica.machine
        sight = Sight(machine, caller)
        if machine.access.is_on:
            machine.access.rights_of(caller)
        found: list[_Held] = []
        # A hold by hand stays when the queue that it was acquired in is not there any more.
        both = [
            names_shown(
                machine, root, LOOKING, caller=caller, after=behind, limit=limit + 1,
                rights_of=LOCKS.root,
            )
            for root in (LOCKS.root, ROOT)
        ]  # fmt: skip
        segments = sorted({*both[0], *both[1]})[: limit + 1]
        for segment in segments[:limit]:
            if sight.shows(f"{LOCKS.root}/{segment}"):
                held = self._held(segment, caller)
                if held is not None and held.held_ms >= held_ms_min:
                    found.append(held)
        last = LOCKS.name_of(segments[limit - 1]) if len(segments) > limit else None
        labels = self._reads.reply(None, age_ms)
        locks = await in_slices(found, lambda each: sight.summary(each.summary()))
        return labels.with_value(LockList(tuple(locks), last))

    def _held(self, segment: str, caller: Caller) -> _Held | None:
        """Return the line of a lock; None if it is free."""
        machine, directory = self._replica.machine, f"{LOCKS.root}/{segment}"
        holder, closed = first_holder(machine, directory), _closed(machine, directory)
        by_hand = held_of(machine, directory, self._clock.wall_ms())
        if holder is None and closed is None and by_hand is None:
            return None
        held_ms = 0 if holder is None else self._holds.held_ms(holder.path)
        holder_count = machine.locks.holder_count(directory)
        waiting = machine.locks.length(directory) - holder_count
        first = machine.locks.contenders(directory, 1, holder_count) if waiting else ()
        return _Held(
            segment=segment,
            holder=None if holder is None else Seen.of(machine, holder, 0),
            queue_length=waiting,
            held_ms=held_ms if by_hand is None else by_hand[0],
            holder_count=holder_count,
            denied=self._denials.of(directory),
            waiting_since_ms=first[0].entered_ms if first else None,
            by_hand=in_words(machine, directory, caller),
            is_overdue=by_hand is not None and by_hand[1],
            closed=closed,
        )


def _closed(machine: StateMachine, directory: str) -> Closed | None:
    """Return how a queue is closed after an unclean loss; None if it is not."""
    delays_ms = [each.delay_ms for each in machine.locks.closed(directory)]
    return Closed(max(delays_ms), None) if delays_ms else None


async def _shown_to(sight: Sight, view: LockView) -> LockView:
    """Return a view without the sessions of others, unless they may be seen."""
    if sight.is_whole:
        return view
    holders = tuple(await in_slices(view.holders, sight.contender))
    queue = tuple(await in_slices(view.queue, sight.contender))
    return with_fields(view, holder=holders[0] if holders else None, holders=holders, queue=queue)


def _safe_ms(holder: Contender, remaining: Remaining) -> int | None:
    """Return for how long no other client can be granted, unless this one releases."""
    left_ms = remaining.leases.get(holder.session_id)
    if left_ms is None or not holder.max_hold_ms:
        return left_ms
    bound_ms = remaining.bounds.get(holder.path)
    return None if bound_ms is None else min(left_ms, bound_ms)


def _seen(place: Captured, zxid: int) -> Seen:
    contender, position = queued(place, zxid)
    session = place[3]
    return Seen(contender, position, None if session is None else session.timeout_ms)
