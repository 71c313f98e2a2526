"""The dispatch of commands: which operations on the tables of one state run each class.

The context of a command (its caller, its entry, how contenders depart by it) is kept while it runs.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.state.access.guard import CommandGuard
from coordinator.state.access.operations import CHANGES, AccessOperations, Change
from coordinator.state.access.quotas import Quotas
from coordinator.state.commands import (
    Abandon,
    Caller,
    Check,
    CloseSession,
    Command,
    Create,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishGrants,
    FinishSession,
    Guarded,
    Multi,
    Note,
    OpenSession,
    Put,
    Reap,
    Release,
    RenewCredential,
    Reopen,
    Resize,
    Revoke,
    SetData,
    SetLevel,
    SetLimits,
    TakeOut,
)
from coordinator.state.locks.contender import Departure
from coordinator.state.locks.departures import departure_of, revocation_by
from coordinator.state.locks.operations import (
    REASON_CHARACTERS_MAX,
    LockOperations,
    check_text,
)
from coordinator.state.locks.release import ContenderOperations
from coordinator.state.locks.rights import LockRights
from coordinator.state.multi import MultiOperations
from coordinator.state.operations import ZnodeOperations
from coordinator.state.outcomes import (
    Abandoned,
    GrantsFinished,
    Result,
    SessionEnded,
    SessionFinished,
)
from coordinator.state.session_operations import SessionOperations
from coordinator.state.slices import Whole


class Handlers:
    """Runs commands in the transaction that has begun."""

    def __init__(
        self,
        whole: Whole,
        set_limits: Callable[[SetLimits], Result],
        set_level: Callable[[SetLevel], Result],
    ) -> None:
        self._command: Command | None = None
        self._index = 0
        self._term = 0
        self._departs_as: Departure | None = None
        """How the contenders that this command deletes depart; filled on first use."""
        limits, tree, locks = whole.limits.limits, whole.tree, whole.locks
        sessions, requests, access = whole.sessions, whole.requests, whole.access
        self._sessions = sessions
        self._tree = tree
        self._locks = locks
        locks.rights = LockRights(access, sessions)
        self.guard = CommandGuard(
            access, tree=tree, sessions=sessions, requests=requests, locks=locks, limits=limits
        )
        self._access_operations = AccessOperations(access, tree, sessions)
        self.quotas = quotas = Quotas(access, tree, sessions=sessions, locks=locks, limits=limits)
        operations = ZnodeOperations(tree, sessions, locks, quotas, limits)
        several = MultiOperations(operations, limits)
        self._contenders = ContenderOperations(
            tree, sessions=sessions, requests=requests, released=whole.released, locks=locks,
            limits=limits,
        )  # fmt: skip
        self._lock_operations = LockOperations(
            tree, sessions=sessions, locks=locks, operations=operations, quotas=quotas,
            limits=limits,
        )  # fmt: skip
        self._session_operations = SessionOperations(
            tree,
            sessions=sessions,
            requests=requests,
            locks=locks,
            lock_operations=self._lock_operations,
            quotas=quotas,
        )
        self._rows = self._rows_of(operations, several)
        self._rows |= {SetLimits: set_limits, SetLevel: set_level}

    def _rows_of(
        self,
        operations: ZnodeOperations,
        several: MultiOperations,
    ) -> dict[type, Callable[..., Result]]:
        """Return which function runs each operation."""
        return {
            Create: operations.create,
            SetData: operations.set_data,
            Put: operations.put,
            Delete: operations.delete,
            Check: operations.check,
            Multi: several.multi,
            Guarded: several.guarded,
            OpenSession: self._open_session,
            CloseSession: self._close_session,
            ExpireSession: self._expire_session,
            FinishSession: self._finish_session,
            RenewCredential: lambda each: self._session_operations.renew(each, self._caller),
            Release: self._contenders.release,
            Abandon: self._abandon,
            Reap: lambda each: self._contenders.reap(each, self._term),
            Enter: lambda each: self._session_operations.enter(each, self._caller),
            Downgrade: self._lock_operations.downgrade,
            Resize: self._lock_operations.resize,
            Note: self._lock_operations.note,
            ExtendHold: self._lock_operations.extend_hold,
            Revoke: self._lock_operations.revoke,
            EndHold: lambda each: self._lock_operations.end_hold(each, self._term),
            Reopen: lambda each: self._lock_operations.reopen(each, self._term),
            FinishGrants: self._finish_grants,
            TakeOut: self._take_out,
            **dict.fromkeys(CHANGES, self._change_access),
        }

    def retire(self) -> None:
        """Let go of the tables: these are handlers of a state that another one has replaced.

        The rows hold on to this object, so without it a cycle would keep the whole state."""
        self._rows.clear()

    def run(self, command: Command, index: int, term: int) -> Result:
        """Run the operation of ``command``, in an entry of this index and term."""
        self._command = command
        self._index = index
        self._term = term
        self._departs_as = None
        if command.if_held:
            self._lock_operations.check_held(command.if_held)
        operation = command.operation
        return self._rows[type(operation)](operation)

    def departure(self) -> Departure:
        """Return how the contenders depart that the command deletes which ran last."""
        if self._departs_as is None:
            assert self._command is not None, "a command is being settled"
            self._departs_as = departure_of(self._command, self._term)
        return self._departs_as

    @property
    def _caller(self) -> Caller:
        assert self._command is not None, "a command is being applied"
        return self._command.caller

    def _open_session(self, operation: OpenSession) -> Result:
        return self._session_operations.open(operation, self._caller, self._index)

    def _close_session(self, operation: CloseSession) -> SessionEnded:
        check_text("failure", operation.failure, REASON_CHARACTERS_MAX)
        return self._end_session(operation.session_id, operation.at_once)

    def _expire_session(self, operation: ExpireSession) -> SessionEnded:
        if operation.term != self._term:
            return SessionEnded(operation.session_id, was_open=False, is_void=True)
        return self._end_session(operation.session_id, operation.at_once)

    def _end_session(self, session_id: str, at_once: int) -> SessionEnded:
        """End a session; one whose credential was revoked ends as that, by whichever command."""
        if self._sessions.is_kept(session_id):
            self._departs_as = self._sessions.departure(session_id)
        return self._session_operations.end(session_id, at_once, self.departure())

    def _finish_session(self, operation: FinishSession) -> SessionFinished:
        self._departs_as = self._sessions.leaving.get(operation.session_id)
        return self._session_operations.finish(operation)

    def _abandon(self, operation: Abandon) -> Abandoned:
        assert self._command is not None, "a command is being applied"
        return self._contenders.abandon(operation, self._command.request, self._index)

    def _finish_grants(self, _operation: FinishGrants) -> GrantsFinished:
        self._locks.go_on_granting()
        return GrantsFinished(0)  # put right when it is settled

    def _take_out(self, operation: TakeOut) -> GrantsFinished:
        self._locks.take_out(self._tree, operation.paths)
        return GrantsFinished(0)  # as above

    def _change_access(self, operation: Change) -> Result:
        assert self._command is not None, "a command is being applied"
        return self._access_operations.run(operation, revocation_by(self._command, self._term))
