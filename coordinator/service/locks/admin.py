"""Changes to a grant that holds: downgrade, note, extend, resize, a forced end.

A forced release is the decision of a person and breaks the one order this service keeps otherwise,
that a holder learns of its loss before another client is granted: its holder learns of it by its
next heartbeat, at the latest when its lease would have ended. Until then only the fencing token
keeps it out, so the answer says to which token the guards have to be raised.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from msgspec.structs import replace

from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    DeadlockError,
    LockLostError,
    NotOwnerError,
)
from coordinator.model.grants import ExtendReply, GrantReply, NoteReply, RevokeReply, SizeReply
from coordinator.model.history import GrantRecord
from coordinator.service.base.leadership import Leadership
from coordinator.service.base.replica import Interest, MachineReplica
from coordinator.service.locks.contenders import LOCKS, QueuedContender, find, grant_id_of
from coordinator.service.locks.history import ended_record
from coordinator.service.locks.holder_info import said_in
from coordinator.service.locks.service import grant_of
from coordinator.service.locks.sight import Sight
from coordinator.service.reads.reads import LINEARIZABLE, Reads
from coordinator.service.writes.proposals import Proposer, RequestContext, SubmitOptions
from coordinator.state.commands import (
    Command,
    Downgrade,
    ExtendHold,
    Guarded,
    Kind,
    Multi,
    Note,
    Operation,
    Resize,
    Revoke,
)
from coordinator.state.outcomes import HoldExtended, Outcome, Refusal, Resized, Revoked
from coordinator.state.repeats import check_answers

logger = logging.getLogger("coordinator.audit")

_NAMED_MAX = 5


class HoldingService:
    """Grants while they are held, as one member serves them."""

    interest: ClassVar[Interest] = frozenset({Revoke, Refusal})

    def __init__(
        self,
        proposer: Proposer,
        reads: Reads,
        replica: MachineReplica,
        leadership: Leadership,
    ) -> None:
        self._proposer = proposer
        self._reads = reads
        self._replica = replica
        self._leadership = leadership

    async def downgrade(self, name: str, grant_id: str, context: RequestContext) -> GrantReply:
        """Turn an exclusive grant into a shared one; again if need be.

        Raises:
            NotOwnerError: it does not hold (yet, or any more); nothing was changed.
            LockLostError: it was downgraded, and has ended since.
        """
        path, czxid = LOCKS.contender_path(name, grant_id)
        await self._proposer.submit(Downgrade(path, czxid), context)
        found = find(self._replica.machine, path)
        if found is None or found.czxid != czxid:
            raise LockLostError(
                f"{path} of zxid {czxid} was downgraded, and has ended since", path=path
            )
        return replace(grant_of(self._replica.machine, LOCKS, found), kind=Kind.SHARED.value)

    async def note(
        self, name: str, grant_id: str, note: bytes, context: RequestContext
    ) -> NoteReply:
        """Keep ``note`` with a grant, for the next holder.

        Raises:
            NotOwnerError: it does not hold (yet, or any more).
        """
        path, czxid = LOCKS.contender_path(name, grant_id)
        committed = await self._proposer.submit(Note(path, czxid, note), context)
        return NoteReply(grant_id, committed.outcome.zxid)

    async def extend(
        self, name: str, grant_id: str, context: RequestContext, *, by_ms: int = 0, to_ms: int = 0
    ) -> ExtendReply:
        """Let a bounded hold end ``by_ms`` later, or not before ``to_ms`` from now.

        Raises:
            NotOwnerError: it does not hold (yet, or any more).
            BadArgumentsError: it has no bound; both times, or none; too long in all.
        """
        path, czxid = LOCKS.contender_path(name, grant_id)
        committed = await self._proposer.submit(ExtendHold(path, czxid, by_ms, to_ms), context)
        result = committed.result(HoldExtended)
        zxid = committed.outcome.zxid
        return ExtendReply(grant_id, result.max_hold_ms, result.extensions, zxid)

    async def resize(self, name: str, size: int, context: RequestContext) -> SizeReply:
        """Change the size of a semaphore; no holder loses its slot.

        Raises:
            NoNodeError: there is no such semaphore.
            DeadlockError: with fewer slots a contender could never be granted.
        """
        operation = Resize(LOCKS.directory(name), size)
        try:
            committed = await self._proposer.submit(operation, context)
        except DeadlockError as error:
            raise Sight(self._replica.machine, context.caller).deadlock(error) from None
        return SizeReply(name, committed.result(Resized).size, committed.outcome.zxid)

    async def revoke(
        self, name: str, grant_id: str | None, by: str, reason: str, context: RequestContext
    ) -> RevokeReply:
        """End a grant of ``name`` (a multi-lock as a whole) against its holder's will.

        Args:
            grant_id: of a holder or a waiter; None: of the only holder.

        Raises:
            BadArgumentsError: several hold, and it was not said which is to go.
            NotOwnerError: the lock is not held, or this grant has ended.
        """
        refusal: CoordinatorError | None = None
        if grant_id is not None:
            path, czxid = self._path_of(name, grant_id)
        else:
            await self._reads.fresh(LINEARIZABLE, context.deadline_ms)
            path, czxid, refusal = self._only_holder(name)
        before = find(self._replica.machine, path)
        try:
            committed = await self._proposer.submit(
                Revoke(path, czxid, by, reason),
                context,
                SubmitOptions(check=_check_revokes if grant_id is None else check_answers),
            )
        except NotOwnerError:
            if refusal is not None:
                raise refusal from None
            raise
        result = committed.result(Revoked)
        record = self._record(name, result, before, by, reason)
        return RevokeReply(record, result.czxid + 1)

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Say in the log of the leader what was forced, and which write was refused as late.

        The history says on every member what was forced; a refused write is in no state.
        """
        operation, result, refusal = command.operation, outcome.result, outcome.refusal
        if refusal is None and not isinstance(operation, Revoke):
            return
        if outcome.is_repeat or not self._leadership.is_leader:
            return
        if isinstance(operation, Revoke) and isinstance(result, Revoked):
            logger.warning(
                "forced release of %s (token %d, %s) by %r, identity %r, at zxid %d: %r",
                ", ".join(map(repr, result.paths)),
                result.czxid,
                "held" if result.was_holder else "waiting",
                operation.by,
                command.caller.identity,
                outcome.zxid,
                operation.reason,
            )
        elif refusal is not None and refusal.code == LockLostError.code and command.if_held:
            logger.warning(
                "refused, because its grant does not hold any more: %s, identity %r, at zxid %d: "
                "%r",
                _named(operation),
                command.caller.identity,
                outcome.zxid,
                refusal.message,
            )

    def on_restore(self) -> None:
        """Do nothing: forced releases are in the history."""

    def _path_of(self, name: str, grant_id: str) -> tuple[str, int]:
        """Return path and czxid of a grant, also of one whose znode was made by hand."""
        path, czxid = LOCKS.contender_path(name, grant_id)
        locks = self._replica.machine.locks
        if locks.record(path) is None:
            found = locks.with_token(LOCKS.directory(name), czxid)
            if found is not None and grant_id_of(found.path, czxid) == grant_id:
                return found.path, czxid
        return path, czxid

    def _only_holder(self, name: str) -> tuple[str, int, CoordinatorError | None]:
        """Return path and czxid of the holder; without one, of no contender, with the refusal.

        The command is proposed all the same: a repeated one is answered with what it did first.
        """
        directory = LOCKS.directory(name)
        locks = self._replica.machine.locks
        count = locks.holder_count(directory)
        holders = locks.contenders(directory, min(count, _NAMED_MAX))
        if count == 1:
            return holders[0].path, holders[0].czxid, None
        none = f"{directory}/{LOCKS.prefixes[Kind.EXCLUSIVE]}{0:010d}"
        if not holders:
            return none, 0, NotOwnerError(f"lock {name!r}: nobody holds it", lock=name)
        grant_ids = [grant_id_of(each.path, each.czxid) for each in holders]
        return (
            none,
            0,
            BadArgumentsError(
                f"lock {name!r}: expected a grant_id, since {count} hold it; "
                f"the first are {', '.join(grant_ids)}",
                lock=name,
            ),
        )

    def _record(
        self, name: str, done: Revoked, before: QueuedContender | None, by: str, reason: str
    ) -> GrantRecord:
        """Return what the history says of the grant, or as much as is known without it."""
        machine = self._replica.machine
        record = ended_record(machine, done.path, done.czxid)
        if record is not None:
            return record
        known = before if before is not None and before.czxid == done.czxid else None
        recorded = None if known is None else known.recorded
        return GrantRecord(
            **({} if known is None else said_in(known.data)),
            lock=name,
            grant_id=grant_id_of(done.path, done.czxid),
            path=done.path,
            fencing_token=done.czxid,
            kind="" if recorded is None else recorded.kind.value,
            session_id="" if known is None else known.session_id,
            owner="" if recorded is None else recorded.owner,
            note=b"",
            group=done.paths if len(done.paths) > 1 else (),
            entered_zxid=done.czxid,
            entered_ms=0 if recorded is None else recorded.entered_ms,
            granted_zxid=0,
            granted_ms=0,
            how="forced",
            by=by,
            reason=reason,
        )


def _check_revokes(operation: Operation, outcome: Outcome) -> None:
    """Take the revocation of another holder: the first try revoked the one that held then."""
    if not isinstance(outcome.result, Revoked):
        check_answers(operation, outcome)


def _named(operation: Operation) -> str:
    """Return what was to be done, and to what, on one line."""
    parts: tuple[object, ...] = (operation,)
    if isinstance(operation, Multi):
        parts = operation.operations
    elif isinstance(operation, Guarded):
        parts = operation.then + operation.otherwise
    named = [
        " ".join([type(each).__name__, *([repr(each.path)] if hasattr(each, "path") else [])])
        for each in parts[:_NAMED_MAX]
    ]
    return ", ".join(named) + (f" and {len(parts) - _NAMED_MAX} more" if parts[_NAMED_MAX:] else "")
