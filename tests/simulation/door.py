"""A member's door without HTTP: the requests that the client sends, answered by the service.

Bodies and headers are the real ones, encoded; only the HTTP grammar is left out, which
``tests/wire`` exercises. A reply is (status, headers, body); a stream yields its lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

import coordinator.state.commands as commands
from coordinator.client.calling.transport import Request, Response
from coordinator.clock import Clock
from coordinator.errors import CoordinatorError, UnknownRouteError, to_problem
from coordinator.model.acquire import AcquireSeveral
from coordinator.model.events import WatchRequest
from coordinator.model.grants import (
    AbandonReply,
    AcquireReply,
    ExtendRequest,
    GrantReply,
    NoteRequest,
    ProclaimRequest,
    ReleaseReply,
    SizeRequest,
)
from coordinator.model.history import GrantPage
from coordinator.model.sessions import (
    HeartbeatsRequest,
    SessionClosed,
    SessionLease,
    SessionLeases,
    SessionRequest,
)
from coordinator.model.znodes import Child, Children, Subtree, Written, Znode
from coordinator.service.locks.contenders import ELECTIONS, LOCKS
from coordinator.service.locks.history import GrantsWanted
from coordinator.service.member import Member
from coordinator.service.reads.reads import ReadReply
from coordinator.service.reads.subtree_reads import PAGE_MAX as SUBTREE_PAGE_MAX
from coordinator.service.watches.watch_stream import Wanted
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import RequestId
from coordinator.wire import messages
from coordinator.wire.codec import encoded, from_body, to_body
from coordinator.wire.encoding import Encoding, decode
from coordinator.wire.if_held import IF_HELD
from coordinator.wire.lock_requests import read_acquire, read_acquire_several, read_revoke
from coordinator.wire.multi import read_multi
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.queries import READ_MODES, Query
from coordinator.wire.routes.silence import instead_of
from tests.simulation.door_lines import Lines, until_different, waiting, watching

DEADLINE_MS = 10_000

_SESSION_ID = messages.SESSION_ID_HEADER.lower()
_SAFE = messages.SAFE_HEADER.lower()

_READ_QUERY = (*READ_MODES, "children", "after", "limit", "stat", "subtree")


def session_named_by(request: Request) -> str | None:
    """Return the session that the request renews beside what it asks for, None without one."""
    return request.headers.get(_SESSION_ID)


def session_renewed_by(request: Request) -> str | None:
    """Return the session that the request renews, as a heartbeat or beside what it asks for."""
    segments = request.target.split("/")
    return segments[3] if segments[-1] == "heartbeat" else session_named_by(request)


def is_renewed(response: Response) -> bool:
    """Whether the answer says that the request, no heartbeat, has renewed the session it named."""
    return _SAFE in response.headers


class Door:
    """Answers for one life of one member."""

    def __init__(self, member: Member, clock: Clock) -> None:
        self._member = member
        self._clock = clock

    async def answer(self, request: Request) -> Response:
        """Return the response to anything that is no stream."""
        response = await self._renewing(request)
        instead = None
        if request.target.partition("?")[0] != "/v1/status":
            instead = instead_of(self._member, request.method, response.status, None)
        return response if instead is None else self._problem(instead)

    async def _renewing(self, request: Request) -> Response:
        session_id = session_named_by(request)
        if session_id is None:
            return await self._answer(request)
        renewal = self._member.kept_sessions.renewal(session_id)
        if renewal is None:  # not the caller's own
            return await self._answer(request)
        try:
            response = await self._answer(request)
            safe_ms = await renewal.safe_ms()
        finally:
            renewal.stop()
        if safe_ms is None:
            return response
        return replace(response, headers={**response.headers, _SAFE: str(safe_ms)})

    async def _answer(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        segments = path.split("/")[2:]
        try:
            body = await self._route(request, segments, query)
        except CoordinatorError as error:
            return self._problem(error)
        encoding = _encoding(request.headers.get("accept", ""))
        if isinstance(body, _Shown):
            return self._response(
                200, body.body, encoding, _labels(body.read.zxid, body.read.index)
            )
        return self._response(200, body, encoding)

    async def lines(self, request: Request) -> tuple[Response, Lines | None]:
        """Return the head of a stream with its lines, or the refusal."""
        path = request.target.partition("?")[0]
        segments = path.split("/")[2:]
        try:
            if segments[0] == "watch":
                made = self._watch(request)
            else:
                made = self._acquire(request, *map(unquote, segments))
        except CoordinatorError as error:
            return self._problem(error), None
        head = Response(status=200, headers=self._labels(), body=b"")
        return head, until_different(self._member, made)

    # --- one answer

    async def _route(self, request: Request, segments: list[str], query: str) -> Any:
        match request.method, segments:
            case _, ["tree", *_]:
                return await self._tree(request, "/" + unquote("/".join(segments[1:])), query)
            case "POST", ["multi"]:
                return await self._multi(request)
            case "POST", ["sessions"]:
                return await self._open(request)
            case "POST", ["sessions", "heartbeats"]:
                asked = from_body(HeartbeatsRequest, _body(request))
                acks = await self._member.heartbeats(asked.session_ids, self._deadline(request))
                leases = tuple([each for each in acks.values() if each is not None])
                gone = tuple([session_id for session_id, each in acks.items() if each is None])
                return SessionLeases(leases, gone)
            case "POST", ["sessions", session_id, "heartbeat"]:
                return await self._member.heartbeat(session_id, self._deadline(request))
            case "DELETE", ["sessions", session_id]:
                ended = await self._member.close_session(
                    session_id,
                    _request_id(request),
                    self._deadline(request),
                    failure=Query(query, ("failure",)).text("failure") or "",
                )
                return SessionClosed(ended.session_id, ended.was_open)
            case "GET", ["status"]:
                return {}
            case "GET", ["grants"]:
                asks = Query(query, (*READ_MODES, "election", "lock", "after", "limit"))
                return await self._grants(asks, self._deadline(request))
            case _, ["locks" | "elections", name, *rest]:
                return await self._contend(request, segments[0], unquote(name), rest, query)
        raise UnknownRouteError(f"{request.method} {request.target}")

    async def _contend(
        self, request: Request, room: str, name: str, rest: list[str], query: str
    ) -> Any:
        """What is said about grants and attempts, of locks and elections."""
        member, deadline_ms = self._member, self._deadline(request)
        queue = member.locks if room == "locks" else member.elections
        match request.method, rest:
            case "DELETE", ["grants", grant_id]:
                await queue.release(name, grant_id, _request_id(request), deadline_ms)
                return ReleaseReply(grant_id)
            case "DELETE", ["attempts", client_id, number]:
                floor_index = Query(query, ("floor_index",)).integer("floor_index") or 0
                abandoned = await queue.abandon(
                    name, client_id, int(number), floor_index, deadline_ms
                )
                return AbandonReply(abandoned.deleted_path)
            case "PUT", ["grants", grant_id] if room == "elections":
                value = from_body(ProclaimRequest, _body(request), beside=IF_HELD).value
                return await member.elections.proclaim(
                    name, grant_id, value, _request_id(request), deadline_ms
                )
            case "GET", [] if room == "elections":
                mode = Query(query, READ_MODES).read_mode()
                seen = await member.elections.who(name, mode, deadline_ms)
                return _Shown(to_body(seen.value), seen)
            case "GET", []:
                mode = Query(query, READ_MODES).read_mode()
                view = await member.lock_views.query(name, mode, deadline_ms)
                return _Shown(to_body(view.value), view)
            case _:
                return await self._hold(request, name, rest)

    async def _hold(self, request: Request, name: str, rest: list[str]) -> Any:
        """What is done with a grant, or to it."""
        holding = self._member.holding
        body = None if request.body is None else _body(request)
        if_held = conditions(Query(""), body)
        asked = RequestContext(_request_id(request), self._deadline(request), if_held=if_held)
        match request.method, rest:
            case "POST", ["grants", grant_id, "downgrade"]:
                grant = await holding.downgrade(name, grant_id, asked)
                return AcquireReply(grant)
            case "PUT", ["grants", grant_id, "note"]:
                note = from_body(NoteRequest, body, beside=IF_HELD).note
                return await holding.note(name, grant_id, note, asked)
            case "POST", ["grants", grant_id, "extend"]:
                times = from_body(ExtendRequest, body, beside=IF_HELD)
                by_ms, to_ms = times.by_ms, times.to_ms
                return await holding.extend(name, grant_id, asked, by_ms=by_ms, to_ms=to_ms)
            case "PUT", ["size"]:
                size = from_body(SizeRequest, body, beside=IF_HELD).size
                return await holding.resize(name, size, asked)
            case "POST", ["revoke"]:
                revoke = read_revoke(body)
                return await holding.revoke(name, revoke.grant_id, revoke.by, revoke.reason, asked)
        raise UnknownRouteError(f"{request.method} {request.target}")

    async def _tree(self, request: Request, path: str, raw_query: str) -> Any:
        member, deadline_ms = self._member, self._deadline(request)
        operation: commands.Operation
        match request.method:
            case "GET":
                query = Query(raw_query, _READ_QUERY)
                if query.flag("subtree"):
                    return await self._subtree(path, query, deadline_ms)
                if query.flag("children"):
                    return await self._children(path, query, deadline_ms)
                read = await member.get(path, query.read_mode(), deadline_ms)
                data, found = read.value
                return _Shown(Znode(path, data=data, stat=found), read)
            case "POST":
                operation = from_body(
                    commands.Create, _body(request), given={"path": path}, beside=IF_HELD
                )
            case "PUT":
                operation = from_body(
                    commands.SetData, _body(request), given={"path": path}, beside=IF_HELD
                )
            case _:
                query = Query(raw_query, ("recursive", "expected_version"))
                version = query.integer("expected_version")
                operation = commands.Delete(
                    path,
                    expected_version=commands.ANY_VERSION if version is None else version,
                    is_recursive=query.flag("recursive"),
                )
        done: Any = await self._done(request, operation, deadline_ms)
        if isinstance(operation, commands.Delete):
            return to_body(done, given=("op",))
        return Written(done.path, done.stat)

    async def _children(self, path: str, query: Query, deadline_ms: int) -> Any:
        read = await self._member.children(
            path,
            query.read_mode(),
            deadline_ms,
            after=query.text("after"),
            limit=query.integer("limit", minimum=1, maximum=1_000) or 1_000,
            with_stat=query.flag("stat"),
        )
        page = read.value
        listed: tuple[str | Child, ...] = page.names
        if query.flag("stat"):
            each = zip(page.names, page.stats, strict=True)
            listed = tuple([Child(name, stat) for name, stat in each])
        return _Shown(Children(path, children=listed, stat=page.stat, next=page.next), read)

    async def _subtree(self, path: str, query: Query, deadline_ms: int) -> Any:
        limit = query.integer("limit", minimum=0, maximum=SUBTREE_PAGE_MAX)
        read = await self._member.subtrees.page(
            path,
            query.read_mode(),
            deadline_ms,
            after=query.text("after"),
            limit=SUBTREE_PAGE_MAX if limit is None else limit,
        )
        page = read.value
        shown = Subtree(
            path, znodes=tuple(page.znodes), zxid=page.zxid, next=page.next,
            is_partial=page.is_partial,
        )  # fmt: skip
        return _Shown(shown, read)

    async def _grants(self, query: Query, deadline_ms: int) -> Any:
        election, lock = query.text("election"), query.text("lock")
        assert election is not None or lock is not None, "a world asks for the grants of one"
        room, name = (LOCKS, lock) if election is None else (ELECTIONS, election)
        assert name is not None, "checked"
        wanted = GrantsWanted(
            room.directory(name),
            after=query.integer("after", minimum=0) or 0,
            limit=query.integer("limit", minimum=1) or 1_000,
        )
        read = await self._member.grant_history.page(wanted, query.read_mode(), deadline_ms)
        return _Shown(GrantPage(tuple(read.value.grants), read.value.next), read)

    async def _done(self, request: Request, operation: commands.Operation, deadline_ms: int) -> Any:
        committed = await self._member.proposer.submit(
            operation,
            RequestContext(
                _request_id(request),
                deadline_ms,
                if_held=conditions(Query(""), None if request.body is None else _body(request)),
            ),
        )
        return committed.outcome.unwrap()

    async def _multi(self, request: Request) -> Any:
        operation = read_multi(_body(request))
        committed = await self._member.proposer.submit(
            operation, RequestContext(_request_id(request), self._deadline(request))
        )
        done: Any = committed.outcome.unwrap()
        results = [to_body(each, Encoding.MSGPACK) for each in done.results]
        body = {"results": results, "zxid": committed.outcome.zxid}
        if isinstance(operation, commands.Guarded):
            body["branch"] = "then" if done.is_then else "otherwise"
        return body

    async def _open(self, request: Request) -> Any:
        shape = from_body(SessionRequest, _body(request))
        opened = await self._member.open_session(
            shape.timeout_ms, shape.label, _request_id(request), self._deadline(request)
        )
        return SessionLease(opened.session_id, opened.timeout_ms)

    # --- streams

    def _watch(self, request: Request) -> Lines:
        asked = from_body(WatchRequest, _body(request))
        stream = self._member.watches.watch(
            asked.watches,
            from_zxid=asked.from_zxid,
            is_one_shot=asked.is_one_shot,
            wanted=Wanted(asked.has_values, only=frozenset(asked.only), prefix=asked.prefix),
            bookmark_ms=asked.bookmark_ms,
        )
        return watching(stream)

    def _acquire(self, request: Request, room: str, name: str = "") -> Lines:
        """Begin to wait for one lock or election, or (without a name) for several locks."""
        is_election = room == "elections"
        body = _body(request)
        asked = read_acquire(body, is_election=is_election) if name else read_acquire_several(body)
        wait_ms = asked.timeout_ms or DEADLINE_MS
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        session_id = asked.session_id
        assert session_id is not None, "the client draws the ids of its sessions"
        request_id, opening = _request_id(request), None
        if asked.lease_ms is not None:
            opening = self._member.kept_sessions.opening(
                asked.lease_ms, asked.session_label or "", request_id, session_id=session_id
            )
        common: dict[str, Any] = {
            "session_id": session_id,
            "opening": opening,
            "request": request_id,
            "wait_deadline_ms": deadline_ms,
            "is_try": asked.timeout_ms == 0,
            "leave_on_cancel": asked.on_disconnect == "leave",
        }

        is_followed = Encoding.JSON.value not in request.headers.get("accept", "")

        async def begin(told: Callable[[int], None]) -> GrantReply:
            how = common | {
                "on_queued": lambda _, position: told(position),
                "on_position": told if is_followed else None,
            }
            if is_election:
                return await self._member.elections.campaign(name, value=asked.value or b"", **how)
            names = asked.names if isinstance(asked, AcquireSeveral) else name
            nobody = replace(asked, pid=None, when_unsure="", purpose="", guard="")
            return await self._member.locks.acquire(names, wanted=nobody, **how)

        return waiting(begin, session_id)

    # --- shapes

    def _deadline(self, request: Request) -> int:
        wait_ms = int(request.headers.get(messages.TIMEOUT_HEADER.lower(), DEADLINE_MS))
        return self._clock.monotonic_ms() + wait_ms

    def _labels(self) -> dict[str, str]:
        _, zxid, index = self._member.labels()
        return _labels(zxid, index)

    def _response(
        self, status: int, body: Any, encoding: Encoding, labels: dict[str, str] | None = None
    ) -> Response:
        headers = {"content-type": encoding.value, **(labels or self._labels())}
        return Response(status=status, headers=headers, body=encoded(body, encoding))

    def _problem(self, error: CoordinatorError) -> Response:
        labels = self._labels()
        if type(zxid := error.fields.get("zxid")) is int:
            labels[messages.ZXID_HEADER.lower()] = str(zxid)
        return self._response(error.http_status, to_problem(error), Encoding.JSON, labels)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a read shows, to be labelled with the state that it was read from."""

    body: Any
    read: ReadReply[Any]


def _labels(zxid: int, index: int) -> dict[str, str]:
    return {messages.ZXID_HEADER.lower(): str(zxid), messages.INDEX_HEADER.lower(): str(index)}


def _encoding(media_type: str) -> Encoding:
    return Encoding.MSGPACK if media_type == Encoding.MSGPACK.value else Encoding.JSON


def _body(request: Request) -> Any:
    assert request.body is not None, f"{request.method} {request.target} has a body"
    return decode(request.body, _encoding(request.headers.get("content-type", "")))


def _request_id(request: Request) -> RequestId | None:
    headers = request.headers
    client_id = headers.get(messages.CLIENT_ID_HEADER.lower())
    if client_id is None:
        return None
    return RequestId(
        client_id,
        number=int(headers[messages.REQUEST_NUMBER_HEADER.lower()]),
        floor_index=int(headers.get(messages.FLOOR_INDEX_HEADER.lower(), "0")),
    )
