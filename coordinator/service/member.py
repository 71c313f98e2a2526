"""One running member: the calls that the doors may make.

It composes the parts of this room around one engine and one state machine. Every call takes
``deadline_ms``, an absolute time on the member's clock, and raises only errors of the error tree.

1. A write that returns is durable on a quorum. A definite error means that it certainly did not
   happen; any other error means that its outcome is unknown.
2. Any member takes any request.
3. A background task that fails stops the member loudly: ``on_failure`` is called once.
"""

from __future__ import annotations

import logging
import random as random_module
from collections.abc import Callable, Sequence
from contextlib import suppress

from coordinator.clock import Clock
from coordinator.config import Config
from coordinator.errors import BadArgumentsError, NoNodeError, SessionExpiredError, StorageError
from coordinator.model.events import WatchSelector
from coordinator.model.sessions import SessionInfo, SessionLease, SessionList
from coordinator.model.status import Status
from coordinator.raft.engine import Engine, Role
from coordinator.service.divergence import SLICE_EVERY_MS, Difference, Divergence
from coordinator.service.figures import show_figures
from coordinator.service.heartbeats import Acks, Heartbeats
from coordinator.service.kept_sessions import KeptSessions
from coordinator.service.leader_address import LeaderAddress
from coordinator.service.leadership import Leadership
from coordinator.service.leases import Leases
from coordinator.service.limits import LimitsService
from coordinator.service.locks.admin import HoldingService
from coordinator.service.locks.denials import Denials
from coordinator.service.locks.elections import ElectionService
from coordinator.service.locks.history import GrantReads
from coordinator.service.locks.hold_timers import HoldTimers
from coordinator.service.locks.hold_times import LOOK_EVERY_MS, Holds, LockClasses
from coordinator.service.locks.later_grants import LaterGrants
from coordinator.service.locks.lease_remaining import Promises
from coordinator.service.locks.queues import Queues
from coordinator.service.locks.revocations import TakenGrants
from coordinator.service.locks.service import LockService
from coordinator.service.locks.views import LockViews
from coordinator.service.metrics import Metrics
from coordinator.service.proposals import Committed, Proposer
from coordinator.service.reads import (
    LINEARIZABLE,
    ChildrenPage,
    ReadMode,
    ReadReply,
    Reads,
    session_info,
)
from coordinator.service.reaper import LOOK_EVERY_MS as REAP_LOOK_EVERY_MS
from coordinator.service.reaper import Reaper
from coordinator.service.replica import MachineReplica
from coordinator.service.session_ends import ENDED_AT_ONCE, SessionEnds
from coordinator.service.status import status_of, what_is_wrong
from coordinator.service.tasks import Tasks
from coordinator.service.timers import Timers
from coordinator.service.watch_stream import WatchStream
from coordinator.service.watches import WatchHub
from coordinator.state import paths
from coordinator.state.commands import (
    CloseSession,
    HeldCondition,
    Operation,
    RequestId,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import SessionEnded, SessionOpened, Stat
from coordinator.state.repeats import check_answers
from coordinator.state.rules import RULES

logger = logging.getLogger("coordinator.service")


class Member:
    """One server process's share of the cluster.

    Args:
        config: everything this member needs to know.
        engine: orders the commands; not started yet.
        clock: decides every wait, lease and deadline.
        random: draws session ids; a test passes a seeded one. None: the system's entropy.
        rules: those of this release; a test passes those of another one.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        clock: Clock,
        *,
        random: random_module.Random | None = None,
        rules: tuple[tuple[str, str], ...] = RULES,
    ) -> None:
        self._config = config
        self._engine = engine
        self._random = random or random_module.SystemRandom()
        self._failure: BaseException | None = None
        self._on_failure: list[Callable[[BaseException], None]] = []
        self.metrics = metrics = Metrics()
        limits = config.limits
        self._replica = replica = MachineReplica(
            StateMachine(), limits=config.first_limits, rules=rules
        )
        self._timers = timers = Timers(clock)
        self._tasks = tasks = Tasks(self._fail)
        self._leadership = leadership = Leadership(engine, clock)
        self._proposer = Proposer(engine, clock, timers, leadership, metrics, config.raft)
        self._reads = Reads(engine, timers, leadership, replica, metrics)
        self._leases = Leases(
            engine, clock, replica, tasks, metrics, tick_ms=config.sessions.tick_ms
        )
        self._session_ends = SessionEnds(engine, clock, replica, tasks)
        self._later_grants = LaterGrants(engine, clock, replica, tasks)
        self._hold_timers = HoldTimers(engine, clock, timers, replica, tasks, metrics)
        taken = TakenGrants(replica)
        self._heartbeats = Heartbeats(
            engine, clock, timers, tasks, leadership, self._leases, self._hold_timers, taken,
            replica, metrics, frame_bytes_max=config.raft.frame_bytes_max,
        )  # fmt: skip
        self._reaper = Reaper(
            engine, clock, replica, leadership, tasks, metrics, container_ms=limits.reap_interval_ms
        )
        self._hub = WatchHub(replica, limits, metrics)
        classes = LockClasses()
        self._queues = Queues(
            proposer=self._proposer, reads=self._reads, replica=replica, leadership=leadership,
            timers=timers, clock=clock, tasks=tasks, metrics=metrics, classes=classes,
            entropy=self._random, waiters_max=limits.lock_waiters_max,
        )  # fmt: skip
        denials = Denials(clock)
        self._holds = Holds(
            clock, replica, leadership, metrics, classes, denials, limits.long_hold_ms
        )
        self._divergence = Divergence(
            engine, clock, timers, tasks, leadership, replica, metrics, self._on_difference
        )
        promises = Promises(engine, clock, timers, leadership, self._leases, self._hold_timers)
        self.kept_sessions = KeptSessions(
            self._proposer, self._heartbeats, replica, timers, clock, self._random
        )
        self.locks = LockService(self._proposer, replica, self._queues)
        self.lock_views = LockViews(self._reads, replica, self._holds, denials, promises)
        self.leader_address = LeaderAddress(engine, config.cluster)
        self.holding = HoldingService(self._proposer, self._reads, replica, leadership)
        self.grant_history = GrantReads(self._reads, replica)
        self.limits = LimitsService(
            config, engine, clock, timers=timers, tasks=tasks, replica=replica, rules=rules,
            leadership=leadership, proposer=self._proposer, reads=self._reads,
        )  # fmt: skip
        self.elections = ElectionService(
            self._proposer, self._reads, replica, self._queues, self._hub
        )
        for listener in (
            self._hub, self._reads, self._leases, self._hold_timers, taken, self._queues,
            self._holds, denials, self.holding, self.limits, self._session_ends,
            self._later_grants, self._reaper,
        ):  # fmt: skip
            replica.add_listener(listener)
        engine.on_role_change(self._on_role_change)
        engine.on_leader_change(leadership.on_leader_change)
        engine.on_leader_change(metrics.note_leader)
        engine.on_failure(self._fail)
        show_figures(
            metrics,
            engine=engine,
            replica=replica,
            leadership=leadership,
            holds=self._holds,
            limits=self.limits,
            is_ready=lambda: self.is_ready,
        )

    # --- life

    async def start(self) -> None:
        """Load the data and join the cluster; there may be no leader yet when this returns."""
        await self._engine.start(self._replica)
        tick_ms = self._config.sessions.tick_ms
        self._timers.every(tick_ms, self._leases.tick)
        self._timers.every(tick_ms, self._leadership.observe)
        self._timers.every(self._config.limits.bookmark_interval_ms, self._hub.bookmark)
        self._timers.every(LOOK_EVERY_MS, self._holds.look)
        self._timers.every(LOOK_EVERY_MS, self.limits.look)
        self._timers.every(tick_ms, self._session_ends.look)
        self._timers.every(tick_ms, self._later_grants.look)
        self._timers.every(REAP_LOOK_EVERY_MS, self._reaper.look)
        self._timers.every(SLICE_EVERY_MS, self._divergence.look)

    async def stop(self) -> None:
        """Refuse new requests, end waiting ones, and leave the cluster. Idempotent."""
        self._end_waits()
        await self._tasks.stop()
        await self._engine.stop()
        self._timers.close()

    def tick(self, now_ms: int) -> None:
        """Do everything that is due at ``now_ms``; a running loop calls this by itself."""
        self._timers.tick(now_ms)

    def on_failure(self, listener: Callable[[BaseException], None]) -> None:
        """Call ``listener`` once, when this member must stop."""
        self._on_failure.append(listener)
        if self._failure is not None:
            listener(self._failure)

    # --- writes

    async def submit(
        self,
        operation: Operation,
        *,
        request: RequestId | None,
        identity: str = "",
        deadline_ms: int,
        need_local: bool = True,
        if_held: tuple[HeldCondition, ...] = (),
    ) -> Committed:
        """Propose ``operation`` and return its result; raises its refusal as its error.

        ``Proposer`` says when it is sent again, and what ``need_local`` waits for. Unless every
        grant of ``if_held`` holds at that moment it is refused with LockLostError.
        """
        committed = await self._proposer.submit(
            operation,
            request=request,
            identity=identity,
            deadline_ms=deadline_ms,
            need_local=need_local,
            if_held=if_held,
        )
        check_answers(operation, committed.outcome)
        return committed

    # --- reads

    async def get(
        self, path: str, mode: ReadMode, deadline_ms: int
    ) -> ReadReply[tuple[bytes, Stat]]:
        """Return data and Stat of a znode; NoNodeError if it does not exist."""
        machine = self._replica.machine
        paths.validate(path, machine.limits)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        found = machine.get(path)
        if found is None:
            raise self._no_node(path)
        return self._reads.reply(found, age_ms)

    async def children(
        self,
        path: str,
        mode: ReadMode,
        deadline_ms: int,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_stat: bool = False,
    ) -> ReadReply[ChildrenPage]:
        """Return the children of a znode behind the name ``after``, at most ``limit``."""
        machine = self._replica.machine
        paths.validate(path, machine.limits)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        stat = machine.stat(path)
        if stat is None:
            raise self._no_node(path)
        beyond = None if limit is None else limit + 1
        stats: tuple[Stat, ...] = ()
        if with_stat:
            found = machine.children_with_stat(path, after=after, limit=beyond) or []
            names = tuple(name for name, _ in found)[:limit]
            stats = tuple(each for _, each in found)[:limit]
            is_more = len(found) > len(names)
        else:
            listed = machine.children(path, after=after, limit=beyond) or []
            names = tuple(listed[:limit])
            is_more = len(listed) > len(names)
        page = ChildrenPage(names, stats, stat, names[-1] if is_more and names else None)
        return self._reads.reply(page, age_ms)

    # --- sessions

    async def open_session(
        self,
        timeout_ms: int | None,
        label: str,
        request: RequestId | None,
        deadline_ms: int,
        *,
        address: str = "",
        by: str = "",
        identity: str = "",
        if_held: tuple[HeldCondition, ...] = (),
    ) -> SessionOpened:
        """Open a session under an id drawn here; None is the default timeout.

        ``address`` is where its client is; ``by`` names an operator, who may use the reserve.
        """
        if timeout_ms is None:
            timeout_ms = self.limits.default_timeout_ms()
        committed = await self.submit(
            self.kept_sessions.opening(timeout_ms, label, request, address=address, by=by),
            request=request,
            identity=identity,
            deadline_ms=deadline_ms,
            if_held=if_held,
        )
        result = committed.outcome.unwrap()
        assert isinstance(result, SessionOpened), "an open comes to a SessionOpened"
        return result

    async def close_session(
        self,
        session_id: str,
        request: RequestId | None,
        deadline_ms: int,
        *,
        failure: str = "",
        identity: str = "",
        if_held: tuple[HeldCondition, ...] = (),
    ) -> SessionEnded:
        """End a session and all its ephemerals, as far as the deadline allows; again if need be.

        ``failure`` says what is wrong with the client, if that is why: its locks are lost then.
        """
        committed = await self.submit(
            CloseSession(session_id, failure, ENDED_AT_ONCE),
            request=request,
            identity=identity,
            deadline_ms=deadline_ms,
            if_held=if_held,
        )
        result = committed.outcome.unwrap()
        assert isinstance(result, SessionEnded), "a close comes to a SessionEnded"
        if failure and result.was_open:
            self.metrics.sessions_failed.inc()
            logger.info("session %s was ended by its client: %r", session_id, failure)
        with suppress(TimeoutError):  # it has ended in any case, and what it owned goes
            async with self._timers.deadline(deadline_ms):
                await self._session_ends.finished(session_id)
        return result

    async def heartbeat(self, session_id: str, deadline_ms: int) -> SessionLease:
        """Extend a lease; SessionExpiredError when it has ended, NoLeaderError if unconfirmed."""
        self._leadership.refuse_when_stopping()
        return await self._heartbeats.heartbeat(session_id, deadline_ms)

    async def heartbeats(self, session_ids: Sequence[str], deadline_ms: int) -> Acks:
        """Extend several leases; None for what has ended, what is left out is not known."""
        self._leadership.refuse_when_stopping()
        return await self._heartbeats.heartbeats(session_ids, deadline_ms)

    async def list_sessions(
        self, mode: ReadMode, deadline_ms: int, *, after: int = 0, limit: int = 1_000
    ) -> ReadReply[SessionList]:
        """Return at most ``limit`` open sessions behind ``after``, in the order of opening."""
        age_ms = await self._reads.fresh(mode, deadline_ms)
        machine = self._replica.machine
        found = list(machine.sessions(after, limit + 1))
        shown = found[:limit]
        views = tuple([session_info(machine, session) for session in shown])
        last = shown[-1].opened_zxid if len(found) > limit else None
        return self._reads.reply(SessionList(views, last), age_ms)

    async def session(
        self, session_id: str, mode: ReadMode, deadline_ms: int
    ) -> ReadReply[SessionInfo]:
        """Return one session with its ephemerals; SessionExpiredError when it is not open."""
        age_ms = await self._reads.fresh(mode, deadline_ms)
        machine = self._replica.machine
        session = machine.session(session_id)
        if session is None:
            raise SessionExpiredError(
                f"session {session_id} has ended or never was", session_id=session_id
            )
        return self._reads.reply(session_info(machine, session, is_single=True), age_ms)

    # --- watches

    def watch(
        self,
        selectors: Sequence[WatchSelector],
        *,
        from_zxid: int | None = None,
        is_one_shot: bool = False,
    ) -> WatchStream:
        """Return a stream of changes; ``watches`` says what it promises and what is refused."""
        self._leadership.refuse_when_stopping()
        return self._hub.watch(selectors, from_zxid=from_zxid, is_one_shot=is_one_shot)

    async def reached(self, zxid: int, deadline_ms: int) -> None:
        """Return once ``zxid`` is applied here; any zxid that a client received is committed.

        Raises:
            BadArgumentsError: it has happened nowhere yet, as a quorum has confirmed.
            NoLeaderError: this member was behind, and none confirmed it by the deadline.
        """
        machine = self._replica.machine
        if machine.zxid < zxid:
            # A zxid that a client knows was committed before this call: the barrier covers it.
            await self._reads.fresh(LINEARIZABLE, deadline_ms)
        if machine.zxid < zxid:
            raise BadArgumentsError(
                f"zxid {zxid} has not happened yet; the newest is {machine.zxid}",
                zxid=zxid,
                newest_zxid=machine.zxid,
            )

    # --- what it says of itself

    def status(self) -> Status:
        """Return what this member knows, without asking the others."""
        return status_of(
            self._config.cluster,
            self._engine.status(),
            self._replica.machine,
            wrong=self.not_ready_reason(),
            limits_differ=self.limits.difference(),
            reserve=self.limits.reserve_in_words(),
        )

    def labels(self) -> tuple[str, int, int]:
        """Return (member_id, zxid, applied index), cheaply: every reply carries them."""
        machine = self._replica.machine
        return self._engine.member_id, machine.zxid, machine.applied_index

    @property
    def is_ready(self) -> bool:
        """True when requests may be sent here: it has caught up and knows a leader."""
        return not self.not_ready_reason()

    def not_ready_reason(self) -> str:
        """Return in words why it is not ready; "" if it is."""
        if self._divergence.sentence:
            return self._divergence.sentence
        status, is_stopping = self._engine.status(), self._leadership.is_stopping
        failure = None if self._failure is None else str(self._failure)
        return what_is_wrong(status, is_stopping=is_stopping, failure=failure)

    def render_metrics(self) -> bytes:
        """Return the Prometheus text of this member."""
        return self.metrics.render()

    # --- own steps

    def _on_role_change(self, role: Role, term: int) -> None:
        if self._leadership.is_stopping:
            return
        if role is Role.LEADER:
            self.limits.begin(term, lambda: self._lead(term))
            return
        self.limits.stop()
        self._leadership.on_role_change(role, term)
        self._leases.stop()
        self._hold_timers.stop()
        self._session_ends.stop()
        self._later_grants.stop()

    def _lead(self, term: int) -> None:
        self._leadership.on_role_change(Role.LEADER, term)
        self._leases.start(term)
        self._hold_timers.start(term)
        self._session_ends.start()
        self._later_grants.start()

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._end_waits()  # no wait may delay the end of a failed member
        for listener in self._on_failure:
            listener(error)

    def _on_difference(self, difference: Difference) -> None:
        """Stop answering, but keep running to report why."""
        if self._failure is None:
            self._failure = StorageError(difference.sentence)
            self._end_waits(difference.sentence)
            self._engine.halt(self._failure, difference.sentence if difference.is_own else "")

    def _end_waits(self, reason: str = "") -> None:
        """Take and promise nothing any more, and end all waits. Idempotent."""
        self._leadership.stop(reason)
        self._queues.close()
        self._reads.close()
        self._heartbeats.close()
        self._session_ends.close()
        self._later_grants.stop()
        self._hub.close()
        self._leases.stop()
        self._hold_timers.stop()

    def _no_node(self, path: str) -> NoNodeError:
        zxid = self._replica.machine.zxid
        return NoNodeError(f"no znode {paths.shown(path)} at zxid {zxid}", path=path, zxid=zxid)
