"""/v1/tree/{path}: read, list, create, set and delete one znode."""

from __future__ import annotations

from typing import Any, Final

from coordinator.errors import BadArgumentsError
from coordinator.model.fields import ANY_VERSION
from coordinator.model.operations import Check, Create, Delete, Guarded, SetData
from coordinator.model.znodes import Child, Children, Subtree, Written, Znode
from coordinator.service.reads.subtree_reads import PAGE_MAX as SUBTREE_PAGE_MAX
from coordinator.service.writes.proposals import Committed, RequestContext
from coordinator.state.commands import HeldCondition, Operation, Put
from coordinator.state.outcomes import GuardedDone
from coordinator.wire import messages
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.if_held import IF_HELD
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.bodies import DATA
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.etags import (
    Expected,
    etag_of,
    expected,
    is_unchanged,
    refuse_on_create,
)
from coordinator.wire.routes.paths import path_url, znode_path
from coordinator.wire.routes.queries import CONDITIONS, READ_MODES, Query
from coordinator.wire.routes.route import Route

CHILDREN_LIMIT_DEFAULT: Final = 1_000
CHILDREN_LIMIT_MAX: Final = 10_000
STATS_PAGE_MAX: Final = 1_000
"""A page with Stats of a greater limit is shorter than asked for, and goes on as any does."""

_READ_QUERY: Final = frozenset(
    {*READ_MODES, "raw", "children", "after", "limit", "stat", "subtree"}
)
_CREATE_QUERY: Final = frozenset({"raw", "mode", "session_id", "ttl_ms", "parents", *CONDITIONS})
_SET_QUERY: Final = frozenset({"raw", "create", "expected_version", *CONDITIONS})
_DELETE_QUERY: Final = frozenset({"recursive", "expected_version", "expected_czxid", *CONDITIONS})
_RAW_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}
_CREATE_FIELDS: Final = ("mode", "session_id", "ttl_ms", "parents")


class TreeRoutes:
    """The routes of one door; the path of the znode is the rest of the URL."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of znodes."""
        return (
            Route("GET", "/v1/tree", self.read, "read_root"),
            Route("GET", "/v1/tree/{path}", self.read, "read_znode"),
            Route("HEAD", "/v1/tree/{path}", self.read, "head_znode"),
            Route("POST", "/v1/tree/{path}", self.create, "create_znode"),
            Route("PUT", "/v1/tree/{path}", self.set_data, "set_data"),
            Route("DELETE", "/v1/tree/{path}", self.delete, "delete_znode"),
        )

    async def read(self, request: IncomingRequest) -> Answer:
        """Return the data and Stat of a znode, or a page of its children."""
        path = znode_path(request.target)
        query = Query(request.query, _READ_QUERY)
        if query.flag("children"):
            return await self._list(request, path, query)
        if query.flag("subtree"):
            return await self._subtree(request, path, query)
        for name in ("after", "limit", "stat"):
            if name in query:
                raise BadArgumentsError(f"query: expected {name} with children, found it alone")
        door = self._door
        read = await door.member.get(
            path, query.read_mode(), door.deadline_ms(request), caller=request.caller
        )
        data, stat = read.value
        etag = {"ETag": etag_of(stat)}
        if is_unchanged(request, etag["ETag"]):
            return door.reply_bytes(read, None, etag, status=304)
        if query.flag("raw"):
            headers = {**etag, **_RAW_HEADERS}
            return door.reply_bytes(read, data, headers, content_type=messages.RAW_TYPE)
        return door.reply_read(request, Znode(path, data, stat), read, etag)

    async def _list(self, request: IncomingRequest, path: str, query: Query) -> Answer:
        door = self._door
        if query.flag("raw"):
            raise BadArgumentsError("query: expected children or raw, found both")
        if query.flag("subtree"):
            raise BadArgumentsError("query: expected children or subtree, found both")
        limit = query.integer("limit", minimum=1, maximum=CHILDREN_LIMIT_MAX)
        if limit is not None and query.flag("stat"):
            limit = min(limit, STATS_PAGE_MAX)
        read = await door.member.children(
            path,
            query.read_mode(),
            door.deadline_ms(request),
            after=query.text("after"),
            limit=CHILDREN_LIMIT_DEFAULT if limit is None else limit,
            with_stat=query.flag("stat"),
            caller=request.caller,
        )
        page = read.value
        listed = Children(path, page.names, page.stat, page.next)
        if not query.flag("stat"):
            return door.reply_read(request, listed, read)
        children = tuple(zip(page.names, page.stats, strict=True))
        body = to_body(listed)
        return await door.reply_listed(request, body, {"children": (children, _child_body)}, read)

    async def _subtree(self, request: IncomingRequest, path: str, query: Query) -> Answer:
        door = self._door
        for name in ("raw", "stat"):
            if query.flag(name):
                raise BadArgumentsError(f"query: expected subtree or {name}, found both")
        limit = query.integer("limit", minimum=0, maximum=SUBTREE_PAGE_MAX)
        read = await door.member.subtrees.page(
            path,
            query.read_mode(),
            door.deadline_ms(request),
            after=query.text("after"),
            limit=SUBTREE_PAGE_MAX if limit is None else limit,
            caller=request.caller,
        )
        page = read.value
        body = to_body(Subtree(path, (), page.zxid, page.next, page.is_partial))
        return await door.reply_listed(request, body, {"znodes": (page.znodes, to_body)}, read)

    async def create(self, request: IncomingRequest) -> Answer:
        """Create a znode; a sequential mode answers with the full name."""
        door = self._door
        path = znode_path(request.target)
        refuse_on_create(request)
        query = Query(request.query, _CREATE_QUERY)
        if query.flag("raw"):
            fields: dict[str, Any] = {name: query.text(name) for name in _CREATE_FIELDS}
            fields["ttl_ms"] = query.integer("ttl_ms")
            body, data = None, await door.raw_data(request, DATA)
            operation = from_body(Create, fields, "query", given={"path": path, "data": data})
        else:
            _refuse_without_raw(query, _CREATE_FIELDS)
            body = await door.body(request, DATA)
            operation = from_body(Create, body, given={"path": path}, beside=IF_HELD)
        if_held = conditions(query, body)
        committed = await self._submit(request, operation, if_held)
        return self._written(request, committed, committed.outcome.unwrap(), status=201)

    async def set_data(self, request: IncomingRequest) -> Answer:
        """Replace the data of a znode; with ``?create`` also where there is none."""
        door = self._door
        path = znode_path(request.target)
        query = Query(request.query, _SET_QUERY)
        tag = expected(request)
        if query.flag("raw"):
            body, data = None, await door.raw_data(request, DATA)
            given = _queried_version(query)
            set_data = SetData(path, data, given)
        else:
            _refuse_without_raw(query, ("expected_version",))
            body = await door.body(request, DATA)
            set_data = from_body(SetData, body, given={"path": path}, beside=IF_HELD)
            data, given = set_data.data, set_data.expected_version
        version = _one_version(tag.version, given)
        operation = set_data if version == given else SetData(path, data, version)
        if_held = conditions(query, body)
        if query.flag("create"):
            if tag.is_given or given != ANY_VERSION:
                raise BadArgumentsError("query: expected create or an expected version, found both")
            return await self._upsert(request, operation, if_held)
        committed = await self._submit(request, _bound(operation, tag), if_held)
        done: Any = committed.outcome.unwrap()
        result = done.results[0] if isinstance(done, GuardedDone) else done
        return self._written(request, committed, result, status=200)

    async def _upsert(
        self,
        request: IncomingRequest,
        operation: SetData,
        if_held: tuple[HeldCondition, ...],
    ) -> Answer:
        put = Put(operation.path, operation.data)
        committed = await self._submit(request, put, if_held)
        done: Any = committed.outcome.unwrap()
        status = 201 if done.is_then else 200
        return self._written(request, committed, done.results[0], status=status)

    async def delete(self, request: IncomingRequest) -> Answer:
        """Delete a znode, with ``?recursive`` and all below it."""
        door = self._door
        path = znode_path(request.target)
        query = Query(request.query, _DELETE_QUERY)
        if request.has_body:
            raise BadArgumentsError("body: expected none (conditions are in the query), found one")
        tag = expected(request)
        operation = Delete(
            path=path,
            expected_version=_one_version(tag.version, _queried_version(query)),
            expected_czxid=_one_czxid(tag.czxid, query.integer("expected_czxid", minimum=0)),
            is_recursive=query.flag("recursive"),
        )
        committed = await self._submit(request, operation, conditions(query))
        done: Any = committed.outcome.unwrap()
        body = to_body(done, given=("op",))
        return door.reply(request, body, zxid=committed.outcome.zxid, index=committed.index)

    async def _submit(
        self,
        request: IncomingRequest,
        operation: Operation,
        if_held: tuple[HeldCondition, ...],
    ) -> Committed:
        door = self._door
        return await door.member.proposer.submit(
            operation,
            RequestContext(
                door.request_id(request),
                door.deadline_ms(request),
                caller=request.caller,
                if_held=if_held,
            ),
        )

    def _written(
        self, request: IncomingRequest, committed: Committed, result: Any, *, status: int
    ) -> Answer:
        headers = {"ETag": etag_of(result.stat)}
        if status == 201:
            headers["Location"] = path_url(result.path)
        return self._door.reply(
            request,
            Written(result.path, result.stat),
            zxid=committed.outcome.zxid,
            index=committed.index,
            status=status,
            headers=headers,
        )


def _child_body(child: tuple[str, Any], encoding: Encoding) -> Any:
    return to_body(Child(*child), encoding)


def _one_version(in_header: int, given: int) -> int:
    if in_header != ANY_VERSION and given not in (ANY_VERSION, in_header):
        raise BadArgumentsError(
            f"expected_version: expected the same as in If-Match ({in_header}), found {given}"
        )
    return given if in_header == ANY_VERSION else in_header


def _one_czxid(in_header: int | None, given: int | None) -> int | None:
    if None not in (in_header, given) and in_header != given:
        raise BadArgumentsError(
            f"expected_czxid: expected the same as in If-Match ({in_header}), found {given}"
        )
    return given if in_header is None else in_header


def _bound(operation: SetData, tag: Expected) -> Operation:
    """Return ``operation``, bound to the incarnation of the znode that ``tag`` names, if it does.

    The check that fails is done again, so that its refusal is that of the whole."""
    if tag.czxid is None:
        return operation
    check = Check(
        operation.path, expected_version=operation.expected_version, expected_czxid=tag.czxid
    )
    return Guarded(conditions=(check,), then=(operation,), otherwise=(check,))


def _queried_version(query: Query) -> int:
    version = query.integer("expected_version", minimum=ANY_VERSION)
    return ANY_VERSION if version is None else version


def _refuse_without_raw(query: Query, names: tuple[str, ...]) -> None:
    for name in names:
        if name in query:
            raise BadArgumentsError(
                f"query: expected {name} in the body (in the query only with raw)"
            )
