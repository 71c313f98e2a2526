"""The explanations of locks: why one is as it is, and what is wrong with them all.

1. What is said of one lock is of one moment; of several, each of its own, in slices. All of it is
   what the caller may see.
2. Bounded: a look at one lock takes its first contenders and its latest grants, of the history and
   of its queue; a page is as many locks as are looked at.
3. While no leader is known a diagnosis is drawn from what this member has, and says its age: then
   it is needed most.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Final

from coordinator.model.access import NOBODY, Caller
from coordinator.model.diagnosis import Diagnosis, LockDiagnosis, LockWhy, WaitLink
from coordinator.model.manual_holds import ROOT
from coordinator.service.base.context import MemberContext
from coordinator.service.base.slices import in_slices, pass_for_itself, sorted_in_slices
from coordinator.service.locks import manual_holds
from coordinator.service.locks.contenders import LOCKS, first_holder, there
from coordinator.service.locks.denials import Denials
from coordinator.service.locks.history import record_of
from coordinator.service.locks.sentences import why_of
from coordinator.service.locks.sight import LOOKING, Sight
from coordinator.service.locks.views import LockViews, Seen
from coordinator.service.reads.reads import (
    STALE,
    Consistency,
    ReadMode,
    ReadReply,
    Reads,
    names_shown,
)
from coordinator.service.reporting.diagnosis import Acquisition, diagnosed, figures_of
from coordinator.service.reporting.members import MemberReports
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.locks.records import EndedGrant

_SHOWN_MAX: Final = 20
_CHAIN_MAX: Final = 10
_GRANTS_MAX: Final = 1_000
_CONTENDERS_MAX: Final = 1_000
_NAMES_AT_ONCE: Final = 500


class Explanations:
    """What one member says of its locks in words."""

    def __init__(
        self,
        context: MemberContext,
        *,
        reads: Reads,
        views: LockViews,
        reports: MemberReports,
        denials: Denials,
    ) -> None:
        self._engine = context.engine
        self._replica = context.replica
        self._clock = context.clock
        self._reads = reads
        self._views = views
        self._reports = reports
        self._denials = denials

    # --- one lock, now

    async def why(
        self, name: str, mode: ReadMode, deadline_ms: int, *, caller: Caller = NOBODY
    ) -> ReadReply[LockWhy]:
        """Return why a lock is as it is."""
        directory = LOCKS.directory(name)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        machine = self._replica.machine
        sight = Sight(machine, caller)
        sight.check(directory)
        labels = self._reads.reply(None, age_ms)
        links = self._chain(directory, sight)
        ended = machine.locks.last_ended(directory)
        last = None if ended is None else machine.locks.kept(ended.contender, ended)
        view = await self._views.whole(
            name, mode, deadline_ms, sight, caller=caller, shown_max=_SHOWN_MAX
        )
        last_grant = None if last is None else sight.record(record_of(last))
        sentences = why_of(view, links, last_grant, self._clock.wall_ms())
        fields = {each: getattr(view, each) for each in view.__struct_fields__}
        return labels.with_value(
            LockWhy(**fields, sentences=sentences, chain=links, last_grant=last_grant)
        )

    def _chain(self, directory: str, sight: Sight) -> tuple[WaitLink, ...]:
        """Follow a holder that waits itself to what it waits for, its holder to the next, and so
        on, as far as the caller sees."""
        machine, links = self._replica.machine, list[WaitLink]()
        seen: set[str] = set()
        locks = machine.locks
        while directory not in seen and len(links) < _CHAIN_MAX:
            seen.add(directory)
            if locks.length(directory) == locks.holder_count(directory):
                break
            waiter = self._waiting_elsewhere(directory)
            if waiter is None or not sight.shows(waiter.directory):
                break
            directory = waiter.directory
            place = Seen.of(machine, there(machine, waiter), locks.standing(waiter.path).position)
            holder = first_holder(machine, directory)
            links.append(
                WaitLink(
                    sight.contender(place.shown()),
                    LOCKS.name_at(directory),
                    None
                    if holder is None
                    else sight.contender(Seen.of(machine, holder, 0).shown()),
                )
            )
        return tuple(links)

    def _waiting_elsewhere(self, directory: str) -> ContenderRecord | None:
        """Return where the owner of one of the holders waits; None if nowhere.

        An anonymous holder waits for nothing that is known.
        """
        locks = self._replica.machine.locks
        held = min(locks.holder_count(directory), _CONTENDERS_MAX)
        looks = chain.from_iterable(
            locks.of_owner(each.session_id, each.owner)
            for each in locks.contenders(directory, held)
            if each.owner and each.session_id is not None
        )
        for each in islice(looks, _CONTENDERS_MAX):
            if not each.is_holder and each.path.startswith(LOCKS.root + "/"):
                return each
        return None

    # --- what is wrong

    async def diagnosis(
        self,
        mode: ReadMode,
        deadline_ms: int,
        *,
        lock: str | None = None,
        after: str | None = None,
        limit: int = 100,
        caller: Caller = NOBODY,
    ) -> ReadReply[Diagnosis]:
        """Return how the cluster is, and what is wrong with ``lock``, or with every lock that is
        not free or in the history, by their znodes' names.

        ``limit`` bounds the locks that are looked at, so a page may be short, or empty, and still
        have a ``next``.
        """
        one = None if lock is None else LOCKS.directory(lock)
        behind = None if after is None else LOCKS.segment(after)
        if self._engine.leader_id is None and mode.consistency is Consistency.LINEARIZABLE:
            mode = STALE
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        machine = self._replica.machine
        if machine.access.is_on:
            machine.access.rights_of(caller)
        sight = Sight(machine, caller)
        labels = self._reads.reply(None, age_ms)
        last = None
        if one is not None:
            sight.check(one)
            found = [self._of(one, caller)]
        else:
            segments = await self._segments(behind, limit + 1, sight, caller)
            found = []
            for segment in segments[:limit]:
                await pass_for_itself()
                directory = f"{LOCKS.root}/{segment}"
                if sight.shows(directory) and self._is_known(directory):
                    found.append(self._of(directory, caller))
            last = LOCKS.name_of(segments[limit - 1]) if len(segments) > limit else None
        health = (await self._reports.all()).health
        return labels.with_value(Diagnosis(health, tuple(found), last))

    async def _segments(
        self, behind: str | None, count: int, sight: Sight, caller: Caller
    ) -> list[str]:
        """Return the names of the znodes of the next ``count`` locks."""
        machine = self._replica.machine
        # A hold by hand stays when the queue that it was acquired in is not there any more, and so
        # does the history.
        names = [
            names_shown(
                machine, root, LOOKING, caller=caller, after=behind, limit=count,
                rights_of=LOCKS.root,
            )
            for root in (LOCKS.root, ROOT)
        ]  # fmt: skip
        ended = await in_slices(
            machine.locks.ended_directories(), lambda each: self._name_in(each, behind), 2_000
        )
        found: list[str] = []
        for number, each in enumerate(await sorted_in_slices(name for name in ended if name), 1):
            if len(found) == count:
                break
            if sight.shows(f"{LOCKS.root}/{each}"):
                found.append(each)
            if number % _NAMES_AT_ONCE == 0:
                await pass_for_itself()
        return sorted({*names[0], *names[1], *found})[:count]

    @staticmethod
    def _name_in(directory: str, behind: str | None) -> str:
        root, _, segment = directory.rpartition("/")
        is_next = root == LOCKS.root and (behind is None or segment > behind)
        return segment if is_next else ""

    def _is_known(self, directory: str) -> bool:
        """Whether anything is to be said of a lock: its znode alone says nothing."""
        machine = self._replica.machine
        locks = machine.locks
        return bool(
            locks.length(directory)
            or locks.last_ended(directory)
            or locks.closed(directory)
            or manual_holds.is_held_by_hand(machine, directory)
        )

    def _of(self, directory: str, caller: Caller) -> LockDiagnosis:
        """Return what is found of a lock, in one step."""
        machine, wall_ms = self._replica.machine, self._clock.wall_ms()
        locks = machine.locks
        held = locks.holder_count(directory)
        contenders = locks.contenders(directory, _CONTENDERS_MAX)
        holders = [each for each in contenders if each.is_holder]
        ended = locks.latest_ended(directory, _GRANTS_MAX)
        sessions = [machine.session(each.session_id) for each in contenders]
        denied = self._denials.of(directory)
        by_hand = manual_holds.held_of(machine, directory, wall_ms)
        figures = figures_of(
            [*map(_ended, ended), *map(_held, holders)],
            queue_length=locks.length(directory) - held,
            lease_ms=min((each.timeout_ms for each in sessions if each is not None), default=None),
            refused_tries=denied.tries,
            left_waiting=denied.left,
            by_hand=manual_holds.in_words(machine, directory, caller) or None,
            is_overdue=by_hand is not None and by_hand[1],
            lock_delay_ms=max((each.delay_ms for each in locks.closed(directory)), default=0),
        )
        release_it = manual_holds.how_to_release(machine, directory, wall_ms, caller)
        return diagnosed(LOCKS.name_at(directory), figures, release_it)


def _held(contender: ContenderRecord) -> Acquisition:
    return Acquisition(
        contender.entered_ms, contender.granted_ms, contender.granted_zxid == contender.czxid
    )


def _ended(end: EndedGrant) -> Acquisition:
    departure = end.departure
    return _held(end.contender)._replace(
        ended_ms=end.ended_ms, how=departure.how.value, silent_ms=departure.silent_ms
    )
