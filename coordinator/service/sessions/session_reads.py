"""Sessions as they are read: each caller sees its own, and one that may read ``@sessions`` all."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace as with_fields

from coordinator.errors import SessionExpiredError
from coordinator.model.access import NOBODY, SESSIONS, Caller, Verb
from coordinator.model.sessions import SessionInfo, SessionList
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.slices import pass_for_itself, sorted_in_slices
from coordinator.service.reads.reads import LINEARIZABLE, ReadMode, ReadReply, Reads
from coordinator.state.machine import StateMachine
from coordinator.state.sessions import SessionRecord

LOOKED_AT_ONCE = 5_000
"""Sessions among which those of a caller are looked for, in one pass of the loop."""


class SessionReads:
    """The sessions as one member sees them."""

    def __init__(self, reads: Reads, replica: MachineReplica) -> None:
        self._reads = reads
        self._replica = replica

    async def page(
        self,
        mode: ReadMode,
        deadline_ms: int,
        *,
        after: int = 0,
        limit: int = 1_000,
        caller: Caller = NOBODY,
    ) -> ReadReply[SessionList]:
        """Return at most ``limit`` open sessions behind ``after``, in the order of opening.

        Those of others are passed over, and ``next`` is none of them."""
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        machine = self._replica.machine
        if machine.access.is_on:
            machine.access.rights_of(caller)
        if machine.access.allows(caller, Verb.READ, SESSIONS):
            found = list(machine.sessions(after, limit + 1))
        else:
            found = await self._own(caller.identity, after, limit + 1)
        views = tuple([session_info(machine, each) for each in found[:limit]])
        last = found[limit - 1].opened_zxid if len(found) > limit else None
        return self._reads.reply(SessionList(views, last), age_ms)

    async def _own(self, identity: str, after: int, limit: int) -> list[SessionRecord]:
        """Return the first sessions of an identity, open now; all are looked at, in slices."""
        machine = self._replica.machine
        found: list[SessionRecord] = []
        while True:
            some = list(machine.sessions(after, LOOKED_AT_ONCE))
            found = [each for each in found if machine.session(each.session_id) is not None]
            found += [each for each in some if each.caller.identity == identity]
            if len(some) < LOOKED_AT_ONCE or len(found) >= limit:
                return found[:limit]
            after = some[-1].opened_zxid
            await pass_for_itself()

    def identity_of(self, session_id: str) -> str | None:
        """Return whose a session is, as far as this member has come; None if it is not open."""
        found = self._replica.machine.session(session_id)
        return None if found is None else found.caller.identity

    async def one(
        self, session_id: str, mode: ReadMode, deadline_ms: int, *, caller: Caller = NOBODY
    ) -> ReadReply[SessionInfo]:
        """Return one session with its ephemerals.

        Raises:
            SessionExpiredError: it is not open.
            NoAuthError: it is another's.
        """
        age_ms = await self._reads.fresh(mode, deadline_ms)
        machine = self._replica.machine
        if not machine.access.allows(caller, Verb.READ, SESSIONS):
            machine.check_session(caller, session_id)
        session = machine.session(session_id)
        if session is None:
            raise SessionExpiredError(
                f"session {session_id} has ended or never was", session_id=session_id
            )
        reply = self._reads.reply(session_info(machine, session), age_ms)
        ephemerals = await sorted_in_slices(machine.ephemerals_of(session_id))
        return reply.with_value(with_fields(reply.value, ephemerals=tuple(ephemerals)))

    async def to_be_renewed(
        self, session_ids: Sequence[str], caller: Caller, deadline_ms: int
    ) -> list[str]:
        """Return those of the caller's sessions that were opened with another credential.

        What is not known here may be new, so it is looked for.

        Raises:
            NoAuthError: one of them is another's.
        """
        machine = self._replica.machine
        if not (machine.access.is_on or caller.credential):
            return []
        if any(machine.session(each) is None for each in session_ids):
            await self._reads.fresh(LINEARIZABLE, deadline_ms)
        for each in session_ids:
            machine.check_session(caller, each)
        sessions = [session for each in session_ids if (session := machine.session(each))]
        return [
            each.session_id
            for each in sessions
            if each.caller.identity == caller.identity and each.caller != caller
        ]


def session_info(machine: StateMachine, session: SessionRecord) -> SessionInfo:
    """Return an open session as ``machine`` has it, without the names of its ephemerals."""
    session_id = session.session_id
    return SessionInfo(
        session_id=session_id,
        timeout_ms=session.timeout_ms,
        label=session.label,
        opened_ms=session.opened_ms,
        ephemeral_count=machine.ephemeral_count(session_id),
        ephemerals=None,
        address=session.address,
        client_id=session.client_id,
        by=session.by,
    )
