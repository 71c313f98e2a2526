"""/v1/sessions: open, keep alive, look at, close."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web

from coordinator.errors import BadArgumentsError
from coordinator.service.reads import SessionView
from coordinator.wire.encoding import Encoding
from coordinator.wire.http.conditions import conditions
from coordinator.wire.http.convert_locks import lost_shape
from coordinator.wire.http.door import Door
from coordinator.wire.http.paths import name_at
from coordinator.wire.http.queries import CONDITIONS, READ_MODES, Query
from coordinator.wire.http.routes import Route
from coordinator.wire.messages import sessions as shapes

audit = logging.getLogger("coordinator.audit")

PAGE_MAX = 1_000

_ID_POSITION = 2


class SessionRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/sessions/{session_id}"
        return (
            Route("POST", "/v1/sessions", self.open, "open_session"),
            Route("GET", "/v1/sessions", self.list, "list_sessions"),
            Route("GET", one, self.look, "get_session"),
            Route("DELETE", one, self.close, "close_session"),
            Route("POST", f"{one}/heartbeat", self.heartbeat, "heartbeat"),
        )

    async def open(self, request: web.Request) -> web.Response:
        """Open a session; the member draws its id."""
        door = self._door
        query = Query(request.rel_url.raw_query_string, CONDITIONS)
        shape = shapes.OpenSession.from_body(await door.body(request))
        request_id = door.request_id(request)
        sent_ms = door.clock.monotonic_ms()
        opened = await door.member.open_session(
            shape.timeout_ms,
            shape.label,
            request_id,
            door.deadline_ms(request),
            if_held=conditions(query),
        )
        safe_ms = self._safe_ms(opened.timeout_ms, sent_ms) if request_id is None else None
        body = shapes.SessionLease(opened.session_id, opened.timeout_ms, safe_ms=safe_ms).to_body()
        response = door.reply_now(request, body, status=201)
        response.headers["Location"] = f"/v1/sessions/{opened.session_id}"
        return response

    async def list(self, request: web.Request) -> web.Response:
        """Return a page of the open sessions."""
        door = self._door
        query = Query(request.rel_url.raw_query_string, {*READ_MODES, "after", "limit"})
        limit = query.integer("limit", minimum=1, maximum=PAGE_MAX)
        read = await door.member.list_sessions(
            query.read_mode(),
            door.deadline_ms(request),
            after=query.integer("after", minimum=0) or 0,
            limit=limit or PAGE_MAX,
        )
        body = shapes.SessionList((), read.value.next).to_body()
        return await door.reply_listed(
            request, body, {"sessions": (read.value.sessions, _info_body)}, read
        )

    async def look(self, request: web.Request) -> web.Response:
        """Return one session with the paths of its ephemerals."""
        door = self._door
        mode = Query(request.rel_url.raw_query_string, READ_MODES).read_mode()
        session_id = _session_id(request)
        read = await door.member.session(session_id, mode, door.deadline_ms(request))
        return door.reply_read(request, _info(read.value, is_single=True).to_body(), read)

    async def close(self, request: web.Request) -> web.Response:
        """End a session and all its ephemerals; again if need be.

        With ``failure`` it is a loss, for this reason: of a client that found itself unwell. With
        ``by`` it is somebody else's wish, and on record.
        """
        door = self._door
        query = Query(request.rel_url.raw_query_string, (*CONDITIONS, "failure", "by"))
        failure, by = _text_of(query, "failure"), _text_of(query, "by")
        ended = await door.member.close_session(
            _session_id(request),
            door.request_id(request),
            door.deadline_ms(request),
            failure=failure,
            if_held=conditions(query),
        )
        if by and ended.was_open:
            audit.warning(
                "session %s was ended by %a from %s: %a",
                ended.session_id, by, request.remote, failure,
            )  # fmt: skip
        body = shapes.SessionClosed(ended.session_id, ended.was_open).to_body()
        return door.reply_now(request, body)

    async def heartbeat(self, request: web.Request) -> web.Response:
        """Extend the lease; answered once a quorum has agreed that the leader leads."""
        door = self._door
        Query(request.rel_url.raw_query_string)
        if await door.raw_body(request) not in (b"", b"{}"):
            raise BadArgumentsError("body: expected none, found one")
        sent_ms = door.clock.monotonic_ms()
        ack = await door.member.heartbeat(_session_id(request), door.deadline_ms(request))
        lost = tuple([lost_shape(each) for each in ack.lost])
        safe_ms = self._safe_ms(ack.timeout_ms, sent_ms)
        lease = shapes.SessionLease(ack.session_id, ack.timeout_ms, ack.holds, lost, safe_ms)
        return door.reply_now(request, lease.to_body())

    def _safe_ms(self, timeout_ms: int, sent_ms: int) -> int:
        """Return for how long a lease is safe that was begun or renewed after ``sent_ms``."""
        ends_ms = sent_ms + timeout_ms
        return shapes.safe_ms(timeout_ms, ends_ms - self._door.clock.monotonic_ms())


def _session_id(request: web.Request) -> str:
    return name_at(request.path_qs, _ID_POSITION, "session_id")


def _text_of(query: Query, name: str) -> str:
    text = query.text(name)
    if text is None:
        return ""
    if not 1 <= len(text) <= shapes.FAILURE_CHARACTERS_MAX:
        raise BadArgumentsError(
            f"query.{name}: expected 1 to {shapes.FAILURE_CHARACTERS_MAX} characters, "
            f"found {len(text)}"
        )
    return text


def _info_body(view: SessionView, _encoding: Encoding) -> dict[str, Any]:
    return _info(view, is_single=False).to_body()


def _info(view: SessionView, *, is_single: bool) -> shapes.SessionInfo:
    return shapes.SessionInfo(
        session_id=view.session_id,
        timeout_ms=view.timeout_ms,
        label=view.label,
        opened_ms=view.opened_ms,
        ephemeral_count=view.ephemeral_count,
        ephemerals=view.ephemerals if is_single else None,
    )
