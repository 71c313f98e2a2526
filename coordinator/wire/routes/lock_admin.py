"""/v1/locks/{name}/...: what is done with a grant, or to it, and the size of a semaphore."""

from __future__ import annotations

from typing import Any

from coordinator.service.locks.admin import Asked
from coordinator.wire.fields import Fields
from coordinator.wire.messages import holding as shapes
from coordinator.wire.messages.if_held import IF_HELD_FIELD
from coordinator.wire.request import Answer, Request
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.convert_locks import grant_shape
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
        one = "/v1/locks/{name}"
        grant = f"{one}/grants/{{grant_id}}"
        return (
            Route("POST", f"{grant}/downgrade", self.downgrade, "downgrade_lock"),
            Route("PUT", f"{grant}/note", self.note, "note_lock"),
            Route("PUT", f"{one}/size", self.resize, "resize_semaphore"),
            Route("POST", f"{one}/revoke", self.revoke, "revoke_lock"),
        )

    async def downgrade(self, request: Request) -> Answer:
        """Turn an exclusive grant into a shared one; again if need be."""
        body = await self._door.body(request)
        Fields(body, "body", {IF_HELD_FIELD})
        grant = await self._door.member.holding.downgrade(
            _name(request), _grant_id(request), self._asked(request, body)
        )
        return self._door.reply_now(request, shapes.downgrade_reply_body(grant_shape(grant)))

    async def note(self, request: Request) -> Answer:
        """Keep a checkpoint note with a grant."""
        body, grant_id = await self._door.body(request), _grant_id(request)
        zxid = await self._door.member.holding.note(
            _name(request), grant_id, shapes.read_note(body), self._asked(request, body)
        )
        return self._door.reply_now(request, shapes.NoteReply(grant_id, zxid).to_body())

    async def resize(self, request: Request) -> Answer:
        """Change the size of a semaphore."""
        body, name = await self._door.body(request), _name(request)
        size, zxid = await self._door.member.holding.resize(
            name, shapes.Resize.from_body(body).size, self._asked(request, body)
        )
        return self._door.reply_now(request, shapes.SizeReply(name, size, zxid).to_body())

    async def revoke(self, request: Request) -> Answer:
        """End a grant against its holder's will; recorded with who and why."""
        door = self._door
        body = await door.body(request)
        shape = shapes.Revoke.from_body(body)
        revoked = await door.member.holding.revoke(
            _name(request), shape.grant_id, shape.by, shape.reason, self._asked(request, body)
        )
        reply = shapes.RevokeReply(revoked.grant, revoked.fencing_token_min)
        return door.reply_now(request, reply.to_body(door.reply_encoding(request)))

    def _asked(self, request: Request, body: Any) -> Asked:
        query = Query(request.query, CONDITIONS)
        return Asked(
            request=self._door.request_id(request),
            deadline_ms=self._door.deadline_ms(request),
            if_held=conditions(query, body),
        )


def _name(request: Request) -> str:
    return name_at(request.target, _NAME, "name")


def _grant_id(request: Request) -> str:
    return name_at(request.target, _GRANT_ID, "grant_id")
