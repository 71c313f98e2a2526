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

from coordinator.audit.event import Audit, NoAudit
from coordinator.clock import Clock
from coordinator.errors import BadArgumentsError, NoNodeError, StorageError
from coordinator.model.access import NOBODY, Caller, Verb
from coordinator.model.sessions import SessionLease
from coordinator.model.status import Status
from coordinator.node.config import Config
from coordinator.raft.engine import Engine, Role
from coordinator.service.access import AccessService, Issuer
from coordinator.service.base.active_clients import ActiveClients
from coordinator.service.base.context import MemberContext
from coordinator.service.base.leadership import LeaderAddress, Leadership
from coordinator.service.base.metrics import Metrics
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.tasks import Tasks
from coordinator.service.base.timers import Every, Timers
from coordinator.service.base.turns import Turns
from coordinator.service.comparing.divergence import SLICE_EVERY_MS, Difference, Divergence
from coordinator.service.locks.admin import HoldingService
from coordinator.service.locks.denials import Denials, RefusedDeadlocks
from coordinator.service.locks.elections import ElectionService
from coordinator.service.locks.history import GrantReads
from coordinator.service.locks.hold_times import LOOK_EVERY_MS as HOLDS_LOOK_EVERY_MS
from coordinator.service.locks.hold_times import HoldTimes, LockClasses
from coordinator.service.locks.manual_holds import LOOK_EVERY_MS as MANUAL_LOOK_EVERY_MS
from coordinator.service.locks.manual_holds import ManualHolds
from coordinator.service.locks.queues import Queues
from coordinator.service.locks.service import LockService
from coordinator.service.locks.upkeep import LaterGrants, LostRights
from coordinator.service.locks.views import LockViews
from coordinator.service.reads.reads import (
    LINEARIZABLE,
    ChildrenPage,
    ReadMode,
    ReadReply,
    Reads,
    children_page,
)
from coordinator.service.reads.subtree_reads import SubtreeReads
from coordinator.service.reporting import audit_trail
from coordinator.service.reporting.audit_trail import AuditTrail
from coordinator.service.reporting.backups import Backups
from coordinator.service.reporting.examination import Examinations
from coordinator.service.reporting.explanations import Explanations
from coordinator.service.reporting.figures import show_figures
from coordinator.service.reporting.log_levels import LogLevels
from coordinator.service.reporting.members import MemberReports
from coordinator.service.reporting.status import status_of, what_is_wrong
from coordinator.service.reporting.upgrades import Upgrades
from coordinator.service.sessions.heartbeats import Acks, Heartbeats
from coordinator.service.sessions.hold_timers import HoldTimers
from coordinator.service.sessions.kept_sessions import KeptSessions
from coordinator.service.sessions.lease_remaining import RemainingTimes
from coordinator.service.sessions.leases import Leases
from coordinator.service.sessions.revocations import Revocations
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE, SessionEnds
from coordinator.service.sessions.session_reads import SessionReads
from coordinator.service.watches.hub import WatchHub
from coordinator.service.writes.limits import LOOK_EVERY_MS as LIMITS_LOOK_EVERY_MS
from coordinator.service.writes.limits import LimitsService
from coordinator.service.writes.proposals import Proposer, RequestContext
from coordinator.service.writes.reaper import LOOK_EVERY_MS as REAP_LOOK_EVERY_MS
from coordinator.service.writes.reaper import Reaper
from coordinator.state import paths
from coordinator.state.commands import (
    CloseSession,
    HeldCondition,
    RenewCredential,
    RequestId,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import SessionEnded, SessionOpened, Stat
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
        audit: where the audit log is kept; None: nowhere.
        issuer: who vouches for callers with tokens of its own; None: no issuer.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        clock: Clock,
        *,
        random: random_module.Random | None = None,
        rules: tuple[tuple[str, str], ...] = RULES,
        audit: Audit | None = None,
        issuer: Issuer | None = None,
    ) -> None:
        self._config = config
        self.audit: Audit = audit or NoAudit()
        self._engine = engine
        self._failure: BaseException | None = None
        self.difference = ""
        """Why this running member answers nothing from its state; "" while it does."""
        self._on_failure: list[Callable[[BaseException], None]] = []
        self.warnings: Callable[[], tuple[str, ...]] = tuple
        """Says which files want an operator, a sentence each; the server sets it."""
        self.off: tuple[str, ...] = ()
        """Which protection the configuration turns off; the server sets it, too."""
        self.metrics = Metrics()
        self._replica = replica = MachineReplica(StateMachine(), rules=rules)
        self.timers = Timers(clock)
        self._tasks = Tasks(self._fail)
        self._leadership = Leadership(engine, clock)
        self.turns = Turns(config.limits.requests_per_second_max)
        self._while_leading: tuple[Every, ...] = ()
        context = MemberContext(
            config=config,
            engine=engine,
            clock=clock,
            random=random or random_module.SystemRandom(),
            metrics=self.metrics,
            replica=replica,
            timers=self.timers,
            tasks=self._tasks,
            leadership=self._leadership,
            turns=self.turns,
        )
        self.leader_address = LeaderAddress(engine, config.cluster)
        self._reads = Reads(context)
        self.proposer = Proposer(context, self._reads)
        self.watches = WatchHub(context)
        self.access = AccessService(context, self._reads, issuer=issuer)
        self.sessions = SessionReads(self._reads, replica)
        self.subtrees = SubtreeReads(self._reads, replica)
        self.limits = LimitsService(context, proposer=self.proposer, reads=self._reads, rules=rules)
        self._active_clients = ActiveClients(context)
        self._divergence = Divergence(context, self._on_difference)
        self.reports = MemberReports(context, self.status, self._divergence)
        self.log_levels = LogLevels(context)
        self.examinations = Examinations(context, self.limits)
        self.backups = Backups(context)
        self.upgrades = Upgrades(context, self.proposer, self.reports)
        self._build_sessions_and_locks(context)
        engine.on_role_change(self._on_role_change)
        engine.on_leader_change(self._leadership.on_leader_change)
        engine.on_leader_change(self.metrics.note_leader)
        engine.on_failure(self._fail)
        self._audit_trail = AuditTrail(context, self.audit)
        if self.audit.is_kept:
            replica.add_listener(self._audit_trail)
        show_figures(context, self._hold_times, self.limits, self.audit, lambda: self.is_ready)

    def _build_sessions_and_locks(self, context: MemberContext) -> None:
        proposer, reads, replica = self.proposer, self._reads, self._replica
        revocations, classes, denials = Revocations(replica), LockClasses(), Denials(context.clock)
        self._leases = Leases(context)
        self._session_ends = SessionEnds(context)
        self._later_grants = LaterGrants(context)
        self._in_pieces = (self._session_ends, self._later_grants, LostRights(context))
        self._reaper = Reaper(context)
        self._hold_timers = HoldTimers(context)
        self._heartbeats = Heartbeats(context, self._leases, self._hold_timers, revocations)
        self.kept_sessions = KeptSessions(context, proposer, self._heartbeats)
        self._queues = Queues(context, proposer=proposer, reads=reads, classes=classes)
        self._hold_times = HoldTimes(context, classes, denials)
        self._manual_holds = ManualHolds(context)
        remaining_times = RemainingTimes(context, self._leases, self._hold_timers)
        self.locks = LockService(proposer, replica, self._queues)
        self.elections = ElectionService(proposer, reads, replica, self._queues, self.watches)
        self.lock_views = LockViews(
            reads, replica, self._hold_times, context.clock, denials, remaining_times
        )
        self.holding = HoldingService(proposer, reads, replica, self._leadership)
        self.grant_history = GrantReads(reads, replica)
        self.deadlocks = RefusedDeadlocks(replica)
        self.explanations = Explanations(
            context, reads=reads, views=self.lock_views, reports=self.reports, denials=denials
        )
        for listener in (
            self.watches, reads, self._leases, self._hold_timers, revocations,
            self._queues, self._hold_times, denials, self.holding, self.limits, *self._in_pieces,
            self._reaper, self.deadlocks,
        ):  # fmt: skip
            replica.add_listener(listener)

    # --- life

    async def start(self) -> None:
        """Load the data and join the cluster; there may be no leader yet when this returns."""
        await self._engine.start(self._replica)
        tick_ms, every = self._config.sessions.tick_ms, self.timers.every
        leases = every(tick_ms, self._leases.tick)
        self._leases.need_tick_by = leases.need_by
        self._leadership.need_observing_by = every(tick_ms, self._leadership.observe).need_by
        every(self._config.limits.bookmark_interval_ms, self.watches.bookmark)
        self._active_clients.start()
        self._hold_times.need_look_by = every(HOLDS_LOOK_EVERY_MS, self._hold_times.look).need_by
        every(MANUAL_LOOK_EVERY_MS, self._manual_holds.look)
        every(LIMITS_LOOK_EVERY_MS, self.limits.look)
        if self.audit.is_kept:
            every(audit_trail.LOOK_EVERY_MS, self._audit_trail.look)
        reaps = every(REAP_LOOK_EVERY_MS, self._reaper.look)
        self._reaper.need_look_by = reaps.need_by
        slices = every(SLICE_EVERY_MS, self._divergence.look)
        self._divergence.need_look_by = slices.need_by
        self._while_leading = (leases, slices, reaps)
        self._tick_as_led()

    async def stop(self) -> None:
        """Refuse new requests, end waiting ones, and leave the cluster. Idempotent."""
        self._end_waits()
        await self._tasks.stop()
        self.backups.close()
        await self._engine.stop()
        self.timers.close()

    def tick(self, now_ms: int) -> None:
        """Do everything that is due at ``now_ms``; a running loop calls this."""
        self.timers.tick(now_ms)

    def on_failure(self, listener: Callable[[BaseException], None]) -> None:
        """Call ``listener`` once, when this member must stop."""
        self._on_failure.append(listener)
        if self._failure is not None:
            listener(self._failure)

    @property
    def level(self) -> int:
        """The level of the state as far as it is applied here (``coordinator.state.levels``)."""
        return self._replica.machine.level

    # --- reads

    async def get(
        self, path: str, mode: ReadMode, deadline_ms: int, *, caller: Caller = NOBODY
    ) -> ReadReply[tuple[bytes, Stat]]:
        """Return data and Stat of a znode; NoNodeError if it does not exist."""
        machine = self._replica.machine
        paths.validate(path, machine.limits)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        machine.access.check(caller, Verb.READ, path)
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
        caller: Caller = NOBODY,
    ) -> ReadReply[ChildrenPage]:
        """Return the children of a znode behind the name ``after``, at most ``limit``.

        Of a znode that the caller may not read, but something below it, only the children are shown
        that lead there.
        """
        machine = self._replica.machine
        paths.validate(path, machine.limits)
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        if not machine.access.sees(caller, path):
            machine.access.check(caller, Verb.READ, path)
        page = children_page(
            machine, path, caller=caller, after=after, limit=limit, with_stat=with_stat
        )
        if page is None:
            raise self._no_node(path)
        return self._reads.reply(page, age_ms)

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
        caller: Caller = NOBODY,
        if_held: tuple[HeldCondition, ...] = (),
    ) -> SessionOpened:
        """Open a session under an id drawn here; None is the default timeout.

        ``address`` is where its client is; ``by`` names an operator, who may use the reserve.
        """
        if timeout_ms is None:
            timeout_ms = self.limits.default_timeout_ms()
        committed = await self.proposer.submit(
            self.kept_sessions.opening(timeout_ms, label, request, address=address, by=by),
            RequestContext(request, deadline_ms, caller=caller, if_held=if_held),
        )
        return committed.result(SessionOpened)

    async def close_session(
        self,
        session_id: str,
        request: RequestId | None,
        deadline_ms: int,
        *,
        failure: str = "",
        caller: Caller = NOBODY,
        if_held: tuple[HeldCondition, ...] = (),
    ) -> SessionEnded:
        """End a session and all its ephemerals, as far as the deadline allows; again if need be.

        ``failure`` says what is wrong with the client, if that is why: its locks are lost then.
        """
        committed = await self.proposer.submit(
            CloseSession(session_id, failure, ENDED_AT_ONCE),
            RequestContext(request, deadline_ms, caller=caller, if_held=if_held),
        )
        result = committed.result(SessionEnded)
        if failure and result.was_open:
            self.metrics.sessions_failed.inc()
            logger.info("session %s was ended by its client: %r", session_id, failure)
        with suppress(TimeoutError):  # it has ended in any case, and what it owned goes
            async with self.timers.deadline(deadline_ms):
                await self._session_ends.finished(session_id)
        return result

    async def heartbeat(
        self, session_id: str, deadline_ms: int, *, caller: Caller = NOBODY
    ) -> SessionLease:
        """Extend a lease; SessionExpiredError when it has ended, NoLeaderError if unconfirmed."""
        self._leadership.refuse_when_stopping()
        await self._check_own((session_id,), caller, deadline_ms)
        return await self._heartbeats.heartbeat(session_id, deadline_ms)

    async def heartbeats(
        self, session_ids: Sequence[str], deadline_ms: int, *, caller: Caller = NOBODY
    ) -> Acks:
        """Extend several leases; None for what has ended, what is left out is not known."""
        self._leadership.refuse_when_stopping()
        await self._check_own(session_ids, caller, deadline_ms)
        return await self._heartbeats.heartbeats(session_ids, deadline_ms)

    # --- status

    def status(self) -> Status:
        """Return what this member knows, without asking the others."""
        return status_of(
            self._config,
            self._engine.status(),
            self._replica.machine,
            wrong=self.not_ready_reason(),
            cluster_id=self._engine.cluster_id,
            limits_differ=self.limits.difference(),
            reserve=self.limits.reserve_in_words(),
            warnings=(*self.warnings(), *self._manual_holds.warnings()),
            off=self.off,
            backups=self.backups.scheduled,
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

    async def _check_own(
        self, session_ids: Sequence[str], caller: Caller, deadline_ms: int
    ) -> None:
        """Refuse the sessions of others; let those of another credential go on under this one."""
        for each in await self.sessions.to_be_renewed(session_ids, caller, deadline_ms):
            await self.proposer.submit(
                RenewCredential(each), RequestContext(None, deadline_ms, caller=caller)
            )

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
        for each in self._in_pieces:
            each.stop()
        self._reaper.stop()
        self._tick_as_led()

    def _lead(self, term: int) -> None:
        self._leadership.on_role_change(Role.LEADER, term)
        self._leases.start(term)
        self._hold_timers.start(term)
        for each in self._in_pieces:
            each.start()
        self._tick_as_led()

    def _tick_as_led(self) -> None:
        """Wake this member for what only a leader does while it leads, and not otherwise."""
        for each in self._while_leading:
            each.go_on() if self._leadership.is_leader else each.pause()

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._end_waits()  # no wait may delay the end of a failed member
        for listener in self._on_failure:
            listener(error)

    def _on_difference(self, difference: Difference) -> None:
        """Stop answering, but keep running to report why."""
        self.difference = difference.sentence
        self.backups.close()
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
        for each in self._in_pieces:
            each.stop()
        self.watches.close()
        self._leases.stop()
        self._hold_timers.stop()

    def _no_node(self, path: str) -> NoNodeError:
        zxid = self._replica.machine.zxid
        return NoNodeError(f"no znode {paths.shown(path)} at zxid {zxid}", path=path, zxid=zxid)
