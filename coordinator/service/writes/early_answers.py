"""Answers at the door to writes that would change nothing: refused for want of a right, or the end
of a session that is not there.

Anybody may send those, and each would be an entry of the log. So of each client only the first few
in a second are proposed. The others are answered from a fresh state, as apply would answer there.

1. ``apply`` judges all that is proposed. What is answered here was not proposed.
2. A request that came before is proposed, whatever it is now: its first outcome is its answer.
3. What is not there may be under way. The log alone orders the two, so the first few are proposed:
   no client ends more sessions in a second whose opening it has not seen.
"""

from __future__ import annotations

from typing import Final

from coordinator.errors import CoordinatorError
from coordinator.service.base.context import MemberContext
from coordinator.service.base.turns import KEY, FirstFew
from coordinator.service.reads.reads import LINEARIZABLE, Reads
from coordinator.state.commands import CloseSession, Command, RequestId
from coordinator.state.outcomes import Outcome, SessionEnded

PROPOSED_MAX: Final = 16
"""Such writes of a client that are proposed, in a second."""


class EarlyAnswers:
    """Answers such writes of this member's clients."""

    def __init__(self, context: MemberContext, reads: Reads) -> None:
        self._replica = context.replica
        self._reads = reads
        self._few = FirstFew(context.clock.monotonic_ms)

    async def answer(self, command: Command, deadline_ms: int) -> Outcome | None:
        """Return the outcome of a write that changes nothing, None if it has to be proposed.

        Raises:
            AuthFailedError, NoAuthError, NotOwnerError: its caller may not do it.
            NoLeaderError, ShuttingDownError: whether it changes something is not known.
        """
        if not self._is_idle(command) or self._few.count(KEY.get()) <= PROPOSED_MAX:
            return None
        await self._reads.fresh(LINEARIZABLE, deadline_ms)
        machine, operation = self._replica.machine, command.operation
        if self._came_before(command.request):
            return None
        try:
            machine.check_rights(command)
        except CoordinatorError as error:
            error.fields["zxid"] = machine.zxid  # as that of an outcome
            raise
        if type(operation) is CloseSession and not command.if_held and self._is_idle(command):
            return Outcome(machine.zxid, SessionEnded(operation.session_id, was_open=False))
        return None

    def _is_idle(self, command: Command) -> bool:
        """Whether it would change nothing, as this member sees it."""
        machine, operation = self._replica.machine, command.operation
        if type(operation) is CloseSession and not machine.is_session_kept(operation.session_id):
            return True
        try:
            machine.check_rights(command)
        except CoordinatorError:
            return True
        return False

    def _came_before(self, request: RequestId | None) -> bool:
        return request is not None and self._replica.machine.has_seen(request)
