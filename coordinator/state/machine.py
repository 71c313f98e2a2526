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

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from coordinator.errors import (
    AuthFailedError,
    CoordinatorError,
    RequestForgottenError,
    SessionExpiredError,
)
from coordinator.model.limits import UNSET, MachineLimits
from coordinator.state.access.guard import BY_MEMBERS
from coordinator.state.access.quotas import Quotas, creator_of
from coordinator.state.access.table import AccessTable
from coordinator.state.commands import (
    Caller,
    CloseSession,
    Command,
    RequestId,
    SetLevel,
    SetLimits,
)
from coordinator.state.dedup import ReleasedTable, RequestTable
from coordinator.state.former import freed
from coordinator.state.handlers import Handlers
from coordinator.state.limits import LimitsRecord
from coordinator.state.locks.queues import LockTable
from coordinator.state.locks.reads import LockReads
from coordinator.state.outcomes import (
    Entered,
    GrantsFinished,
    LevelSet,
    LimitsSet,
    Outcome,
    Refusal,
    Stat,
)
from coordinator.state.restored import restored
from coordinator.state.sessions import SessionRecord, SessionTable
from coordinator.state.slice_room import Cursor
from coordinator.state.slices import Slice, Whole, slice_at, slice_count
from coordinator.state.snapshot import Capture, decode_snapshot, digest_of, encode_snapshot
from coordinator.state.tree import IdleZnode, Tree, Values
from coordinator.state.znode_changes import stat_of


class Replacing(Protocol):
    """Replaces a state; the iterator frees what is not used any more."""

    def __call__(self, *, is_needed: bool = True) -> Iterator[None]: ...


class StateMachine:
    """The replicated state, and the one way to change it."""

    def __init__(self, limits: MachineLimits = UNSET) -> None:
        """Begin empty. ``limits`` hold until a command sets others; a member passes none."""
        self._zxid = 0
        self._applied_index = 0
        self._term = 0
        self._adopt(
            Whole(
                0, 0, LimitsRecord(limits), Tree(), SessionTable(limits), RequestTable(limits),
                ReleasedTable(limits.released_grants_max), LockTable(limits), AccessTable(),
            )
        )  # fmt: skip

    def _adopt(self, whole: Whole) -> None:
        """Make this the state: the operations around its tables, with its limits."""
        self._limits_record = whole.limits
        self._tree = whole.tree
        self._sessions = whole.sessions
        self._requests = whole.requests
        self._released = whole.released
        self._locks = whole.locks
        self.access = whole.access
        """Who may do what."""
        self.locks = LockReads(whole.locks)
        """The queues of locks and elections, and the history of their grants."""
        self._handlers = Handlers(whole, self._set_limits, self._set_level)

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
        caller = command.caller
        session = self._sessions.binding(request.client_id)
        try:
            if self.access.is_on or caller.credential:
                self._handlers.guard.check_client(caller, request.client_id, session)
            known = self._recall(command, request, session)
        except AuthFailedError as error:
            return self._unproved(command, request, error)
        except CoordinatorError as error:
            return self._refused(error)
        if known is not None:
            self._requests.touch(request.client_id, index=index, is_bound=session is not None)
            if type(known.result) is Entered:
                self._locks.note_repeated(known.result.contenders)
            return known
        outcome = self._perform(command)
        if not self._requests.is_ended(request.client_id):
            if self._sessions.is_changed:
                session = self._sessions.binding(request.client_id)
            is_bound, owner = session is not None, self.access.owner(caller)
            self._requests.remember(request, outcome, index=index, is_bound=is_bound, owner=owner)
        return outcome

    def _unproved(self, command: Command, request: RequestId, error: AuthFailedError) -> Outcome:
        """Refuse a request whose credential is gone: for certain only if it never came before.

        Nothing is remembered of it: what is gone never comes back."""
        try:
            if self._recall(command, request, self._sessions.binding(request.client_id)) is None:
                return self._refused(error)
        except SessionExpiredError:
            pass
        except CoordinatorError as earlier:
            return self._refused(earlier)
        return self._refused(
            RequestForgottenError(
                f"request {request.number} of client {request.client_id}: it may have been done, "
                f"and what it came to is not told any more: {error.message}",
                client_id=request.client_id,
                number=request.number,
            )
        )

    def _recall(
        self, command: Command, request: RequestId, session: SessionRecord | None
    ) -> Outcome | None:
        """Return the first outcome of a request; ``session`` is what its client is bound to."""
        operation = command.operation
        if (
            type(operation) is CloseSession
            and operation.session_id == request.client_id
            and self._requests.is_ended(request.client_id)
        ):
            # Closing is idempotent, also when the client's record was dropped with the session.
            return None
        return self._requests.recall(request, session)

    def _perform(self, command: Command) -> Outcome:
        tree, locks, handlers = self._tree, self._locks, self._handlers
        self._sessions.is_changed = self.access.is_changed = False
        tree.begin(self._zxid + 1, command.wall_ms, self._creator(command))
        locks.begin()
        try:
            self.check_rights(command)
            result = handlers.run(command, self._applied_index, self._term)
        except CoordinatorError as error:
            tree.rollback()
            locks.discard()
            assert not self._sessions.is_changed, "sessions change last, when nothing is refused"
            assert not self.access.is_changed, "as sessions do"
            return self._refused(error)
        is_settled = not (tree.events or locks.is_changed)
        granted = () if is_settled else locks.settle(tree, handlers.departure)
        if type(result) is GrantsFinished:
            result = GrantsFinished(len(locks.ungranted))
        if (
            tree.is_changed
            or self._sessions.is_changed
            or locks.is_changed
            or self.access.is_changed
        ):
            self._zxid += 1
        return Outcome(self._zxid, result, None, tree.commit(), False, granted)

    def _creator(self, command: Command) -> str:
        """Return as whose the znodes count that a command creates."""
        if not self.access.is_on or type(command.operation) in BY_MEMBERS:
            return ""
        return creator_of(command.caller)

    def _refused(self, error: CoordinatorError) -> Outcome:
        return Outcome(self._zxid, None, Refusal(error.code, error.message, error.fields))

    def _set_limits(self, operation: SetLimits) -> LimitsSet:
        record = self._limits_record
        changed = record.after(operation, self._tree.wall_ms)
        if changed is not record:
            limits = changed.limits
            self._sessions.limits = limits
            self._requests.use(limits)
            self._released.count_max = limits.released_grants_max
            self._locks.use(limits)
            self._handlers.retire()
            self._adopt(replace(self._whole(), limits=changed))
        return LimitsSet(changed.version, changed.changes_since(record))

    def _set_level(self, operation: SetLevel) -> LevelSet:
        before = self._limits_record
        self._limits_record = before.at_level(operation)
        return LevelSet(operation.level, self._limits_record is not before)

    def continue_from(self, index: int, zxid: int, sequence: int) -> None:
        """Continue with higher numbers: the entry ``index`` was the last, the next zxid is above
        ``zxid``, and no sequence number is below ``sequence``. No command does; only a cluster that
        is founded again."""
        assert index >= self._applied_index, "an index is never lowered"
        assert zxid >= self._zxid, "nor is a zxid"
        assert sequence >= self.highest_sequence, "nor is a sequence number"
        self._applied_index = index
        self._zxid = zxid
        self._tree.least_sequence = sequence

    # --- reads

    @property
    def zxid(self) -> int:
        """The zxid of the last change."""
        return self._zxid

    @property
    def highest_sequence(self) -> int:
        """The highest sequence number that any parent may give next; looks at all znodes."""
        return self._tree.highest_sequence()

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
    def level(self) -> int:
        """The level of the state (``levels``)."""
        return self._limits_record.level

    @property
    def quotas(self) -> Quotas:
        """How much each identity has, and may have."""
        return self._handlers.quotas

    def check_session(self, caller: Caller, session_id: str) -> None:
        """Check that ``caller`` may use an open session; raises AuthFailed or NoAuth."""
        self._handlers.guard.check_session(caller, session_id)

    def check_rights(self, command: Command) -> None:
        """Check that the caller of ``command`` may do it; raises as ``CommandGuard.check``."""
        if self.access.is_on or command.caller.credential:
            self._handlers.guard.check(command)

    def has_seen(self, request: RequestId) -> bool:
        """Whether a request came before, as far as its client is known still."""
        return self._requests.has_seen(request)

    def revoked_sessions(self, limit: int) -> list[str]:
        """Return at most ``limit`` sessions still to be ended: their credential was revoked."""
        return self._sessions.revoked_sessions(limit)

    @property
    def values(self) -> Values:
        """The data after and before each event of the command applied last. The same on every
        member, and no part of the state."""
        return self._tree.values

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
    def data_bytes(self) -> int:
        """The data of all znodes."""
        return self._tree.data_bytes

    @property
    def state_bytes(self) -> int:
        """The size that counts against ``state_bytes_max``."""
        return self._tree.state_bytes

    @property
    def remembered_bytes(self) -> int:
        """The size that counts against ``remembered_bytes_max``."""
        return self._requests.remembered_bytes

    def get(self, path: str) -> tuple[bytes, Stat] | None:
        """Return data and Stat, None when there is no such znode."""
        znode = self._tree.find(path)
        return None if znode is None else (znode.data, stat_of(znode))

    def data(self, path: str) -> bytes | None:
        """Return the data of a znode, None if there is none."""
        znode = self._tree.find(path)
        return None if znode is None else znode.data

    def stat(self, path: str) -> Stat | None:
        """Return the Stat of a znode, None if there is none."""
        znode = self._tree.find(path)
        return None if znode is None else stat_of(znode)

    def children(
        self, path: str, after: str | None = None, limit: int | None = None
    ) -> list[str] | None:
        """Return the names of children, sorted, at most ``limit`` of those behind ``after``.

        None when there is no such znode.
        """
        if self._tree.find(path) is None:
            return None
        return self._tree.names(path, after, limit)

    def session(self, session_id: str) -> SessionRecord | None:
        """Return an open session, None if there is none."""
        return self._sessions.find(session_id)

    def is_session_kept(self, session_id: str) -> bool:
        """Whether a session is open, or revoked and still to be ended."""
        return self._sessions.is_kept(session_id)

    def session_count_of(self, *, identity: str = "", address: str = "") -> int:
        """Return how many open sessions an identity has, or else an address."""
        if identity:
            return self._sessions.count_of(identity)
        return self._sessions.shares(address, "")[0]

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

    def merge_some(self) -> bool:
        """Merge some of what was changed while a snapshot was captured that is let go of; return
        whether more is left. The next snapshot merges the rest in one step."""
        locks = self._locks
        left = [each.merge_some() for each in (locks.contenders, locks.sizes, locks.closings)]
        left += [self._tree.merge_some(), self._requests.merge_some(), self._released.merge_some()]
        return True in left

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state by a snapshot's, verified whole before anything is replaced.

        Raises:
            ValueError: it is damaged, of another format, or older than this state.
        """
        self.prepare_restore(pieces)()

    def prepare_restore(self, pieces: Iterable[bytes]) -> Replacing:
        """Decode a snapshot, leaving this state alone; return what replaces this state by it.

        The decoding reads nothing that changes, so another thread may do it; what is returned is
        quick, and belongs to the thread of the state. Both raise as ``restore`` does. The iterator
        then frees the former state, or the other one if that is not needed: a value at each step.
        """
        whole = restored(decode_snapshot(pieces))

        def replace_state(*, is_needed: bool = True) -> Iterator[None]:
            if not is_needed:
                return freed(whole)
            zxid, index = whole.zxid, whole.applied_index
            if zxid < self._zxid or index < self._applied_index:
                raise ValueError(
                    f"snapshot: expected zxid {self._zxid} and index {self._applied_index} or "
                    f"later, found {zxid} and {index}"
                )
            former = self._whole()
            self._handlers.retire()
            self._adopt(whole)
            self._zxid = zxid
            self._applied_index = index
            return freed(former)

        return replace_state

    def digest(self) -> str:
        """Return SHA-256 (hex) over the replicated state, remembered outcomes included.

        The applied index is left out: a command that changes nothing leaves the digest alone.
        """
        return digest_of(self._capture())

    def slice_at(self, cursor: Cursor) -> Slice:
        """Digest a bounded part of the state, to be compared with that of other members."""
        return slice_at(self._whole(), cursor)

    @property
    def slice_count(self) -> int:
        """How many slices there are to compare, about."""
        return slice_count(self._whole())

    def _whole(self) -> Whole:
        return Whole(
            self._zxid, self._applied_index, self._limits_record, self._tree, self._sessions,
            self._requests, self._released, self._locks, self.access,
        )  # fmt: skip

    def _capture(self) -> Capture:
        znodes, znodes_hold = self._tree.capture_znodes()
        released, released_hold = self._released.capture()
        return Capture(
            applied_index=self._applied_index,
            zxid=self._zxid,
            limits=self._limits_record,
            sequence_floor=self._tree.sequence_floor,
            least_sequence=self._tree.least_sequence,
            znodes=znodes,
            holds=(znodes_hold, released_hold),
            sessions=tuple(self._sessions),
            leaving=tuple(self._sessions.leaving.items()),
            revoked=tuple(self._sessions.revoked.items()),
            requests=self._requests.capture(),
            released=released,
            locks=self._locks.capture(),
            access=self.access.capture(),
        )
