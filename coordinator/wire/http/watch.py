"""/v1/watch: a stream of what changes, in zxid order, resumable on any member."""

from __future__ import annotations

from collections import OrderedDict

from aiohttp import web

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.events import (
    Change,
    Watching,
    WatchKind,
    WatchRequest,
    WatchSelector,
)
from coordinator.service.watch_stream import WatchStream
from coordinator.wire import messages
from coordinator.wire.codec import encoded, reader, to_body
from coordinator.wire.http.bodies import MANY
from coordinator.wire.http.door import Door
from coordinator.wire.http.queries import Query, parsed_integer
from coordinator.wire.http.routes import Route
from coordinator.wire.http.streams import LineStream, wants

_QUERY = frozenset({"path", "kind", "from_zxid", "one_shot"})
_LINES_MAX = 256
_LINES_BYTES_MAX = 4 * 1024 * 1024
_POST_QUERY = frozenset({"from_zxid", "one_shot"})


class WatchRoutes:
    """Both ways of asking: a query for one kind, a body for many."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._lines = ChangeLines()

    def routes(self) -> tuple[Route, ...]:
        return (
            Route("GET", "/v1/watch", self.watch_query, "watch"),
            Route("POST", "/v1/watch", self.watch_body, "watch_many"),
        )

    async def watch_query(self, request: web.Request) -> web.StreamResponse:
        """Stream the changes of the paths in the query, all of one kind."""
        self._door.refuse_body(request)
        query = Query(request.rel_url.raw_query_string, _QUERY, repeatable=("path",))
        kind = query.text("kind") or "znode"
        if kind not in set(WatchKind):
            raise BadArgumentsError(
                f"query.kind: expected one of {', '.join(WatchKind)}, found {kind[:20]!r}"
            )
        asked = WatchRequest(
            watches=tuple(WatchSelector(path, WatchKind(kind)) for path in query.texts("path")),
            from_zxid=query.integer("from_zxid", minimum=0),
            is_one_shot=query.flag("one_shot"),
        )
        watch = await self._begun(request, asked)
        del asked, query
        return await self._stream(request, watch)

    async def watch_body(self, request: web.Request) -> web.StreamResponse:
        """Stream the changes that the selectors in the body ask for."""
        Query(request.rel_url.raw_query_string)
        asked = await self._door.body_read(request, reader(WatchRequest), MANY)
        watch = await self._begun(request, asked)
        del asked  # thousands of selectors, which nobody asks for again while it streams
        return await self._stream(request, watch)

    async def _begun(self, request: web.Request, asked: WatchRequest) -> WatchStream:
        door = self._door
        from_zxid = _resumed(request, asked.from_zxid)
        if from_zxid is not None:
            await door.member.reached(from_zxid, door.deadline_ms(request))
        return door.member.watch(
            asked.watches,
            from_zxid=from_zxid,
            is_one_shot=asked.is_one_shot,
        )

    async def _stream(self, request: web.Request, watch: WatchStream) -> web.StreamResponse:
        door = self._door
        is_sse = not wants(request, messages.NDJSON_TYPE)
        stream = LineStream(request, is_sse=is_sse, labels=door.labels())
        try:
            with door.told_of_closing(watch.close):
                await stream.send(to_body(Watching(watch.start_zxid)))
                async for item in watch:
                    if isinstance(item, Change):
                        line = self._lines.of(item)
                        await stream.send_encoded(line, "change", item.zxid)
                    else:
                        await stream.send(to_body(item))
        except CoordinatorError as error:
            if not stream.is_open:
                raise
            await stream.send_error(error)
        finally:
            watch.close()
        await stream.end()
        return stream.response


class ChangeLines:
    """The lines of the latest changes: many streams are told the same, and it is encoded once."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, tuple[Change, bytes]] = OrderedDict()
        self._bytes = 0

    def of(self, change: Change) -> bytes:
        """Return the JSON of ``change``."""
        kept = self._by_id.get(id(change))
        if kept is not None:
            return kept[1]
        line = encoded(change)
        self._by_id[id(change)] = change, line  # while it is held, no other one has its id
        self._bytes += len(line)
        while self._bytes > _LINES_BYTES_MAX or len(self._by_id) > _LINES_MAX:
            _, (_, oldest) = self._by_id.popitem(last=False)
            self._bytes -= len(oldest)
        return line


def _resumed(request: web.Request, from_zxid: int | None) -> int | None:
    """Return where to go on: a browser that reconnects says so in Last-Event-ID."""
    last_event_id = request.headers.get("Last-Event-ID")
    if last_event_id is None:
        return from_zxid
    return parsed_integer(last_event_id, "Last-Event-ID", minimum=0)
