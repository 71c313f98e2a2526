"""The rights that each command needs: checked once, before anything is done.

1. Each class of operation has its row in ``ROWS`` or is in ``BY_MEMBERS``; a test compares the two
   with all classes.
2. All of a command is judged before any of it runs, both branches of a guarded write too. So a
   refusal tells nothing of what is there.
3. What covers a path covers all below it, so a right to delete a znode is one to its whole subtree.
   A sequential znode needs a rule for every name that it could get; ``parents`` need ``write`` on
   each znode that is not there yet.
4. Locks and elections are used by ``lock``, also over the tree where a contender is one's own. A
   client that writes there otherwise can put others out and let in any, so that needs ``admin``.
5. A session, and what it holds, is used by the identity that opened it; operators can end it. What
   is one's own can always be given back, also without the right to take it again.
6. What members alone propose needs nothing, and no client may propose it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from coordinator.errors import NoAuthError, NotOwnerError
from coordinator.model.access import ACCESS, LIMITS, MEMBERS, NOBODY, SESSIONS, Caller, Verb
from coordinator.model.limits import MachineLimits
from coordinator.state import paths
from coordinator.state.access.coverage import IdentityRights
from coordinator.state.access.table import AccessTable, no_auth
from coordinator.state.commands import (
    Abandon,
    AddToken,
    Check,
    CloseSession,
    Command,
    Create,
    Delete,
    Downgrade,
    DropIdentity,
    DropRole,
    DropToken,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishGrants,
    FinishSession,
    Guarded,
    InitAccess,
    Multi,
    Note,
    OpenSession,
    Put,
    PutIdentity,
    PutRole,
    Read,
    Reap,
    Release,
    RenewCredential,
    Reopen,
    Resize,
    Revoke,
    SetAccess,
    SetData,
    SetLevel,
    SetLimits,
    TakeOut,
)
from coordinator.state.dedup import RequestTable
from coordinator.state.locks.contender import QUEUE_ROOTS, is_queue
from coordinator.state.locks.queues import LockTable
from coordinator.state.sessions import SessionRecord, SessionTable
from coordinator.state.tree import SEQUENTIAL, Tree

_ROOTS: Final = tuple([root[:-1] for root in QUEUE_ROOTS])


class CommandGuard:
    """Decides of commands by the rights of their callers."""

    def __init__(
        self,
        access: AccessTable,
        *,
        tree: Tree,
        sessions: SessionTable,
        requests: RequestTable,
        locks: LockTable,
        limits: MachineLimits,
    ) -> None:
        self._access = access
        self._tree = tree
        self._sessions = sessions
        self._requests = requests
        self._locks = locks
        self._limits = limits

    def check(self, command: Command) -> None:
        """Check that the caller may do what ``command`` says.

        Raises:
            AuthFailedError: its credential is gone, whether access rights are on or off.
            NoAuthError: a right is missing.
        """
        operation = command.operation
        kind = type(operation)
        if kind in BY_MEMBERS:
            if command.caller != NOBODY:
                raise NoAuthError(f"{kind.__name__}: expected it from a member, found a client's")
            return
        rights = self._access.rights_of(command.caller)
        if not self._access.is_on:
            return
        for condition in command.if_held:
            _need(rights, Verb.LOCK, condition.directory)
        ROWS[kind](self, rights, operation)

    def check_client(self, caller: Caller, client_id: str, session: SessionRecord | None) -> None:
        """Check that the id of a client, which is bound to ``session``, is not another identity's;
        raises as ``check`` does."""
        rights = self._access.rights_of(caller)
        if self._access.is_on:
            self._client(rights, client_id, session)

    def check_session(self, caller: Caller, session_id: str) -> None:
        """Check that a session, if it is open, is the caller's own; raises as ``check`` does."""
        rights = self._access.rights_of(caller)
        if self._access.is_on:
            self._own(rights, session_id)

    # --- znodes

    def create(self, rights: IdentityRights, operation: Create) -> None:
        """Check a create: of its path, or of every name that it could get, and of its parents."""
        path = operation.path
        verb = _writing(path)
        coverage = rights.of(verb)
        is_sequential = operation.mode in SEQUENTIAL
        if not (coverage.covers_all(path) if is_sequential else coverage.covers(path)):
            raise no_auth(rights, verb, path + "*" if is_sequential else path)
        if operation.session_id is not None:
            self._uses(rights, operation.session_id)
        if operation.parents is not None and len(path) <= self._limits.path_bytes_max:
            self._parents(rights, path)

    def _parents(self, rights: IdentityRights, path: str) -> None:
        """Check that it may make each ancestor that is not there."""
        while path.startswith("/") and path != paths.ROOT:
            path = paths.parent_of(path)
            if self._tree.find(path) is not None:
                return
            _need(rights, _writing(path), path)

    def put(self, rights: IdentityRights, operation: Put) -> None:
        """Check a create and a write of one path."""
        _need(rights, _writing(operation.path), operation.path)

    def write(self, rights: IdentityRights, operation: SetData | Delete) -> None:
        """Check a write: a right to the path, or a contender of one's own."""
        path = operation.path
        verb = _writing(path)
        if not rights.of(verb).covers(path) and not self._holds(rights, path):
            raise no_auth(rights, verb, path)

    def read(self, rights: IdentityRights, operation: Check | Read) -> None:
        """Check a read within a command, and a condition: both tell what is there."""
        path = operation.path
        if not rights.of(Verb.READ).covers(path) and not self._holds(rights, path):
            raise no_auth(rights, Verb.READ, path)

    def _holds(self, rights: IdentityRights, path: str) -> bool:
        """Whether a contender is the caller's own, who may lock there."""
        if path not in self._locks.contenders or not self._is_own(rights, path):
            return False
        return rights.of(Verb.LOCK).covers(paths.parent_of(path))

    def multi(self, rights: IdentityRights, operation: Multi) -> None:
        """Check each operation, as if it came alone."""
        self._all(rights, operation.operations)

    def guarded(self, rights: IdentityRights, operation: Guarded) -> None:
        """Check the conditions and both branches: a refusal must not tell which one would run."""
        self._all(rights, (*operation.conditions, *operation.then, *operation.otherwise))

    def _all(self, rights: IdentityRights, operations: tuple[Any, ...]) -> None:
        for each in operations:
            ROWS[type(each)](self, rights, each)

    # --- sessions

    def open(self, rights: IdentityRights, operation: OpenSession) -> None:
        """Check that an identity has some right; for an operator's session, that it is one."""
        if operation.by:
            _need(rights, Verb.ADMIN, SESSIONS)
        elif not rights.has_rules:
            raise NoAuthError(
                f"open session: no role of identity {rights.identity!r} has a rule",
                identity=rights.identity,
            )

    def close(self, rights: IdentityRights, operation: CloseSession) -> None:
        """Check that a session is the caller's own, or the caller an operator."""
        self._own(rights, operation.session_id)

    def renew(self, rights: IdentityRights, operation: RenewCredential) -> None:
        """Check that a session is the caller's own: nobody else lends it a credential."""
        self._uses(rights, operation.session_id)

    def _uses(self, rights: IdentityRights, session_id: str) -> None:
        """Check that nobody acts in the name of another's session, not even an operator: what is
        made there is that session's, and would be what its identity may not have."""
        session = self._sessions.find(session_id)
        if session is not None and session.caller.identity != rights.named:
            raise NoAuthError(
                f"session {session_id[:80]!a} is not one of identity {rights.identity!r}: only "
                "who opened it can use it",
                identity=rights.identity,
            )

    def _own(self, rights: IdentityRights, session_id: str) -> None:
        session = self._sessions.find(session_id)
        if session is None or session.caller.identity == rights.named:
            return
        if not rights.of(Verb.ADMIN).covers(SESSIONS):
            raise _not_own(rights, session_id)

    # --- locks and elections

    def enter(self, rights: IdentityRights, operation: Enter) -> None:
        """Check the right to lock in every queue, and the session that is to hold."""
        for directory in operation.directories:
            _need(rights, Verb.LOCK, directory)
        if operation.opening is None:
            self._uses(rights, operation.session_id)
        elif operation.opening.by:
            _need(rights, Verb.ADMIN, SESSIONS)

    def use(self, rights: IdentityRights, operation: Downgrade | Note | ExtendHold) -> None:
        """Check what only the holder does with its own grant."""
        directory = paths.parent_of(operation.path)
        _need(rights, Verb.LOCK, directory)
        if not self._is_own(rights, operation.path):
            self._of_another(rights, operation.path)

    def release(self, rights: IdentityRights, operation: Release) -> None:
        """Check a release: of a contender of one's own nothing is needed."""
        path = operation.path
        if path in self._locks.contenders:
            if not self._is_own(rights, path):
                self._of_another(rights, path)
        elif self._tree.find(path) is not None:
            _need(rights, _writing(path), path)
        else:
            directory = paths.parent_of(path)
            _need(rights, Verb.LOCK if is_queue(directory) else Verb.WRITE, directory)

    def abandon(self, rights: IdentityRights, operation: Abandon) -> None:
        """Check that the attempt is one of the caller's own client."""
        client_id = operation.client_id
        self._client(rights, client_id, self._sessions.binding(client_id))

    def resize(self, rights: IdentityRights, operation: Resize) -> None:
        """Check the right to lock there: the size is the lock's users' business."""
        _need(rights, Verb.LOCK, operation.directory)

    def revoke(self, rights: IdentityRights, operation: Revoke) -> None:
        """Check the right to administer the queue."""
        _need(rights, Verb.ADMIN, paths.parent_of(operation.path))

    def _is_own(self, rights: IdentityRights, path: str) -> bool:
        """Whether the contender, if there is one, is one of a session of the caller's."""
        contender = self._locks.contenders.get(path)
        if contender is None:
            return True
        session = self._sessions.find(contender.session_id)
        return session is not None and session.caller.identity == rights.named

    def _of_another(self, rights: IdentityRights, path: str) -> None:
        """Refuse who is not an operator there; the owner itself, when its session has ended."""
        directory, contender = paths.parent_of(path), self._locks.contenders[path]
        if rights.of(Verb.ADMIN).covers(directory):
            return
        _need(rights, Verb.LOCK, directory)
        if contender.session_id not in self._sessions:
            raise NotOwnerError(f"{path}: its session has ended", path=path)
        raise no_auth(rights, Verb.ADMIN, directory, f"{path} is not your own: ")

    # --- the cluster

    def _client(
        self, rights: IdentityRights, client_id: str, session: SessionRecord | None
    ) -> None:
        """Check that the id of a client is not another's. One that was used while access was off
        by callers without a credential is whose it is used by now."""
        owner = self._requests.owner(client_id)
        if owner not in ("", rights.owner) or (
            session is not None
            and session.caller.credential
            and session.caller.identity != rights.named
        ):
            raise NoAuthError(
                f"client id {client_id[:80]!a}: it is that of another identity than "
                f"{rights.identity!r}; draw another one",
                identity=rights.identity,
            )

    def limits(self, rights: IdentityRights, _operation: SetLimits) -> None:
        """Check the right to administer the limits."""
        _need(rights, Verb.ADMIN, LIMITS)

    def level(self, rights: IdentityRights, _operation: SetLevel) -> None:
        """Check the right to administer the members: a release is of all of them."""
        _need(rights, Verb.ADMIN, MEMBERS)

    def access(self, rights: IdentityRights, _operation: Any) -> None:
        """Check the right to administer access rights."""
        _need(rights, Verb.ADMIN, ACCESS)


def _writing(path: str) -> Verb:
    """Return the verb that a write over the tree needs."""
    return Verb.ADMIN if path.startswith(QUEUE_ROOTS) or path in _ROOTS else Verb.WRITE


def _need(rights: IdentityRights, verb: Verb, resource: str, why: str = "") -> None:
    if not rights.of(verb).covers(resource):
        raise no_auth(rights, verb, resource, why)


def _not_own(rights: IdentityRights, session_id: str) -> NoAuthError:
    return no_auth(rights, Verb.ADMIN, SESSIONS, f"session {session_id[:80]!a} is not your own: ")


# Not bound to the object: a cycle would keep the whole state after a snapshot has replaced it.
ROWS: Final[dict[type, Callable[[CommandGuard, IdentityRights, Any], None]]] = {
    Create: CommandGuard.create,
    SetData: CommandGuard.write,
    Put: CommandGuard.put,
    Delete: CommandGuard.write,
    Check: CommandGuard.read,
    Read: CommandGuard.read,
    Multi: CommandGuard.multi,
    Guarded: CommandGuard.guarded,
    OpenSession: CommandGuard.open,
    CloseSession: CommandGuard.close,
    RenewCredential: CommandGuard.renew,
    Enter: CommandGuard.enter,
    Downgrade: CommandGuard.use,
    Note: CommandGuard.use,
    ExtendHold: CommandGuard.use,
    Release: CommandGuard.release,
    Abandon: CommandGuard.abandon,
    Resize: CommandGuard.resize,
    Revoke: CommandGuard.revoke,
    SetLimits: CommandGuard.limits,
    SetLevel: CommandGuard.level,
    InitAccess: CommandGuard.access,
    SetAccess: CommandGuard.access,
    PutRole: CommandGuard.access,
    DropRole: CommandGuard.access,
    PutIdentity: CommandGuard.access,
    DropIdentity: CommandGuard.access,
    AddToken: CommandGuard.access,
    DropToken: CommandGuard.access,
}
BY_MEMBERS: Final = frozenset(
    {ExpireSession, FinishSession, Reap, EndHold, Reopen, FinishGrants, TakeOut}
)
"""What members alone propose."""
