"""The engine of a real member: PySyncObj's Raft, hardened, on one event loop.

Nothing polls. A proposal, a message or a timer asks for a pass of the loop (``passes``). A full
disk is waited out; any other failure of the disk, and any broken invariant, stops the member for
good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import attrgetter
from random import Random
from typing import Any, cast

from coordinator.clock import Clock
from coordinator.errors import CoordinatorError, NoLeaderError, ShuttingDownError, StorageError
from coordinator.node.config import ClusterConfig, MemberConfig, RaftConfig
from coordinator.raft import status
from coordinator.raft.backup import HeldBackup, entries_behind
from coordinator.raft.blocking import RunBlocking, noting_failures, run_in_thread, start_in_place
from coordinator.raft.consensus import Consensus
from coordinator.raft.context import RaftContext
from coordinator.raft.disk_health import DiskHealth
from coordinator.raft.engine import (
    Applied,
    BackupFacts,
    EngineStatus,
    LeaderListener,
    Replica,
    RequestHandler,
    Role,
    RoleListener,
)
from coordinator.raft.entries import Entries, Proposals
from coordinator.raft.handover import Handovers
from coordinator.raft.listeners import Listeners
from coordinator.raft.membership import check_members, check_timing
from coordinator.raft.network.agreement import (
    Fact,
    Levels,
    ReadLevels,
    fact_of_id,
    facts_of_cluster,
    facts_of_raft,
)
from coordinator.raft.network.inbox import Inbox
from coordinator.raft.network.rpc import RequestDesk
from coordinator.raft.network.transport import MemberTransport, TcpTransport
from coordinator.raft.passes import Passes
from coordinator.raft.read_index import READ_INDEX, ReadIndex
from coordinator.raft.rejoin.incarnations import Incarnations
from coordinator.raft.rejoin.recovering import Recovering
from coordinator.raft.rejoin.refounding import refuse_unfinished
from coordinator.raft.rejoin.trust import Trust
from coordinator.raft.run_loop import RunLoop
from coordinator.raft.storage import ownership
from coordinator.raft.storage.disk import Disk, OsDisk, join
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.kernel_sync import Syncs
from coordinator.raft.storage.ownership import Owner, Ownership
from coordinator.raft.storage.quarantine import quarantine, refuse_quarantined
from coordinator.raft.storage.segments import salts
from coordinator.raft.storage.snapshot_exchange import SnapshotExchange
from coordinator.raft.storage.snapshot_store import SnapshotStore
from coordinator.raft.storage.sync import LogSync, StartSync
from coordinator.tls.files import MemberTls, Reloaded

logger = logging.getLogger(__name__)

ENTRY_OVERHEAD_BYTES = 64 * 1024  # what a frame may need beside its commands


class PySyncObjEngine:
    """The ``Engine`` of one member of a fixed cluster.

    Args:
        clock: decides every timeout; the loop's own timers only wake the member up.
        random: for election timeouts and backoff; seeded in simulations.
        transport: how members talk; TCP by default, with ``tls`` if that is given.
        run_blocking: where a simulation, which has no threads, syncs snapshots and a slow log.
        start_sync: how it syncs the log of a fast disk; by default in place.
        facts: what must be equal on all members, beside the list of them (``agreement``).
        levels: those that this release reads, and that of the state.
        release: of the software, for people.
        sync_in_place_ms_max: the log of a disk that is slower than this on average is synced there.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        member: MemberConfig,
        raft: RaftConfig,
        *,
        clock: Clock,
        disk: Disk | None = None,
        random: Random | None = None,
        transport: MemberTransport | None = None,
        tls: Reloaded[MemberTls] | None = None,
        facts: Sequence[Fact] = (),
        levels: ReadLevels = Levels,
        release: str = "",
        run_blocking: RunBlocking | None = None,
        start_sync: StartSync = start_in_place,
        sync_in_place_ms_max: float = 5.0,
    ) -> None:
        self._member_ids = check_members(cluster, member)
        check_timing(raft)
        self._member_id = member.member_id
        self._owner = Owner(cluster.name, member.member_id)
        self._ownership: Ownership | None = None
        self._others = tuple(other for other in self._member_ids if other != self._member_id)
        self._data_dir = member.data_dir
        self._raft = raft
        self._clock = clock
        self._disk = disk if disk is not None else OsDisk()
        self._random = random if random is not None else Random()  # noqa: S311
        self._salts = salts(random)
        self._transport: MemberTransport = transport or TcpTransport(
            cluster, member, raft, clock=clock, random=self._random, tls=tls
        )
        self._transport.agree_on((*facts_of_cluster(cluster), *facts_of_raft(raft), *facts))
        self._transport.show_levels(levels, release)
        self._sync_in_place_seconds_max = sync_in_place_ms_max / 1000
        self._run_blocking: RunBlocking = run_blocking or run_in_thread
        self._syncs, self._is_simulated = Syncs(), run_blocking is not None
        self._start_sync = start_sync if self._is_simulated else self._syncs
        self._desk = RequestDesk(self._transport, raft.frame_bytes_max)
        self._reads = ReadIndex(
            self._member_id, timeout_ms=2 * raft.election_timeout_ms_max,
            ask=self._desk.ask, wake=self._wake,
        )  # fmt: skip
        self._desk.set_handler(READ_INDEX, lambda *_: self._reads.answer(self._running()))
        self._listeners = Listeners(self._member_id)
        self._is_running = False
        self._failure: BaseException | None = None
        self._handovers = Handovers(self._others, clock.monotonic_ms, self._transport.is_connected)
        self._log: Any = None
        self._consensus: Consensus | None = None
        self._passes: Passes | None = None
        self._run_loop = RunLoop(self._pass, clock.monotonic_ms)
        self._trust = Trust(self._transport, clock, len(self._member_ids))
        self._entries = Entries(
            Proposals(raft, command_bytes_max=raft.frame_bytes_max - ENTRY_OVERHEAD_BYTES),
            clock.monotonic_ms, self._on_founding,
        )  # fmt: skip

    # The life of a member.

    # Read several times for each request: without a call of a Python function.
    member_id: str = cast(str, property(attrgetter("_member_id")))
    """The id of this member."""

    def warnings(self) -> tuple[str, ...]:
        """Return what of its files wants an operator, a sentence each."""
        transport = self._transport
        problem = transport.secret_problem if isinstance(transport, TcpTransport) else ""
        return (f"the former secret stays in use: {problem}",) if problem else ()

    async def start(self, replica: Replica) -> None:
        """Load what is on disk and join the cluster; StorageError, ConfigError."""
        log_directory = join(self._data_dir, "log")
        refuse_unfinished(self._disk, self._data_dir)
        self._disk.make_directory(self._data_dir)
        refuse_quarantined(self._disk, self._data_dir)
        # Before anything is read as this member's, or written.
        self._ownership = ownership.take(
            self._disk, self._data_dir, self._owner, self._member_ids, draw=self._salts
        )
        self._transport.agree_on([fact_of_id(self._ownership.cluster_id)])
        # Before the log, so that it cannot be taken for one that was always there.
        recovering = Recovering(
            self._disk, self._data_dir, self._member_id, len(self._member_ids),
            is_new=Journal.is_absent(log_directory, self._disk),
        )  # fmt: skip
        segment_bytes, salts = self._raft.segment_bytes, self._salts
        self._log = Journal(log_directory, self._disk, segment_bytes=segment_bytes, draw_salt=salts)
        try:
            inbox = self._start_core(replica, recovering)
            self._is_running = True
            await self._transport.start(inbox)
        except BaseException:
            self._is_running = False
            self._log._destroy()
            self._syncs.close()
            raise
        self._wake()

    def _start_log_sync(self, run_noting: RunBlocking) -> LogSync:
        return LogSync(
            self._log, send=self._transport.send,
            start_blocking=self._start_sync,
            run_blocking=self._run_blocking if self._is_simulated else None,
            run_reserving=run_noting,
            in_place_seconds_max=self._sync_in_place_seconds_max,
            slow_seconds=self._raft.election_timeout_ms_max / 1000,
            on_durable=self._wake, on_failure=self._fail,
        )  # fmt: skip

    def _start_snapshots(self, replica: Replica, run_blocking: RunBlocking) -> SnapshotExchange:
        directory, piece_bytes = join(self._data_dir, "snapshots"), self._raft.snapshot_piece_bytes
        return SnapshotExchange(
            store=SnapshotStore(directory, self._disk, piece_bytes=piece_bytes),
            log=self._log, replica=replica, raft=self._raft,
            now_ms=self._clock.monotonic_ms, run_blocking=run_blocking,
            on_installed=self._wake, on_failure=self._fail,
            head_start=self._member_ids.index(self._member_id) / len(self._member_ids),
        )  # fmt: skip

    def _start_core(self, replica: Replica, recovering: Recovering) -> Inbox:
        run_blocking = noting_failures(self._run_blocking, self._log.fail)
        log_sync = self._start_log_sync(run_blocking)
        snapshots = self._start_snapshots(replica, run_blocking)
        owned = self._ownership
        assert owned is not None
        disk_health = DiskHealth(
            self._member_id, self._log, log_sync, snapshots,
            slow_ms=self._raft.election_timeout_ms_max,
        )  # fmt: skip
        self._entries.open(
            replica, self._log, owned,
            on_applied=snapshots.due.note_applied, refusal=disk_health.refusal,
        )  # fmt: skip
        context = RaftContext(
            self._member_id, self._others, log=self._log, raft=self._raft,
            random=self._random, now_ms=self._clock.monotonic_ms,
            send_now=self._transport.send, send_durable=log_sync.hold,
            recovering=recovering, trust=self._trust,
        )  # fmt: skip
        self._consensus = consensus = Consensus(
            context, self._entries, on_role=self._on_role,
            on_snapshot_needed=self._on_snapshot_needed, may_lead=lambda: disk_health.may_lead,
            applied_index=snapshots.load(),
        )  # fmt: skip
        self._desk.on_answered = consensus.on_answering
        incarnations = Incarnations(
            self._disk, self._data_dir, self._others, random=self._random,
            now_ms=self._clock.monotonic_ms, resend_ms=self._raft.heartbeat_interval_ms,
            send=self._transport.send, run_blocking=run_blocking,
            recovering=recovering, ownership=owned, on_met=lambda who: inbox.on_met(who),
            on_older_copy=consensus.on_older_copy,
            on_cluster_id=self._on_cluster_id, on_failure=self._fail,
        )  # fmt: skip
        self._passes = passes = Passes(
            self._run_loop, consensus=consensus, entries=self._entries, log=self._log,
            log_sync=log_sync, snapshots=snapshots, incarnations=incarnations,
            disk_health=disk_health, handovers=self._handovers, transport=self._transport,
            desk=self._desk, reads=self._reads, listeners=self._listeners,
            ownership=owned, now_ms=self._clock.monotonic_ms, on_failure=self._fail,
        )  # fmt: skip
        inbox = Inbox(
            self._desk, passes, member_count=len(self._others) + 1,
            is_running=lambda: self._is_running, may_install=lambda: owned.is_noted,
            on_lie=self._trust.distrust, on_failure=self._fail,
        )  # fmt: skip
        return inbox

    async def stop(self) -> None:
        """Hand over if this member leads, then end; waits some seconds at most."""
        if self._has_stopped():
            return
        if self._is_running and not self._handovers.is_stopping:
            await self._handovers.stop(self._consensus, self._wake)
            if self._has_stopped():
                return  # another caller stopped it meanwhile
        was_running, self._is_running = self._is_running, False
        passes = self._passes
        if passes is not None:
            passes.cancel()
            await passes.log_sync.stop()
            await passes.incarnations.stop()
        self._fail_waiters(ShuttingDownError(f"member {self._member_id} is stopping"))
        if passes is not None:
            await passes.snapshots.stop()
        await self._desk.stop()
        await self._transport.stop()
        is_unsynced = was_running and self._failure is None and self._log.is_dirty
        for step in (self._log.sync, self._log._destroy)[not is_unsynced :]:
            try:
                step()
            except Exception as error:  # it stops anyway, and acknowledged nothing of this
                logger.warning("member %s: closing its log: %s", self._member_id, error)
        self._syncs.close()

    def _has_stopped(self) -> bool:
        return not self._is_running and self._failure is None

    def _fail(self, error: BaseException) -> None:
        """Stop for good: never answer, acknowledge or vote again."""
        if self._failure is not None:
            return
        self._failure = error
        self._handovers.give_up()
        self._is_running = False
        # A disk's error says all there is to say; any other is a bug, and where it is matters.
        where = None if isinstance(error, StorageError) else error
        logger.critical("member %s stops: %s", self._member_id, error, exc_info=where)
        self._desk.silence()
        if self._passes is not None:
            self._passes.cancel()
            self._passes.log_sync.drop()
            self._passes.incarnations.drop()
        self._fail_waiters(ShuttingDownError(f"member {self._member_id} has failed: {error}"))
        # Cut off at once: peers must not believe in a leader that cannot write.
        self._closing = asyncio.get_running_loop().create_task(self._transport.stop())
        self._listeners.notify_failure(error)

    def _fail_waiters(self, error: ShuttingDownError) -> None:
        self._entries.fail_all(error)
        if self._consensus is not None:
            self._consensus.rounds.fail()
        self._reads.fail(error)

    def halt(self, error: BaseException, note: str) -> None:
        """Stop at once and for good; the next start is refused with ``note``."""
        quarantine(self._disk, self._data_dir, note)
        self._fail(error)

    def propose(self, command: bytes, *, is_patient: bool = False) -> Awaitable[Applied]:
        """Order, commit and apply ``command``; see ``Engine`` for what it raises."""
        try:
            consensus = self._consensus  # looked at here: ``_running`` is one more call for each
            if not self._is_running or consensus is None:
                consensus = self._running()
            self._handovers.refuse_unless_leading(consensus)
            waiter = self._entries.propose(command)
        except CoordinatorError as error:  # is raised to who awaits it, as any other
            waiter = asyncio.get_running_loop().create_future()
            waiter.set_exception(error)
            return waiter
        if is_patient:
            self._run_loop.wake_soon()
        elif not self._run_loop.is_woken:  # of many in one pass of the loop the first one wakes
            self._wake()
        return waiter

    async def read_barrier(self) -> int:
        """Return a read index that is applied here; NoLeaderError without a quorum."""
        index = await self._reads.barrier(self._running)
        self._running()  # of many who wait the last come late; it may have failed
        return index

    async def confirm_leadership(self) -> int:
        """Return the term that a quorum confirmed; NoLeaderError otherwise."""
        term = await self._reads.confirm(self._running())
        self._running()
        return term

    async def hand_over(self) -> None:
        """Have another member lead; see ``Engine``."""
        await self._handovers.hand_over(self._running(), self._wake)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose data are here; see ``Engine``."""
        return "" if self._ownership is None else self._ownership.cluster_id.hex()

    @property
    def led_ms(self) -> int | None:
        """A moment at which this member led; None: never."""
        return self._entries.led_ms

    async def wait_applied(self, index: int) -> None:
        """Return once ``index`` is applied here."""
        await self._reads.wait_applied(self._running(), index)
        self._running()

    async def request(self, member_id: str, kind: str, payload: bytes) -> bytes:
        """Return another member's answer; see ``Engine`` for what it raises."""
        self._running()
        if member_id not in self._others:
            raise NoLeaderError(f"no other member is called {member_id!r}")
        return await self._desk.ask(member_id, kind, payload)

    def on_request(self, kind: str, handler: RequestHandler, *, is_alone: bool = False) -> None:
        """Set the handler for requests of ``kind``; before ``start``."""
        self._desk.set_handler(kind, handler, is_alone=is_alone)

    def on_role_change(self, listener: RoleListener) -> None:
        """Add a listener for changes of the role; before ``start``."""
        self._listeners.of_role.append(listener)

    def on_leader_change(self, listener: LeaderListener) -> None:
        """Add a listener for changes of the known leader; before ``start``."""
        self._listeners.of_leader.append(listener)

    def on_failure(self, listener: Callable[[BaseException], None]) -> None:
        """Add a listener for the end of this member by a fault; before ``start``."""
        self._listeners.of_failure.append(listener)

    async def open_backup(self, facts: Callable[[], BackupFacts]) -> HeldBackup:
        """Return a backup of what is committed now; see ``Engine``."""
        await self.read_barrier()
        core = self._running().core
        while not self._entries.is_between_entries:  # the state holds a part of the next one
            await self.wait_applied(core.applied_index + 1)
        applied_index = core.applied_index
        assert self._passes is not None
        reader = self._passes.snapshots.open_newest()
        try:
            entries = entries_behind(reader, self._log, applied_index)
            backup = HeldBackup(reader, entries, facts(), self.member_id, self.cluster_id)
            for _ in backup.prepare():
                await asyncio.sleep(0)
        except BaseException:
            if reader is not None:
                reader.close()
            raise
        return backup

    def status(self) -> EngineStatus:
        """Return what this member knows of itself and of the others now."""
        if self._passes is None:
            return status.status_before_start(self._member_id, self._others)
        return status.status(
            self._passes, self._transport, self._trust, self._others, is_running=self._is_running
        )

    @property
    def term(self) -> int:
        """The term of this member; 0 before it has started."""
        return 0 if self._consensus is None else self._consensus.core.term

    @property
    def leader_id(self) -> str | None:
        """The leader that this member follows, or itself; None: none is known."""
        return self._consensus.leader_id if self._consensus and self._is_running else None

    def contact_age_ms(self) -> int | None:
        """Return how long ago this member heard its leader or, leading, a quorum; None: never."""
        return None if self._consensus is None else self._consensus.contact_age_ms()

    def metrics(self) -> Mapping[str, float]:
        """Return counters and gauges by name; times in seconds, sizes in bytes."""
        found = status.figures_of_traffic(self._entries, self._trust)
        if self._passes is not None:
            found |= status.figures_of_storage(self._passes, self._log)
        return found

    def _running(self) -> Consensus:
        if not self._is_running or self._consensus is None:
            raise ShuttingDownError(f"member {self._member_id} does not run")
        return self._consensus

    def _on_role(self, role: Role) -> None:
        if role is not Role.LEADER:
            self._entries.step_down(self._member_id)
            if self._passes is not None:
                self._passes.snapshots.forget_all()
                self._passes.notify_role(role)

    def _on_snapshot_needed(self, member_id: str) -> None:
        passes = self._passes
        assert passes is not None
        is_connected = self._transport.is_connected(member_id)
        passes.snapshots.send(passes.consensus, member_id, is_connected)

    def _on_founding(self, cluster_id: bytes) -> None:
        assert self._ownership is not None
        self._ownership.confirm(cluster_id)
        self._on_cluster_id(cluster_id)

    def _on_cluster_id(self, cluster_id: bytes) -> None:
        self._transport.agree_on([fact_of_id(cluster_id)])

    # Passes of the run loop.

    def _wake(self) -> None:
        if self._is_running:
            self._run_loop.wake()

    def _pass(self) -> None:
        if not self._is_running or self._passes is None:
            return
        try:
            self._passes.run()
        except Exception as error:
            self._fail(error)
