"""/v1/elections: campaign, proclaim, resign, abandon, ask who is elected, observe."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from msgspec.structs import replace

from coordinator.model.grants import GrantReply, ProclaimRequest
from coordinator.model.views import Candidate
from coordinator.service.locks.attempts import AcquireOptions
from coordinator.service.locks.elections import ElectionService
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.if_held import IF_HELD
from coordinator.wire.lock_requests import read_acquire
from coordinator.wire.request import Answer, Answered, IncomingRequest
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.observing import observe
from coordinator.wire.routes.queries import CONDITIONS, READ_MODES, Query
from coordinator.wire.routes.queues import QueueRoutes, grant_id_in, name_in
from coordinator.wire.routes.route import Route

_VALUES_AT_ONCE = 8
"""Each of up to 64 KiB."""
VALUES_BYTES_MAX = 1024 * 1024
"""Values of candidates in one answer, together: with ten thousand of them it would be 600 MB."""


class ElectionRoutes(QueueRoutes):
    """The routes of one door."""

    @property
    def _service(self) -> ElectionService:
        return self._door.member.elections

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of elections."""
        one = "/v1/elections/{name}"
        grant = f"{one}/grants/{{grant_id}}"
        attempt = f"{one}/attempts/{{client_id}}/{{number}}"
        return (
            Route("GET", one, self.who, "get_election"),
            Route("POST", one, self.campaign, "campaign"),
            Route("PUT", grant, self.proclaim, "proclaim"),
            Route("DELETE", grant, self.release, "resign"),
            Route("DELETE", attempt, self.abandon, "abandon_campaign"),
        )

    async def campaign(self, request: IncomingRequest) -> Answered:
        """Stand for election until elected, or the time is up."""
        door = self._door
        query = Query(request.query, CONDITIONS)
        name = name_in(request)
        body = await door.body(request)
        wanted = read_acquire(body, is_election=True)

        def enter(how: AcquireOptions) -> Awaitable[GrantReply]:
            return door.member.elections.campaign(name, value=wanted.value or b"", **how)

        return await self._acquire(request, wanted, conditions(query, body), enter)

    async def proclaim(self, request: IncomingRequest) -> Answer:
        """Publish another value; only while elected."""
        door = self._door
        query = Query(request.query, CONDITIONS)
        given = await door.body(request)
        done = await door.member.elections.proclaim(
            name_in(request),
            grant_id_in(request),
            from_body(ProclaimRequest, given, beside=IF_HELD).value,
            door.request_id(request),
            door.deadline_ms(request),
            caller=request.caller,
            if_held=conditions(query, given),
        )
        return door.reply_now(request, done)

    async def who(self, request: IncomingRequest) -> Answered:
        """Return who is elected and who else is a candidate, once or each time it changes."""
        door = self._door
        query = Query(request.query, {*READ_MODES, "observe", "session_id"})
        name = name_in(request)
        mode = query.read_mode()
        # An observer first sees what a read would have shown.
        read = await door.member.elections.who(
            name,
            mode,
            door.deadline_ms(request),
            session_id=query.text("session_id"),
            caller=request.caller,
        )
        if query.flag("observe"):
            return await observe(self._door, request, name)
        view = read.value
        body = to_body(replace(view, candidates=()), door.reply_encoding(request))
        lists = {"candidates": (_with_room(view.candidates), _candidate_body)}
        return await door.reply_listed(request, body, lists, read, at_once=_VALUES_AT_ONCE)


def _with_room(views: Sequence[Candidate]) -> list[tuple[Candidate, bool]]:
    """Say of each candidate, in order, whether there is room for its value."""
    room, found = VALUES_BYTES_MAX, []
    for view in views:
        room -= len(view.value or b"")
        found.append((view, room >= 0))
    return found


def _candidate_body(each: tuple[Candidate, bool], encoding: Encoding) -> dict[str, Any]:
    candidate, has_value = each
    body: dict[str, Any] = to_body(candidate, encoding, given=() if has_value else ("value",))
    return body
