"""Locks and elections as queues: run by the members over znodes, fair, with fencing tokens.

A clean acquire is one proposal and a release another, of whatever kind and of however many locks at
once. The queue is ``queues``; ``admin`` is what may be done with a grant, ``views`` what can
be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from msgspec.structs import asdict, replace

from coordinator.errors import DeadlockError, NotOwnerError
from coordinator.model.access import NOBODY, Caller
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.model.history import Previous
from coordinator.service.base.replica import MachineReplica
from coordinator.service.locks.attempts import AcquireOptions, QueueAttempt
from coordinator.service.locks.contenders import (
    ELECTIONS,
    LOCKS,
    QueuedContender,
    Recipe,
    grant_id_of,
)
from coordinator.service.locks.holder_info import holder_data
from coordinator.service.locks.queues import Queues
from coordinator.service.locks.sight import Sight
from coordinator.service.locks.views import Seen
from coordinator.service.writes.proposals import Proposer, RequestContext
from coordinator.state.commands import Abandon, HeldCondition, Release, RequestId
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Abandoned, Released
from coordinator.state.paths import parent_of


class QueueService:
    """The service of queues on one member: what locks and elections have in common."""

    _recipe: ClassVar[Recipe]

    def __init__(self, proposer: Proposer, replica: MachineReplica, queues: Queues) -> None:
        self._proposer = proposer
        self._replica = replica
        self._queues = queues

    async def _acquire(
        self, names: tuple[str, ...], data: bytes, wanted: AcquireRequest, how: AcquireOptions
    ) -> tuple[GrantReply, ...]:
        """Wait until this attempt holds in the queues ``names``; ``queues`` says what is raised."""
        caller = how.get("caller", NOBODY)
        attempt = QueueAttempt(
            self._recipe, names, data, wanted, lambda holder: self._shown(holder, caller), how
        )
        try:
            won = await self._queues.acquire(attempt)
        except DeadlockError as error:
            raise Sight(self._replica.machine, caller).deadlock(error) from None
        machine = self._replica.machine
        return tuple([grant_of(machine, self._recipe, each) for each in won])

    async def release(
        self,
        name: str,
        grant_id: str,
        request: RequestId | None,
        deadline_ms: int,
        *,
        caller: Caller = NOBODY,
        if_held: tuple[HeldCondition, ...] = (),
        spares_repeated: bool = False,
    ) -> Released:
        """Release a grant (a multi-lock as a whole), or leave the queue; again if need be.

        Raises:
            NotOwnerError: it is not, or no longer, in the queue; ``holder`` says who holds,
                if this member is known to have seen all that was answered before.
        """
        path, czxid = self._recipe.contender_path(name, grant_id)
        release = Release(path, czxid, spares_repeated)
        refused: NotOwnerError | None = None
        try:
            committed = await self._proposer.submit(
                release, RequestContext(request, deadline_ms, caller=caller, if_held=if_held)
            )
        except NotOwnerError as error:
            refused = error
        if refused is not None:
            try:
                raise await self._not_owner(name, refused, deadline_ms, caller)
            finally:
                del refused  # its frames hold it: no cycle is left for the collector
        return committed.result(Released)

    async def _not_owner(
        self, name: str, error: NotOwnerError, deadline_ms: int, caller: Caller
    ) -> NotOwnerError:
        """Return ``error`` with who holds instead."""
        holder = await self._queues.present_holder(self._recipe.directory(name), deadline_ms)
        error.fields["holder"] = None if holder is None else self._shown(holder, caller)
        return error

    async def abandon(
        self,
        name: str,
        client_id: str,
        number: int,
        floor_index: int,
        deadline_ms: int,
        *,
        caller: Caller = NOBODY,
    ) -> Abandoned:
        """Undo the attempt with this request number, or make sure that it never runs.

        Raises:
            NotOwnerError: it was made, and is an attempt at something else; it stays as it was.
        """
        operation = Abandon(client_id, number, floor_index, self._recipe.directory(name))
        committed = await self._proposer.submit(
            operation, RequestContext(None, deadline_ms, caller=caller)
        )
        return committed.result(Abandoned)

    def _shown(self, holder: QueuedContender, caller: Caller) -> Mapping[str, Any]:
        """Return what an error says of the holder, without a session of another identity."""
        return Sight(self._replica.machine, caller).described(self._described(holder))

    def _described(self, holder: QueuedContender) -> Mapping[str, Any]:
        """Return what is said of the holder."""
        raise NotImplementedError


class LockService(QueueService):
    """Locks: of every kind, one or several at once."""

    _recipe: ClassVar[Recipe] = LOCKS

    async def acquire(
        self, name: str | Sequence[str], *, wanted: AcquireRequest, **how: Unpack[AcquireOptions]
    ) -> GrantReply:
        """Wait until the lock is granted.

        Args:
            name: of one lock; or the names of several, which are then granted all at once.
        """
        names = (name,) if isinstance(name, str) else tuple(name)
        grants = await self._acquire(names, holder_data(wanted), wanted, how)
        return grants[0] if isinstance(name, str) else replace(grants[0], grants=grants)

    def _described(self, holder: QueuedContender) -> Mapping[str, Any]:
        shown = asdict(Seen.of(self._replica.machine, holder, 0).shown())
        shown["note"] = holder.recorded.note.decode("utf-8", "replace")
        return shown


def grant_of(machine: StateMachine, recipe: Recipe, contender: QueuedContender) -> GrantReply:
    """Return the grant of a contender that holds."""
    recorded = contender.recorded
    path, czxid = recorded.path, recorded.czxid
    return GrantReply(
        grant_id=grant_id_of(path, czxid),
        lock=recipe.name_at(path),
        fencing_token=czxid,
        session_id=recorded.session_id,
        path=path,
        zxid=contender.zxid,
        kind=recorded.kind._value_,
        max_hold_ms=recorded.max_hold_ms,
        previous=_previous(machine, parent_of(path)),
        is_election=recipe is ELECTIONS,
    )


def _previous(machine: StateMachine, directory: str) -> Previous | None:
    """Return the grant of this queue that ended last, None if the history knows none."""
    ended = machine.locks.last_ended(directory)
    if ended is None:
        return None
    contender = ended.contender
    return Previous(
        grant_id=grant_id_of(contender.path, contender.czxid),
        fencing_token=contender.czxid,
        how=ended.departure.how._value_,
        note=contender.note,
        ended_zxid=ended.ended_zxid,
    )
