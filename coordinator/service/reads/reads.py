"""Reads of the replicated state on any member: linearizable, stale, or at least some zxid.

1. Linearizable (the default): a read barrier first (Raft thesis, 6.4), so the answer shows every
   write that was acknowledged anywhere before the read began.
2. Stale: answered at once, labelled with its zxid and the time since this member's last contact
   with a leader.
3. At least: answered once this member has applied that zxid.
4. A read that cannot be answered in time is NoLeaderError: definite, nothing was proposed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from coordinator.errors import NoLeaderError
from coordinator.model.access import Caller, Verb
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import ALL_OUTCOMES, Interest
from coordinator.service.base.slices import pass_for_itself
from coordinator.state import paths
from coordinator.state.commands import Command
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, Stat
from coordinator.waiting import Waiters

T = TypeVar("T")
V = TypeVar("V")


class Consistency(StrEnum):
    """How fresh an answer must be."""

    LINEARIZABLE = "linearizable"
    STALE = "stale"
    AT_LEAST = "at_least"


@dataclass(frozen=True, slots=True)
class ReadMode:
    """``zxid`` is used by AT_LEAST only."""

    consistency: Consistency = Consistency.LINEARIZABLE
    zxid: int = 0


LINEARIZABLE = ReadMode()
STALE = ReadMode(Consistency.STALE)


def at_least(zxid: int) -> ReadMode:
    """Return the mode that waits until ``zxid`` is applied."""
    return ReadMode(Consistency.AT_LEAST, zxid)


class ReadReply(Generic[T]):
    """``value`` as of ``zxid``. ``age_ms`` is None except for stale reads.

    ``age_ms`` is the time since this member last heard a leader (on the leader: a quorum), which
    is never less than it was; None if it never did."""

    __slots__ = ("age_ms", "index", "value", "zxid")

    def __init__(self, value: T, zxid: int, index: int, age_ms: int | None = None) -> None:
        self.value = value
        self.zxid = zxid
        self.index = index
        self.age_ms = age_ms

    def with_value(self, value: V) -> ReadReply[V]:
        """Return this reply with another value, of the same moment."""
        return ReadReply(value, self.zxid, self.index, self.age_ms)


@dataclass(frozen=True, slots=True)
class ChildrenPage:
    """Some of a znode's children, by name. ``stats`` is empty unless asked for.

    ``stat`` is that of the parent; ``next`` is the name to go on after, None at the end.
    """

    names: tuple[str, ...]
    stats: tuple[Stat, ...]
    stat: Stat
    next: str | None


def children_page(
    machine: StateMachine,
    path: str,
    *,
    caller: Caller,
    after: str | None,
    limit: int | None,
    with_stat: bool,
) -> ChildrenPage | None:
    """Return the children of a znode behind ``after``, at most ``limit``; None if it is not there.

    Of a znode that the caller may not read only what leads to what it may read is listed: not the
    rest, not how much of it there is, and ``next`` names nothing of it."""
    access, stat = machine.access, machine.stat(path)
    if stat is None:
        return None
    is_whole = access.allows(caller, Verb.READ, path)
    beyond = None if limit is None else limit + 1
    if is_whole:
        names = machine.children(path, after, beyond) or []
    else:
        names = names_shown(machine, path, (Verb.READ,), caller=caller, after=after, limit=beyond)
    shown = tuple(names[:limit])
    if not is_whole:
        stat = _stat_of_the_way(stat, len(shown))
    stats: list[Stat] = []
    for name in shown if with_stat else ():
        child = paths.join(path, name)
        found = machine.stat(child)
        assert found is not None, "a listed child is there"
        may_read = is_whole or access.allows(caller, Verb.READ, child)
        stats.append(found if may_read else _stat_of_the_way(found, 0))
    is_more = len(names) > len(shown)
    return ChildrenPage(shown, tuple(stats), stat, shown[-1] if is_more and shown else None)


def names_shown(
    machine: StateMachine,
    path: str,
    verbs: Iterable[Verb],
    *,
    caller: Caller,
    after: str | None,
    limit: int | None,
    rights_of: str | None = None,
) -> list[str]:
    """Return the names of the children behind ``after``, at most ``limit``, that lead to where
    ``caller`` has one of ``verbs``; the others are not even looked at. ``rights_of``: a path whose
    children have the same names, and decide instead of these."""
    found: list[str] = []
    for way, is_beginning in machine.access.ways(caller, rights_of or path, verbs):
        left = None if limit is None else limit - len(found)
        if left == 0:
            break
        is_behind = after is None or way > after
        if way and is_behind and machine.stat(paths.join(path, way)) is not None:
            found.append(way)
            left = None if left is None else left - 1
        if is_beginning:
            behind = way if is_behind else after
            for name in machine.children(path, behind or None, left) or []:
                if not name.startswith(way):
                    break
                found.append(name)
    return found


def _stat_of_the_way(stat: Stat, shown: int) -> Stat:
    return stat._replace(num_children=shown, cversion=0, pzxid=stat.czxid, data_length=0)


class Reads:
    """Waits until the local state is fresh enough to read, and labels how fresh it is."""

    interest: ClassVar[Interest] = ALL_OUTCOMES

    def __init__(self, context: MemberContext) -> None:
        self._engine = context.engine
        self._timers = context.timers
        self._leadership = context.leadership
        self._replica = context.replica
        self._counted = context.metrics.reads.labels
        self._read_seconds = context.metrics.read_seconds.labels
        self._clock = context.timers.clock
        self._waiting = Waiters()

    async def fresh(self, mode: ReadMode, deadline_ms: int) -> int | None:
        """Return once the local state may be read; the age in ms for a stale read.

        The caller reads in the same step, before it awaits anything else.

        Raises:
            NoLeaderError: not fresh enough by the deadline.
        """
        self._leadership.refuse_when_stopping()
        consistency, started_ms = mode.consistency._value_, self._clock.monotonic_ms()
        self._counted(consistency).inc()
        if mode.consistency is Consistency.STALE:
            return self._engine.contact_age_ms()
        try:
            async with self._timers.deadline(deadline_ms):
                if mode.consistency is Consistency.AT_LEAST:
                    await self._until_zxid(mode.zxid)
                else:
                    await self._until_confirmed()
        except TimeoutError:
            raise NoLeaderError(self._late(mode)) from None
        self._read_seconds(consistency).observe((self._clock.monotonic_ms() - started_ms) / 1000)
        return None

    async def fresh_for_list(self, mode: ReadMode, deadline_ms: int) -> int | None:
        """As ``fresh``, for a read of many znodes in one step: in a pass of the loop for itself.

        A hundred who wait for one barrier are woken in one pass.
        """
        if mode.consistency is not Consistency.STALE:
            age_ms = await self.fresh(mode, deadline_ms)
            await pass_for_itself()
            return age_ms
        await pass_for_itself()
        return await self.fresh(mode, deadline_ms)

    def reply(self, value: T, age_ms: int | None) -> ReadReply[T]:
        """Label ``value``, just read, with the zxid of the local state."""
        machine = self._replica.machine
        return ReadReply(value, machine.zxid, machine.applied_index, age_ms)

    async def _until_confirmed(self) -> None:
        while True:
            try:
                await self._engine.read_barrier()
                return
            except NoLeaderError:
                pass  # it waits behind the try
            await self._leadership.pause()

    async def _until_zxid(self, zxid: int) -> None:
        while self._replica.machine.zxid < zxid:
            await self._waiting.until(zxid)
            self._leadership.refuse_when_stopping()

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Wake the reads that wait for this zxid."""
        if self._waiting:
            self._waiting.on_reached(outcome.zxid)

    def on_restore(self) -> None:
        """Wake the reads that wait for a zxid which the snapshot has reached."""
        self._waiting.on_reached(self._replica.machine.zxid)

    def close(self) -> None:
        """Wake all who wait for a zxid, when the member stops."""
        self._waiting.wake_all()

    def _late(self, mode: ReadMode) -> str:
        if mode.consistency is Consistency.AT_LEAST:
            return (
                f"expected zxid {mode.zxid}, found {self._replica.machine.zxid} when the deadline "
                "passed"
            )
        return (
            "no quorum confirmed a leader before the deadline of the read; try again, or read stale"
        )
