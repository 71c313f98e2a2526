"""Reads of the replicated state on any member: linearizable, stale, or at least some zxid.

1. Linearizable (the default): a read barrier first (Raft thesis, 6.4), so the answer shows every
   write that was acknowledged anywhere before the read began.
2. Stale: answered at once, labelled with its zxid and the time since this member's last contact
   with a leader.
3. At least: answered once this member has applied that zxid.
4. A read that cannot be answered in time is NoLeaderError: definite, nothing was proposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Generic, TypeVar

from coordinator.errors import NoLeaderError
from coordinator.model.sessions import SessionInfo
from coordinator.raft.engine import Engine
from coordinator.service.leadership import Leadership
from coordinator.service.metrics import Metrics
from coordinator.service.replica import MachineReplica
from coordinator.service.timers import Timers
from coordinator.state.commands import Command
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, Stat
from coordinator.state.sessions import SessionRecord
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


@dataclass(frozen=True, slots=True)
class ReadReply(Generic[T]):
    """``value`` as of ``zxid``. ``age_ms`` is None except for stale reads.

    ``age_ms`` is the time since this member last had contact with a leader (on the leader: with
    the quorum), exact to about one election timeout; None if there never was contact."""

    value: T
    zxid: int
    index: int
    age_ms: int | None = None

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


def session_info(
    machine: StateMachine, session: SessionRecord, *, is_single: bool = False
) -> SessionInfo:
    """Return an open session as ``machine`` has it; for a single one with its ephemerals."""
    session_id = session.session_id
    return SessionInfo(
        session_id=session_id,
        timeout_ms=session.timeout_ms,
        label=session.label,
        opened_ms=session.opened_ms,
        ephemeral_count=machine.ephemeral_count(session_id),
        ephemerals=tuple(sorted(machine.ephemerals_of(session_id))) if is_single else None,
        address=session.address,
        client_id=session.client_id,
        by=session.by,
    )


class Reads:
    """Waits until the local state is fresh enough to read, and labels how fresh it is."""

    def __init__(
        self,
        engine: Engine,
        timers: Timers,
        leadership: Leadership,
        replica: MachineReplica,
        metrics: Metrics,
    ) -> None:
        self._engine = engine
        self._timers = timers
        self._leadership = leadership
        self._replica = replica
        self._counted = cache(metrics.reads.labels)
        self._read_seconds = cache(metrics.read_seconds.labels)
        self._clock = timers.clock
        self._waiting = Waiters()

    async def fresh(self, mode: ReadMode, deadline_ms: int) -> int | None:
        """Return once the local state may be read; the age in ms for a stale read.

        The caller reads in the same step, before it awaits anything else.

        Raises:
            NoLeaderError: not fresh enough by the deadline.
        """
        self._leadership.refuse_when_stopping()
        consistency, started_ms = mode.consistency.value, self._clock.monotonic_ms()
        self._counted(consistency).inc()
        if mode.consistency is Consistency.STALE:
            return self._leadership.contact_age_ms()
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

    def reply(self, value: T, age_ms: int | None) -> ReadReply[T]:
        """Label ``value``, just read, with the zxid of the local state."""
        machine = self._replica.machine
        return ReadReply(value, machine.zxid, machine.applied_index, age_ms)

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Wake the reads that wait for this zxid."""
        if self._waiting:
            self._waiting.on_reached(outcome.zxid)

    def on_restore(self) -> None:
        """Wake the reads that wait for a zxid which the snapshot has reached."""
        self._waiting.on_reached(self._replica.machine.zxid)

    async def _until_confirmed(self) -> None:
        while True:
            try:
                await self._engine.read_barrier()
                self._leadership.note_contact()
                return
            except NoLeaderError:
                await self._leadership.pause()

    async def _until_zxid(self, zxid: int) -> None:
        while self._replica.machine.zxid < zxid:
            await self._waiting.until(zxid)
            self._leadership.refuse_when_stopping()

    def close(self) -> None:
        """Wake all who wait for a zxid, when the member stops."""
        self._waiting.wake_all()

    def _late(self, mode: ReadMode) -> str:
        if mode.consistency is Consistency.AT_LEAST:
            return (
                f"expected zxid {mode.zxid}, found {self._replica.machine.zxid} when the deadline "
                "passed"
            )
        return "no quorum confirmed a leader before the deadline of the read"
