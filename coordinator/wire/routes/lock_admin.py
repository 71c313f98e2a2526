"""/v1/locks/{name}/...: what is done with a grant, or to it, and the size of a semaphore."""

from __future__ import annotations

from typing import Any

from coordinator.model.grants import (
    AcquireReply,
    DowngradeRequest,
    ExtendRequest,
    NoteRequest,
    SizeRequest,
)
from coordinator.service.writes.proposals import RequestContext
from coordinator.wire.codec import from_body
from coordinator.wire.if_held import IF_HELD
from coordinator.wire.lock_requests import read_revoke
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.auditing import attributed
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.paths import name_at
from coordinator.wire.routes.queries import CONDITIONS, Query
from coordinator.wire.routes.route import Route

_NAME, _GRANT_ID = 2, 4


class HoldingRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of what is done with a lock that is held."""
        one = "/v1/locks/{name}"
        grant = f"{one}/grants/{{grant_id}}"
        return (
            Route("POST", f"{grant}/downgrade", self.downgrade, "downgrade_lock"),
            Route("PUT", f"{grant}/note", self.note, "note_lock"),
            Route("POST", f"{grant}/extend", self.extend, "extend_lock"),
            Route("PUT", f"{one}/size", self.resize, "resize_semaphore"),
            Route("POST", f"{one}/revoke", self.revoke, "revoke_lock"),
        )

    async def downgrade(self, request: IncomingRequest) -> Answer:
        """Turn an exclusive grant into a shared one; again if need be."""
        body = await self._door.body(request)
        from_body(DowngradeRequest, body, beside=IF_HELD)
        grant = await self._door.member.holding.downgrade(
            _name(request), _grant_id(request), self._context(request, body)
        )
        return self._door.reply_now(request, AcquireReply(grant))

    async def note(self, request: IncomingRequest) -> Answer:
        """Keep a checkpoint note with a grant."""
        body, grant_id = await self._door.body(request), _grant_id(request)
        note = from_body(NoteRequest, body, beside=IF_HELD).note
        reply = await self._door.member.holding.note(
            _name(request), grant_id, note, self._context(request, body)
        )
        return self._door.reply_now(request, reply)

    async def extend(self, request: IncomingRequest) -> Answer:
        """Move the end of a bounded hold."""
        body, grant_id = await self._door.body(request), _grant_id(request)
        wanted = from_body(ExtendRequest, body, beside=IF_HELD)
        reply = await self._door.member.holding.extend(
            _name(request),
            grant_id,
            self._context(request, body),
            by_ms=wanted.by_ms,
            to_ms=wanted.to_ms,
        )
        return self._door.reply_now(request, reply)

    async def resize(self, request: IncomingRequest) -> Answer:
        """Change the size of a semaphore."""
        body, name = await self._door.body(request), _name(request)
        size = from_body(SizeRequest, body, beside=IF_HELD).size
        reply = await self._door.member.holding.resize(name, size, self._context(request, body))
        return self._door.reply_now(request, reply)

    async def revoke(self, request: IncomingRequest) -> Answer:
        """End a grant against its holder's will; recorded with who and why."""
        door = self._door
        body = await door.body(request)
        order = read_revoke(body)
        by = attributed(request, order.by)
        reply = await door.member.holding.revoke(
            _name(request), order.grant_id, by, order.reason, self._context(request, body)
        )
        return door.reply_now(request, reply)

    def _context(self, request: IncomingRequest, body: Any) -> RequestContext:
        query = Query(request.query, CONDITIONS)
        return RequestContext(
            request=self._door.request_id(request),
            deadline_ms=self._door.deadline_ms(request),
            caller=request.caller,
            if_held=conditions(query, body),
        )


def _name(request: IncomingRequest) -> str:
    return name_at(request.target, _NAME, "name")


def _grant_id(request: IncomingRequest) -> str:
    return name_at(request.target, _GRANT_ID, "grant_id")
