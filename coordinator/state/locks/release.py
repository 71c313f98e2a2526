"""The deletion of znodes of locks and elections: release, abandon, and reaping of idle parents.

1. Release names one incarnation of a contender by its czxid: it can never free a later one, and
   repeating it succeeds again as long as the table of released contenders remembers it.
   ``spares_repeated``: do not delete a contender whose request was repeated, since the repeated
   request may have been answered with its grant.
2. Abandon undoes a request whose answer never came, or spends its number so that it never runs; one
   that names a queue undoes nothing elsewhere. ``spares_holder``: do not delete a holder, since the
   abandoned request may be another one than its own.
3. Reap is void unless nothing changed since the leader looked, in its own term.
"""

from __future__ import annotations

from typing import Final

from coordinator.errors import BadArgumentsError, NotEmptyError, NotOwnerError
from coordinator.model.limits import MachineLimits
from coordinator.state import paths
from coordinator.state.commands import Abandon, Reap, Release, RequestId
from coordinator.state.dedup import ReleasedTable, RequestTable
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.locks.queues import LockTable
from coordinator.state.outcomes import (
    Abandoned,
    Created,
    Entered,
    GuardedDone,
    MultiDone,
    Outcome,
    Reaped,
    Refusal,
    Released,
    Result,
    ZnodeResult,
)
from coordinator.state.sessions import SessionTable
from coordinator.state.tree import Tree

_SHOWN_DIRECTORIES_MAX: Final = 4


class ContenderOperations:
    """Runs these operations in the transaction of one command."""

    def __init__(
        self,
        tree: Tree,
        *,
        sessions: SessionTable,
        requests: RequestTable,
        released: ReleasedTable,
        locks: LockTable,
        limits: MachineLimits,
    ) -> None:
        self._tree = tree
        self._sessions = sessions
        self._requests = requests
        self._released = released
        self._locks = locks
        self._limits = limits

    def release(self, operation: Release) -> Released:
        """Delete the contender; raises NotOwner when it is not that one and was not released."""
        path, czxid = operation.path, operation.czxid
        znode = self._tree.find(path)
        if znode is None and (path, czxid) not in self._released:
            paths.validate(path, self._limits)
        if path == paths.ROOT:
            raise BadArgumentsError("release /: the root is not a contender", path=path)
        if znode is not None and znode.czxid == czxid:
            if znode.family is not None and znode.num_children:
                raise NotEmptyError(
                    f"release {path}: expected no children, found {znode.num_children}",
                    path=path,
                    num_children=znode.num_children,
                )
            contender = self._locks.contenders.get(path)
            if operation.spares_repeated and contender is not None and contender.is_repeated:
                _check_waits(f"release {path}", contender)
            self._tree.remove(path, znode)
            if contender is None or not contender.group:
                self._released.add(path, czxid)
            else:
                for each in contender.group:  # they go together
                    self._released.add(each, czxid)
        elif (path, czxid) not in self._released:
            found = "none" if znode is None else f"one created at {znode.czxid}"
            raise NotOwnerError(
                f"release {path}: expected the contender created at zxid {czxid}, found {found}",
                path=path,
                expected_czxid=czxid,
                current_czxid=None if znode is None else znode.czxid,
            )
        return Released(path, czxid)

    def abandon(self, operation: Abandon, own_request: RequestId | None, index: int) -> Abandoned:
        """Undo or forestall a request; raises RequestForgotten when nobody knows whether it ran.

        ``own_request`` is that of the command that abandons, ``index`` its log index.
        """
        client_id, number = operation.client_id, operation.number
        if own_request is not None and (own_request.client_id, own_request.number) == (
            client_id,
            number,
        ):
            raise BadArgumentsError(
                f"abandon request {number}: expected the command to have another request number",
                number=number,
            )
        if self._requests.is_ended(client_id):
            return Abandoned(None)  # What it owned went with its session; nothing new gets in.
        session = self._sessions.binding(client_id)
        abandoned = RequestId(client_id, number, operation.floor_index)
        first = self._requests.recall(abandoned, session)
        if first is not None:
            _check_directory(operation, first)
        if first is not None and operation.spares_holder:
            for created in _created_by(first):
                contender = self._locks.contenders.get(created.path)
                if contender is not None and contender.czxid == created.stat.czxid:
                    _check_waits(f"abandon request {number} of client {client_id}", contender)
        deleted_path = None if first is None else self._delete_created(first)
        if first is None or deleted_path is not None:
            zxid = self._tree.zxid if self._tree.is_changed else self._tree.zxid - 1
            self._requests.remember(
                abandoned, _spent(abandoned, zxid), index=index, is_bound=session is not None
            )
        return Abandoned(deleted_path)

    def _delete_created(self, outcome: Outcome) -> str | None:
        """Delete the ephemeral znodes that ``outcome`` created; return the path of the first."""
        first_path = None
        for created in _created_by(outcome):
            znode = self._tree.find(created.path)
            if (
                created.stat.ephemeral_owner is not None
                and znode is not None
                and znode.czxid == created.stat.czxid
            ):
                self._tree.remove(created.path, znode)
                first_path = first_path or created.path
        return first_path

    def reap(self, operation: Reap, term: int) -> Reaped:
        """Delete an idle znode, or do nothing; ``term`` is that of the log entry."""
        znode, found = self._tree.find(operation.path), self._tree.idle(operation.path)
        if (
            operation.term != term
            or znode is None
            or found is None
            or (found.mzxid, found.pzxid) != (operation.mzxid, operation.pzxid)
        ):
            return Reaped(was_deleted=False)
        self._tree.remove(operation.path, znode)
        return Reaped(was_deleted=True)


def _check_waits(what: str, contender: ContenderRecord) -> None:
    """Raise BadArguments for a contender that holds: who repeated its request may know of it."""
    if contender.is_holder:
        raise BadArgumentsError(
            f"{what}: expected a contender that waits, found that {contender.path} holds",
            path=contender.path,
            fencing_token=contender.czxid,
        )


def _check_directory(operation: Abandon, first: Outcome) -> None:
    """Raise NotOwner for a request that made its contenders somewhere else."""
    made_in = {paths.parent_of(each.path) for each in _created_by(first)}
    if operation.directory and made_in and operation.directory not in made_in:
        found = ", ".join(sorted(made_in)[:_SHOWN_DIRECTORIES_MAX])
        raise NotOwnerError(
            f"abandon request {operation.number} of client {operation.client_id}: expected an "
            f"attempt at {paths.shown(operation.directory)}, found one at {found}",
            number=operation.number,
            directory=operation.directory,
        )


def _spent(request: RequestId, zxid: int) -> Outcome:
    """Return what an abandoned request is refused with when it arrives after all."""
    message = f"request {request.number} of client {request.client_id}: it was abandoned"
    facts = {"number": request.number, "is_abandoned": True}
    return Outcome(zxid, None, Refusal(BadArgumentsError.code, message, facts), (), True)


def _created_by(outcome: Outcome) -> list[Created]:
    result = outcome.result
    results: tuple[Result | ZnodeResult, ...] = ()
    if isinstance(result, MultiDone | GuardedDone):
        results = result.results
    elif isinstance(result, Entered):
        results = result.contenders
    elif result is not None:
        results = (result,)
    return [each for each in results if isinstance(each, Created)]
