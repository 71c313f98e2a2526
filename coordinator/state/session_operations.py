"""The operations on sessions: open, also with an attempt to hold, and end.

1. A session ends at once: it leaves the table of open sessions, its grants fail every condition
   (``LockTable.leaving``), and nothing is written in its name.
2. Its ephemerals are deleted: about ``at_once`` in the command that ends it, the rest by
   ``FinishSession``, so that no command takes long. Each command deletes the deepest first, then by
   path.
3. All contenders of a multi-lock are deleted in one command, whatever their number.
4. An attempt to hold may open its session in the same command: both or neither. The client may
   have drawn that session's id, so no client is bound to it (``dedup``, rule 2).
"""

from __future__ import annotations

from coordinator.errors import BadArgumentsError, NoAuthError, SessionExpiredError
from coordinator.state import paths
from coordinator.state.access.quotas import Quotas
from coordinator.state.commands import (
    Caller,
    Enter,
    FinishSession,
    OpenSession,
    Operation,
    RenewCredential,
)
from coordinator.state.dedup import RequestTable
from coordinator.state.locks.contender import Departure, Ending
from coordinator.state.locks.operations import LockOperations
from coordinator.state.locks.queues import LockTable
from coordinator.state.outcomes import (
    CredentialRenewed,
    Entered,
    Result,
    SessionEnded,
    SessionFinished,
    SessionOpened,
)
from coordinator.state.sessions import EndedSessions, SessionRecord, SessionTable
from coordinator.state.tree import Tree


def opened_by(operation: Operation, result: Result | None) -> str | None:
    """Return the id of the session that this command opened, None if it opened none.

    For a repeat it is the session that the first one opened.
    """
    if type(result) is SessionOpened:
        return result.session_id
    if type(operation) is Enter and operation.opening is not None and type(result) is Entered:
        return result.contenders[0].stat.ephemeral_owner if result.is_entered else None
    return None


class SessionOperations:
    """Runs these operations in the transaction of one command."""

    def __init__(
        self,
        tree: Tree,
        *,
        sessions: SessionTable,
        requests: RequestTable,
        locks: LockTable,
        lock_operations: LockOperations,
        quotas: Quotas,
    ) -> None:
        self._quotas = quotas
        self._tree = tree
        self._sessions = sessions
        self._requests = requests
        self._locks = locks
        self._lock_operations = lock_operations
        locks.leaving = EndedSessions(sessions)

    def open(self, operation: OpenSession, caller: Caller, index: int) -> SessionOpened:
        """Open a session of ``caller``; ``index`` is that of the log entry."""
        self._check(operation, caller)
        self._add(operation, caller, bound_index=index)
        return SessionOpened(operation.session_id, operation.timeout_ms)

    def enter(self, operation: Enter, caller: Caller) -> Entered:
        """Take a place in each queue; open the session first, if the operation says so."""
        opening = operation.opening
        if opening is None:
            return self._lock_operations.enter(operation)
        if opening.session_id != operation.session_id:
            raise BadArgumentsError(
                f"enter: expected to open session {operation.session_id[:80]!a}, found "
                f"{opening.session_id[:80]!a}",
                session_id=operation.session_id,
            )
        self._check(opening, caller)
        entered = self._lock_operations.enter(operation)
        if entered.is_entered:
            self._add(opening, caller, bound_index=0)
        return entered

    def _check(self, operation: OpenSession, caller: Caller) -> None:
        session_id = operation.session_id
        has_quota = not operation.by and self._quotas.check_session(session_id, caller.identity)
        self._sessions.check(operation, "" if has_quota else caller.identity)
        if self._requests.was_session(session_id):
            raise BadArgumentsError(
                f"open session {session_id}: a session of this id has ended before",
                session_id=session_id,
            )

    def renew(self, operation: RenewCredential, caller: Caller) -> CredentialRenewed:
        """Let a session go on under the credential of ``caller``, who is its identity."""
        session_id = operation.session_id
        session = self._sessions.find(session_id)
        if session is None:
            raise SessionExpiredError(
                f"renew: session {session_id[:80]!a} is not open", session_id=session_id
            )
        if session.caller.identity != caller.identity:
            raise NoAuthError(f"renew: session {session_id} is not your own", session_id=session_id)
        if session.caller != caller:
            self._sessions.renew(session, caller)
        return CredentialRenewed(session_id)

    def _add(self, operation: OpenSession, caller: Caller, *, bound_index: int) -> None:
        tree = self._tree
        session = SessionRecord(
            operation.session_id, operation.timeout_ms, operation.label, tree.wall_ms,
            bound_index, tree.zxid, operation.address, operation.client_id, operation.by,
            caller,
        )  # fmt: skip
        self._sessions.add(session)

    def end(self, session_id: str, at_once: int, departure: Departure) -> SessionEnded:
        """End a session that is open, with about ``at_once`` of its ephemerals (0: all)."""
        if not self._sessions.is_kept(session_id):
            return SessionEnded(session_id, was_open=False)
        left = self._delete(session_id, at_once, departure)
        self._requests.end_session(self._sessions.remove(session_id))
        if left:
            self._sessions.leave(session_id, departure)
        return SessionEnded(session_id, was_open=True)

    def finish(self, operation: FinishSession) -> SessionFinished:
        """Continue the end of a session."""
        session_id = operation.session_id
        departure = self._sessions.leaving.get(session_id)
        if departure is None:
            return SessionFinished(session_id, 0)
        left = self._delete(session_id, max(operation.at_once, 1), departure)
        if not left:
            self._sessions.finish(session_id)
        return SessionFinished(session_id, left)

    def _delete(self, session_id: str, at_once: int, departure: Departure) -> int:
        """Delete ephemerals of the session; return how many are left."""
        tree = self._tree
        owned = sorted(
            self._chosen(session_id, at_once), key=lambda path: (-paths.depth(path), path)
        )
        for path in owned:
            znode = tree.find(path)
            assert znode is not None, "an indexed znode is there"
            tree.remove(path, znode)
        if departure.how is not Ending.CLOSED:
            self._lock_operations.close_after(owned)
        return tree.ephemeral_count(session_id)

    def _chosen(self, session_id: str, at_once: int) -> dict[str, None]:
        """Return the ephemerals to delete now: whole groups of contenders, oldest first."""
        chosen: dict[str, None] = {}
        for path in self._tree.some_ephemerals(session_id):
            if at_once and len(chosen) >= at_once:
                break
            chosen[path] = None
            contender = self._locks.contenders.get(path)
            if contender is not None and contender.group:
                chosen.update(dict.fromkeys(contender.group))
        return chosen
