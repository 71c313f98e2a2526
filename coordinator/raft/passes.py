"""The passes of a member's run loop: what it does whenever something has come or is due.

One pass does, in this order:

1. a follower makes its log durable and acknowledges it;
2. commit what a quorum holds; log the proposals that wait, as one entry;
3. hand appends, commit notices and probes to the network;
4. make durable what is not, once;
5. hand acknowledgements and votes to the network;
6. apply what is committed;
7. tell of what has changed, and look at what is due by the clock.

If one short entry is all that is to be applied, a client probably waits for it alone. Then a leader
leaves commit notices and step 7 until its answer has left.

So the disks of a leader and its followers work at the same time, nothing is promised before it is
durable, and no other member waits while this one applies, which takes longest. Most messages of an
idle cluster say what was said before, and need no pass.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.raft.consensus import Consensus
from coordinator.raft.disk_health import DiskHealth
from coordinator.raft.engine import Role
from coordinator.raft.entries import Entries
from coordinator.raft.handover import Handovers
from coordinator.raft.listeners import Listeners
from coordinator.raft.network.rpc import RequestDesk
from coordinator.raft.network.transport import MemberTransport
from coordinator.raft.pass_end import AtPassEnd
from coordinator.raft.read_index import ReadIndex
from coordinator.raft.rejoin.incarnations import Incarnations
from coordinator.raft.run_loop import RunLoop
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.ownership import Ownership
from coordinator.raft.storage.snapshot_exchange import SnapshotExchange
from coordinator.raft.storage.sync import TRY_AGAIN_S, LogSync

BUSY_PROPOSALS = 16
"""With so many under way a leader has other work than to wait for its own sync."""


class Passes:
    """The passes of one member that has started, and the parts that take part in them."""

    def __init__(
        self,
        run_loop: RunLoop,
        *,
        consensus: Consensus,
        entries: Entries,
        log: Journal,
        log_sync: LogSync,
        snapshots: SnapshotExchange,
        incarnations: Incarnations,
        disk_health: DiskHealth,
        handovers: Handovers,
        transport: MemberTransport,
        desk: RequestDesk,
        reads: ReadIndex,
        listeners: Listeners,
        ownership: Ownership,
        now_ms: Callable[[], int],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._run_loop = run_loop
        self.consensus = consensus
        self.log_sync = log_sync
        self.snapshots = snapshots
        self.incarnations = incarnations
        self.disk_health = disk_health
        self._entries = entries
        self._log = log
        self._handovers = handovers
        self._transport = transport
        self._desk = desk
        self._reads = reads
        self._listeners = listeners
        self._ownership = ownership
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._is_caught_up = False
        self._last: tuple[object, ...] = ()
        """The position after the last pass."""
        self._rest = AtPassEnd(self._finish_late)
        """The end of a pass that let an answer leave first."""

    def run(self) -> None:
        """Do all that can be done now; what it raises stops the member."""
        consensus, log_sync = self.consensus, self.log_sync
        self._entries.proposals.begin_pass()
        may_wait = self._entries.in_flight < BUSY_PROPOSALS
        if log_sync.left is not None:
            log_sync.settle(is_needed=consensus.is_own_log_awaited(), may_wait=may_wait)
        if consensus.core.role is not Role.LEADER:
            log_sync.sync(may_wait=may_wait)  # a leader's appends come before its own disk
            self._transport.flush()
        consensus.tick()
        is_little = consensus.core.has_little_to_apply()
        is_answered_first = is_little and self._may_answer_first(consensus)
        if not is_answered_first:
            consensus.send_commit_index()
        is_overtaken = self.disk_health.look(consensus)
        if is_overtaken or self._handovers.current is not None:
            self._handovers.step(consensus, self._entries.in_flight, is_overtaken=is_overtaken)
        self._transport.flush()
        log_sync.sync(may_leave=consensus.is_leader_of_others, may_wait=may_wait)
        self._transport.flush()
        consensus.core.apply()
        if self._handovers.current is not None:  # it may have waited for what is answered now
            self._handovers.step(consensus, self._entries.in_flight, is_overtaken=False)
            self._transport.flush()
        self._reads.on_applied(consensus.core.applied_index)
        if is_answered_first and not self._has_more_to_do(consensus):
            self._last = consensus.position()
            self._rest.leave()
        else:
            self._finish(consensus)

    def _may_answer_first(self, consensus: Consensus) -> bool:
        """Whether nothing has changed at this leader but what is committed, and nothing is left."""
        if self._listeners.role is not Role.LEADER or self._rest.is_left:
            return False
        return consensus.position()[:3] == self._last[:3]

    def _finish_late(self) -> None:
        try:
            self.consensus.send_commit_index()
            self._transport.flush()
            self._finish(self.consensus)
        except Exception as error:
            self._on_failure(error)

    def _has_more_to_do(self, consensus: Consensus) -> bool:
        return consensus.has_more_to_do() or self._entries.proposals.is_cut_off

    def _finish(self, consensus: Consensus) -> None:
        """Tell others what has changed, and set when the next pass is due."""
        core = consensus.core
        self._rest.take_back()
        self.incarnations.tick((core.term, self._log.durable_index), consensus.leader_id)
        position, last = consensus.position(), self._last
        if position[:-1] != last[:-1]:  # a commit alone says nothing of the leader
            self.notify_leader()
        if self._listeners.role is not Role.LEADER and consensus.is_leader_ready:
            self.notify_role(Role.LEADER)
        if consensus.recovering.caught_up is not None:
            consensus.recovering.maybe_end(self._log.durable_index, self._now_ms())
        if not self._is_caught_up:
            self.is_ready()
        if self._entries.is_between_entries and self._ownership.is_noted:
            self.snapshots.maybe_make(core.applied_index)
        if self.snapshots.streams:
            self.snapshots.resend(consensus)
        self._last = position
        if self._has_more_to_do(consensus):
            self._run_loop.wake()
        due_ms = consensus.due_ms()
        if self._log.is_full:
            due_ms = min(due_ms, self._now_ms() + int(TRY_AGAIN_S * 1000))
        self._run_loop.set_due(due_ms)

    def cancel(self) -> None:
        """Make no more passes, and do not end one that was begun."""
        self._run_loop.cancel()
        self._rest.take_back()

    # Between two passes.

    def on_heard(self, is_routine: bool) -> None:
        """Ask for a pass if a message may have changed something; a routine one rarely has."""
        if self._run_loop.is_woken:
            return
        position, last = self.consensus.position(), self._last
        has_moved = position != last
        if has_moved and position[:-1] != last[:-1]:
            self.notify_leader()
        if has_moved or not is_routine or not self._is_settled():
            self._run_loop.wake()

    def _is_settled(self) -> bool:
        """Whether a pass would find nothing to do, where all is as the last one left it."""
        return (
            self.consensus.is_settled()
            and self.log_sync.is_settled and self.snapshots.is_settled
            and self.incarnations.is_settled and self._handovers.current is None
        )  # fmt: skip

    # What others are told.

    def notify_role(self, role: Role) -> None:
        """Call the listeners if this member's role has changed."""
        # The library reports a candidate just before it moves to the candidate's term.
        self._listeners.notify_role(role, self.consensus.core.term + (role is Role.CANDIDATE))

    def notify_leader(self) -> None:
        """Call the listeners if the leader known here has changed."""
        consensus = self.consensus
        before = self._listeners.notify_leader(consensus.leader_id, consensus.core.term)
        if before is not None:
            self._desk.on_leader_lost(before)

    def is_ready(self) -> bool:
        """Whether this member has caught up and is not known to be far behind."""
        consensus = self.consensus
        if not self._is_caught_up:
            target = consensus.following.first_commit_index
            is_reached = target is not None and consensus.core.applied_index >= target
            self._is_caught_up = consensus.is_leader_ready or is_reached
        if consensus.core.role is Role.LEADER:
            return consensus.is_leader_ready
        is_fit = consensus.recovering.is_proven and not consensus.following.is_out_of_reach()
        return self._is_caught_up and is_fit and not self.snapshots.is_needed
