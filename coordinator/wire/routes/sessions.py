"""/v1/sessions: open, keep alive, look at, close."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from coordinator.errors import BadArgumentsError
from coordinator.model.sessions import (
    FAILURE_CHARACTERS_MAX,
    HeartbeatsRequest,
    SessionClosed,
    SessionLease,
    SessionLeases,
    SessionList,
    SessionRequest,
    safe_ms,
)
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.auditing import attributed, note_request
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.paths import name_at
from coordinator.wire.routes.queries import CONDITIONS, READ_MODES, Query
from coordinator.wire.routes.route import Route

audit = logging.getLogger("coordinator.audit")

PAGE_MAX = 1_000

_ID_POSITION = 2


class SessionRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of sessions."""
        one = "/v1/sessions/{session_id}"
        return (
            Route("POST", "/v1/sessions", self.open, "open_session"),
            Route("GET", "/v1/sessions", self.list, "list_sessions"),
            Route("GET", one, self.look, "get_session"),
            Route("DELETE", one, self.close, "close_session"),
            Route("POST", "/v1/sessions/heartbeats", self.heartbeats, "heartbeats"),
            Route("POST", f"{one}/heartbeat", self.heartbeat, "heartbeat"),
        )

    async def open(self, request: IncomingRequest) -> Answer:
        """Open a session; the member draws its id."""
        door = self._door
        query = Query(request.query, CONDITIONS)
        body = from_body(SessionRequest, await door.body(request))
        by = attributed(request, body.by) if body.by else ""
        request_id = door.request_id(request)
        sent_ms = door.clock.monotonic_ms()
        opened = await door.member.open_session(
            body.timeout_ms,
            body.label,
            request_id,
            door.deadline_ms(request),
            address=door.address(request),
            by=by,
            caller=request.caller,
            if_held=conditions(query),
        )
        if by:
            audit.warning(
                "session %s was opened by the operator %a from %s",
                opened.session_id, by, request.remote,
            )  # fmt: skip
        safe_ms = self._safe_ms(opened.timeout_ms, sent_ms) if request_id is None else None
        lease = SessionLease(opened.session_id, opened.timeout_ms, safe_ms=safe_ms)
        location = {"Location": f"/v1/sessions/{opened.session_id}"}
        return door.reply_now(request, lease, status=201, headers=location)

    async def list(self, request: IncomingRequest) -> Answer:
        """Return a page of the open sessions."""
        door = self._door
        query = Query(request.query, {*READ_MODES, "after", "limit"})
        limit = query.integer("limit", minimum=1, maximum=PAGE_MAX)
        read = await door.member.sessions.page(
            query.read_mode(),
            door.deadline_ms(request),
            after=query.integer("after", minimum=0) or 0,
            limit=limit or PAGE_MAX,
            caller=request.caller,
        )
        body = to_body(SessionList((), read.value.next))
        return await door.reply_listed(
            request, body, {"sessions": (read.value.sessions, to_body)}, read
        )

    async def look(self, request: IncomingRequest) -> Answer:
        """Return one session with the paths of its ephemerals."""
        door = self._door
        mode = Query(request.query, READ_MODES).read_mode()
        session_id = _session_id(request)
        read = await door.member.sessions.one(
            session_id, mode, door.deadline_ms(request), caller=request.caller
        )
        info, encoding = read.value, door.reply_encoding(request)
        body = to_body(replace(info, ephemerals=()), encoding)
        lists = {"ephemerals": (info.ephemerals or (), _path_body)}
        return await door.reply_listed(request, body, lists, read)

    async def close(self, request: IncomingRequest) -> Answer:
        """End a session and all its ephemerals; again if need be.

        With ``failure`` it is a loss, for this reason: of a client that found itself unwell. With
        ``by`` another person ends it, and that is on record.
        """
        door = self._door
        query = Query(request.query, (*CONDITIONS, "failure", "by"))
        failure, by = _text_of(query, "failure"), _text_of(query, "by")
        session_id = _session_id(request)
        owner = door.member.sessions.identity_of(session_id)
        ended = await door.member.close_session(
            session_id,
            door.request_id(request),
            door.deadline_ms(request),
            failure=failure,
            caller=request.caller,
            if_held=conditions(query),
        )
        if by and ended.was_open:
            by = attributed(request, by)
            audit.warning(
                "session %s was ended by %a from %s: %a",
                ended.session_id, by, request.remote, failure,
            )  # fmt: skip
        if ended.was_open and (by or owner not in (None, request.caller.identity)):
            note_request(
                door, request, "session.ended_by_another", verb="admin", resource="@sessions",
                detail={
                    "session_id": ended.session_id, "by": by, "reason": failure,
                    "identity": owner or "",
                },
            )  # fmt: skip
        return door.reply_now(request, SessionClosed(ended.session_id, ended.was_open))

    async def heartbeat(self, request: IncomingRequest) -> Answer:
        """Extend the lease; answered once a quorum has agreed that the leader leads."""
        door = self._door
        Query(request.query)
        if await door.body(request) != {}:
            raise BadArgumentsError("body: expected none, found one")
        sent_ms = door.clock.monotonic_ms()
        lease = await door.member.heartbeat(
            _session_id(request), door.deadline_ms(request), caller=request.caller
        )
        safe_ms = self._safe_ms(lease.timeout_ms, sent_ms)
        return door.reply_now(request, replace(lease, safe_ms=safe_ms))

    async def heartbeats(self, request: IncomingRequest) -> Answer:
        """Extend the leases of many sessions, in one round of the quorum."""
        door = self._door
        Query(request.query)
        body = from_body(HeartbeatsRequest, await door.body(request))
        sent_ms = door.clock.monotonic_ms()
        acks = await door.member.heartbeats(
            body.session_ids, door.deadline_ms(request), caller=request.caller
        )
        left_ms = door.clock.monotonic_ms() - sent_ms
        leases = [
            replace(each, safe_ms=safe_ms(each.timeout_ms, each.timeout_ms - left_ms))
            for each in acks.values()
            if each is not None
        ]
        ended = [session_id for session_id, each in acks.items() if each is None]
        return door.reply_now(request, SessionLeases(tuple(leases), tuple(ended)))

    def _safe_ms(self, timeout_ms: int, sent_ms: int) -> int:
        """Return for how long a lease is safe that was begun or renewed after ``sent_ms``."""
        ends_ms = sent_ms + timeout_ms
        return safe_ms(timeout_ms, ends_ms - self._door.clock.monotonic_ms())


def _session_id(request: IncomingRequest) -> str:
    return name_at(request.target, _ID_POSITION, "session_id")


def _text_of(query: Query, name: str) -> str:
    text = query.text(name)
    if text is None:
        return ""
    if not 1 <= len(text) <= FAILURE_CHARACTERS_MAX:
        raise BadArgumentsError(
            f"query.{name}: expected 1 to {FAILURE_CHARACTERS_MAX} characters, found {len(text)}"
        )
    return text


def _path_body(path: str, _encoding: Encoding) -> str:
    return path
