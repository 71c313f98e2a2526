"""The state machine: applies commands to the tree, sessions, queues and the exactly-once table.

``StateMachine.apply(command, index, term) -> Outcome``. Everything uncertain is decided before the
proposal and carried in the command. Events are part of the outcome. The laws (tests/state names
each of them):

 1. *Total*: any decodable command returns an outcome. An exception out of ``apply`` is a broken
    invariant, and the member must stop.
 2. *All or nothing*: a refused command changes no znode and no zxid.
 3. *Deterministic*: same snapshot and commands, same outcomes and digest, on any member.
 4. *Snapshots are transparent*: restoring one changes nothing afterwards.
 5. *zxid* grows by exactly one for each command that changed the tree, the sessions or the locks.
    Outcomes remembered for retries do not count, and limits have a version of their own. The zxid
    is kept beside the log index and is never lowered.
 6. *Order*: whatever reaches an outcome, an event or a snapshot has a defined order.
 7. *Ephemerals* belong to one session, open or leaving, and are deleted with it; if there are
    many, in several commands.
 8. *Sequence* numbers of one parent never repeat.
 9. *Once*: a repeated request gets its first outcome again.
10. *No clocks*: wall time only labels; no decision reads it.

Ephemerals of a session are deleted deepest first, then by path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from coordinator.errors import CoordinatorError
from coordinator.model.limits import UNSET, MachineLimits
from coordinator.state import paths
from coordinator.state.commands import (
    Abandon,
    Check,
    CloseSession,
    Command,
    Create,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExpireSession,
    FinishGrants,
    FinishSession,
    Guarded,
    Multi,
    Note,
    OpenSession,
    Reap,
    Release,
    Reopen,
    RequestId,
    Resize,
    Revoke,
    SetData,
    SetLimits,
)
from coordinator.state.dedup import ReleasedTable, RequestTable
from coordinator.state.limits import LimitsRecord
from coordinator.state.locks.contender import Departure
from coordinator.state.locks.departures import departure_of
from coordinator.state.locks.operations import (
    REASON_CHARACTERS_MAX,
    LockOperations,
    check_text,
)
from coordinator.state.locks.queues import LockTable
from coordinator.state.locks.reads import LockReads
from coordinator.state.locks.release import ContenderOperations
from coordinator.state.multi import MultiOperations
from coordinator.state.operations import ZnodeOperations
from coordinator.state.outcomes import (
    Abandoned,
    Entered,
    GrantsFinished,
    LimitsSet,
    Outcome,
    Refusal,
    Result,
    SessionEnded,
    SessionFinished,
    Stat,
)
from coordinator.state.session_operations import SessionOperations
from coordinator.state.sessions import SessionRecord, SessionTable
from coordinator.state.slices import Cursor, Slice, Whole, slice_at
from coordinator.state.snapshot import Capture, decode_snapshot, digest_of, encode_snapshot
from coordinator.state.tree import IdleZnode, Tree


class StateMachine:
    """The replicated state, and the one way to change it."""

    def __init__(self, limits: MachineLimits = UNSET) -> None:
        """Begin empty. ``limits`` hold until a command sets others; a member passes none."""
        self._zxid = 0
        self._applied_index = 0
        self._term = 0
        self._command: Command | None = None
        self._departs_as: Departure | None = None
        """How the contenders that this command deletes depart; filled on first use."""
        self._adopt(
            LimitsRecord(limits),
            Tree(),
            SessionTable(limits),
            RequestTable(limits),
            ReleasedTable(limits.released_grants_max),
            LockTable(limits),
        )

    def _adopt(
        self,
        record: LimitsRecord,
        tree: Tree,
        sessions: SessionTable,
        requests: RequestTable,
        released: ReleasedTable,
        locks: LockTable,
    ) -> None:
        """Put the parts of a state together: the operations around the tables, with its limits."""
        self._limits_record = record
        limits = record.limits
        self._tree = tree
        self._sessions = sessions
        self._requests = requests
        self._released = released
        self._locks = locks
        self._lock_reads = LockReads(locks)
        operations = ZnodeOperations(tree, sessions, locks, limits)
        several = MultiOperations(operations, limits)
        self._contenders = ContenderOperations(
            tree, sessions=sessions, requests=requests, released=released, locks=locks,
            limits=limits,
        )  # fmt: skip
        self._lock_operations = LockOperations(
            tree, sessions=sessions, locks=locks, operations=operations, limits=limits
        )
        self._session_operations = SessionOperations(
            tree,
            sessions=sessions,
            requests=requests,
            locks=locks,
            lock_operations=self._lock_operations,
        )
        self._handlers: dict[type, Callable[..., Result]] = {
            Create: operations.create,
            SetData: operations.set_data,
            Delete: operations.delete,
            Check: operations.check,
            Multi: several.multi,
            Guarded: several.guarded,
            OpenSession: lambda each: self._session_operations.open(each, self._applied_index),
            CloseSession: self._close_session,
            ExpireSession: self._expire_session,
            FinishSession: self._finish_session,
            Release: self._contenders.release,
            Abandon: self._abandon,
            Reap: lambda each: self._contenders.reap(each, self._term),
            Enter: lambda each: self._session_operations.enter(each, self._applied_index),
            Downgrade: self._lock_operations.downgrade,
            Resize: self._lock_operations.resize,
            Note: self._lock_operations.note,
            Revoke: self._lock_operations.revoke,
            EndHold: lambda each: self._lock_operations.end_hold(each, self._term),
            Reopen: lambda each: self._lock_operations.reopen(each, self._term),
            FinishGrants: self._finish_grants,
            SetLimits: self._set_limits,
        }

    # --- apply

    def apply(self, command: Command, index: int, term: int) -> Outcome:
        """Apply one committed command of the log entry ``index`` of ``term``.

        Commands of one entry share its index. Never raises for anything that can be decoded.
        """
        assert index >= self._applied_index, "commands are applied in the order of the log"
        self._applied_index = index
        self._term = term
        request = command.request
        if request is None:
            return self._perform(command)
        try:
            known = self._recall(command, request)
        except CoordinatorError as error:
            return self._refused(error)
        is_bound = request.client_id in self._sessions
        if known is not None:
            self._requests.touch(request.client_id, index=index, is_bound=is_bound)
            if type(known.result) is Entered:
                self._locks.note_repeated(known.result.contenders)
            return known
        outcome = self._perform(command)
        if not self._requests.is_ended(request.client_id):
            self._requests.remember(
                request, outcome, index=index, is_bound=request.client_id in self._sessions
            )
        return outcome

    def _recall(self, command: Command, request: RequestId) -> Outcome | None:
        operation = command.operation
        if (
            type(operation) is CloseSession
            and operation.session_id == request.client_id
            and self._requests.is_ended(request.client_id)
        ):
            # Closing is idempotent, also when the client's record was dropped with the session.
            return None
        return self._requests.recall(request, self._sessions.find(request.client_id))

    def _perform(self, command: Command) -> Outcome:
        tree, locks = self._tree, self._locks
        self._sessions.is_changed = False
        self._departs_as = None
        tree.begin(self._zxid + 1, command.wall_ms)
        locks.begin()
        self._command = command
        operation = command.operation
        try:
            if command.if_held:
                self._lock_operations.check_held(command.if_held)
            result = self._handlers[type(operation)](operation)
        except CoordinatorError as error:
            tree.rollback()
            locks.discard()
            assert not self._sessions.is_changed, "sessions change last, when nothing is refused"
            return self._refused(error)
        granted = locks.settle(tree, self._departure) if tree.events or locks.is_changed else ()
        if type(result) is GrantsFinished:
            result = GrantsFinished(len(locks.ungranted))
        if tree.is_changed or self._sessions.is_changed or locks.is_changed:
            self._zxid += 1
        return Outcome(self._zxid, result, None, tree.commit(), False, granted)

    def _departure(self) -> Departure:
        assert self._command is not None, "a command is being settled"
        if self._departs_as is None:
            self._departs_as = departure_of(self._command, self._term)
        return self._departs_as

    def _refused(self, error: CoordinatorError) -> Outcome:
        return Outcome(self._zxid, None, Refusal(error.code, error.message, error.fields))

    # --- sessions

    def _close_session(self, operation: CloseSession) -> SessionEnded:
        check_text("failure", operation.failure, REASON_CHARACTERS_MAX)
        departure = self._departure()
        return self._session_operations.end(operation.session_id, operation.at_once, departure)

    def _expire_session(self, operation: ExpireSession) -> SessionEnded:
        if operation.term != self._term:
            return SessionEnded(operation.session_id, was_open=False, is_void=True)
        departure = self._departure()
        return self._session_operations.end(operation.session_id, operation.at_once, departure)

    def _finish_session(self, operation: FinishSession) -> SessionFinished:
        self._departs_as = self._sessions.leaving.get(operation.session_id)
        return self._session_operations.finish(operation)

    def _abandon(self, operation: Abandon) -> Abandoned:
        assert self._command is not None, "a command is being applied"
        return self._contenders.abandon(operation, self._command.request, self._applied_index)

    def _finish_grants(self, _operation: FinishGrants) -> GrantsFinished:
        self._locks.go_on_granting()
        return GrantsFinished(0)  # put right when it is settled

    def _set_limits(self, operation: SetLimits) -> LimitsSet:
        record = self._limits_record
        changed = record.after(operation, self._tree.wall_ms)
        if changed is not record:
            limits = changed.limits
            self._sessions.limits = self._requests.limits = limits
            self._released.count_max = limits.released_grants_max
            self._locks.use(limits)
            self._adopt(
                changed, self._tree, self._sessions, self._requests, self._released, self._locks
            )
        return LimitsSet(changed.version, changed.changes_since(record))

    def skip_zxids(self, count: int) -> None:
        """Skip this many zxids. No command does; only a cluster that is founded again."""
        self._zxid += count

    # --- reads

    @property
    def zxid(self) -> int:
        """The zxid of the last change."""
        return self._zxid

    @property
    def applied_index(self) -> int:
        """The index of the last entry that was applied."""
        return self._applied_index

    @property
    def limits(self) -> MachineLimits:
        """The limits that hold now."""
        return self._limits_record.limits

    @property
    def limits_record(self) -> LimitsRecord:
        """The limits, how often they were set, and the rules this state began with."""
        return self._limits_record

    @property
    def locks(self) -> LockReads:
        """The queues of locks and elections, and the history of their grants."""
        return self._lock_reads

    @property
    def znode_count(self) -> int:
        """The number of znodes, the root included."""
        return len(self._tree)

    @property
    def session_count(self) -> int:
        """How many sessions are open."""
        return len(self._sessions)

    def largest_address(self) -> tuple[str, int]:
        """Return the address with the most open sessions, and their number."""
        return self._sessions.largest_address()

    @property
    def client_count(self) -> int:
        """The number of clients whose requests are remembered."""
        return len(self._requests)

    @property
    def data_bytes(self) -> int:
        """The data of all znodes."""
        return self._tree.data_bytes

    @property
    def state_bytes(self) -> int:
        """What counts against ``state_bytes_max``."""
        return self._tree.state_bytes

    @property
    def remembered_bytes(self) -> int:
        """What counts against ``remembered_bytes_max``."""
        return self._requests.remembered_bytes

    def get(self, path: str) -> tuple[bytes, Stat] | None:
        """Return data and Stat, None when there is no such znode."""
        znode = self._tree.find(path)
        return None if znode is None else (znode.data, znode.stat())

    def data(self, path: str) -> bytes | None:
        """Return the data of a znode, None if there is none."""
        znode = self._tree.find(path)
        return None if znode is None else znode.data

    def stat(self, path: str) -> Stat | None:
        """Return the Stat of a znode, None if there is none."""
        znode = self._tree.find(path)
        return None if znode is None else znode.stat()

    def children(
        self, path: str, after: str | None = None, limit: int | None = None
    ) -> list[str] | None:
        """Return the names of children, sorted, at most ``limit`` of those behind ``after``.

        None when there is no such znode.
        """
        if self._tree.find(path) is None:
            return None
        return self._tree.names(path, after, limit)

    def children_with_stat(
        self, path: str, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, Stat]] | None:
        """Return what ``children`` does, each name with its Stat."""
        names = self.children(path, after, limit)
        if names is None:
            return None
        found: list[tuple[str, Stat]] = []
        for name in names:
            znode = self._tree.find(paths.join(path, name))
            assert znode is not None, "a listed child is there"
            found.append((name, znode.stat()))
        return found

    def session(self, session_id: str) -> SessionRecord | None:
        """Return an open session, None if there is none."""
        return self._sessions.find(session_id)

    def sessions(self, after_zxid: int = 0, limit: int | None = None) -> Iterator[SessionRecord]:
        """Iterate over the sessions opened after ``after_zxid``, in that order, and still open."""
        return iter(self._sessions.page(after_zxid, limit))

    def leaving_sessions(self) -> tuple[str, ...]:
        """Return the sessions that have ended and own ephemerals still, the first ended first."""
        return tuple(self._sessions.leaving)

    def ephemerals_of(self, session_id: str) -> tuple[str, ...]:
        """Return the paths of the session's ephemeral znodes, as they entered the tree."""
        return tuple(self._tree.some_ephemerals(session_id))

    def ephemeral_count(self, session_id: str) -> int:
        """Return how many ephemeral znodes a session has."""
        return self._tree.ephemeral_count(session_id)

    def idle_paths(self) -> list[str]:
        """Return what may be reaped: empty containers that had a child, ttl znodes without one."""
        return self._tree.idle_paths()

    def idle(self, path: str) -> IdleZnode | None:
        """Return the znode if it may be reaped now."""
        return self._tree.idle(path)

    # --- snapshots

    def snapshot(self) -> Iterator[bytes]:
        """Capture the state now; return an iterator that encodes it in pieces, when drawn."""
        return encode_snapshot(self._capture())

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state by a snapshot's, verified whole before anything is replaced.

        Raises:
            ValueError: it is damaged, of another format, or older than this state.
        """
        self.prepare_restore(pieces)()

    def prepare_restore(self, pieces: Iterable[bytes]) -> Callable[[], None]:
        """Decode a snapshot, leaving this state alone; return what replaces this state by it.

        The decoding reads nothing that changes, so another thread may do it; what is returned is
        quick, and belongs to the thread of the state. Both raise as ``restore`` does.
        """
        capture = decode_snapshot(pieces)
        tree = Tree.of(capture.znodes.items(), capture.sequence_floor)
        limits = capture.limits.limits
        sessions = SessionTable(limits, capture.sessions, capture.leaving)
        for owner in tree.owners():
            if owner not in sessions and owner not in sessions.leaving:
                raise ValueError(f"snapshot: session {owner} owns znodes and is not open")
        requests = RequestTable(limits, capture.requests)
        released = ReleasedTable(limits.released_grants_max, capture.released)
        locks = LockTable.of(tree, limits, capture.locks)

        def replace() -> None:
            if capture.zxid < self._zxid or capture.applied_index < self._applied_index:
                raise ValueError(
                    f"snapshot: expected zxid {self._zxid} and index {self._applied_index} or "
                    f"later, found {capture.zxid} and {capture.applied_index}"
                )
            self._adopt(capture.limits, tree, sessions, requests, released, locks)
            self._zxid = capture.zxid
            self._applied_index = capture.applied_index

        return replace

    def digest(self) -> str:
        """Return SHA-256 (hex) over the replicated state, remembered outcomes included.

        The applied index is left out: a command that changes nothing leaves the digest alone.
        """
        return digest_of(self._capture())

    def slice_at(self, cursor: Cursor) -> Slice:
        """Digest a bounded part of the state, to be compared with that of other members."""
        return slice_at(self._whole(), cursor)

    def _whole(self) -> Whole:
        return Whole(
            self._zxid, self._applied_index, self._limits_record, self._tree, self._sessions,
            self._requests, self._released, self._locks,
        )  # fmt: skip

    def _capture(self) -> Capture:
        znodes, hold = self._tree.capture_znodes()
        return Capture(
            applied_index=self._applied_index,
            zxid=self._zxid,
            limits=self._limits_record,
            sequence_floor=self._tree.sequence_floor,
            znodes=znodes,
            hold=hold,
            sessions=tuple(self._sessions),
            leaving=tuple(self._sessions.leaving.items()),
            requests=self._requests.capture(),
            released=self._released.capture(),
            locks=self._locks.capture(),
        )
