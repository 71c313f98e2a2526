"""The levels of logging, changed while members run; at its next start each has that of its file."""

from __future__ import annotations

import asyncio
import logging

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.access import MEMBERS, Caller, Verb
from coordinator.model.members import LogLevelReply
from coordinator.service.base.context import MemberContext

REQUEST_KIND = "log level"
ANSWER_S = 2.0
LEVELS = ("debug", "info", "warning", "error")

logger = logging.getLogger("coordinator.service")


class LogLevels:
    """The levels as one member sets them, its own and those of the others."""

    def __init__(self, context: MemberContext) -> None:
        self._engine = context.engine
        self._replica = context.replica
        context.engine.on_request(REQUEST_KIND, self._on_request)

    async def set(self, level: str, member_id: str | None, caller: Caller) -> LogLevelReply:
        """Set the level of all members, or of one.

        Raises:
            NoAuthError: the caller does not administer the members.
            BadArgumentsError: there is no such member, or level.
        """
        self._replica.machine.access.check(caller, Verb.ADMIN, MEMBERS)
        if level not in LEVELS:
            raise BadArgumentsError(f"body.level: expected one of {', '.join(LEVELS)}")
        members = sorted([self._engine.member_id, *self._engine.status().is_reachable])
        if member_id is not None and member_id not in members:
            raise BadArgumentsError(
                f"body.member_id: expected one of {', '.join(members)}, found {member_id!a}"
            )
        asked = members if member_id is None else [member_id]
        problems = await asyncio.gather(*(self._set_at(each, level) for each in asked))
        found = dict(zip(asked, problems, strict=True))
        return LogLevelReply(
            level,
            tuple(each for each, problem in found.items() if not problem),
            {each: problem for each, problem in found.items() if problem},
        )

    async def _set_at(self, member_id: str, level: str) -> str:
        """Return why it could not be set there; "" if it was."""
        if member_id == self._engine.member_id:
            _set_own(level)
            return ""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._engine.request(member_id, REQUEST_KIND, level.encode())
        except TimeoutError:
            return f"member {member_id} does not answer"
        except CoordinatorError as error:
            return error.message
        return ""

    async def _on_request(self, _sender: str, payload: bytes) -> bytes:
        level = payload.decode(errors="replace")
        if level in LEVELS:
            _set_own(level)
        return b""


def _set_own(level: str) -> None:
    logging.getLogger().setLevel(level.upper())
    logger.log(logging.getLogger().level, "from now on what is logged is at least: %r", level)
