"""/v1/watch: a stream of what changes, in zxid order, resumable on any member."""

from __future__ import annotations

from collections import OrderedDict

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
from coordinator.wire.encoding import Encoding
from coordinator.wire.request import Answered, Request, wants
from coordinator.wire.routes.bodies import MANY
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import Query, parsed_integer
from coordinator.wire.routes.route import Route

_QUERY = frozenset({"path", "kind", "from_zxid", "one_shot"})
_LINES_MAX = 256
_LINES_BYTES_MAX = 4 * 1024 * 1024


class WatchRoutes:
    """Both ways of asking: a query for one kind, a body for many."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._lines = ChangeLines()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of watches."""
        return (
            Route("GET", "/v1/watch", self.watch_query, "watch"),
            Route("POST", "/v1/watch", self.watch_body, "watch_many"),
        )

    async def watch_query(self, request: Request) -> Answered:
        """Stream the changes of the paths in the query, all of one kind."""
        self._door.refuse_body(request)
        query = Query(request.query, _QUERY, repeatable=("path",))
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

    async def watch_body(self, request: Request) -> Answered:
        """Stream the changes that the selectors in the body ask for."""
        Query(request.query)
        asked = await self._door.body_read(request, reader(WatchRequest), MANY)
        watch = await self._begun(request, asked)
        del asked  # thousands of selectors, which nobody asks for again while it streams
        return await self._stream(request, watch)

    async def _begun(self, request: Request, asked: WatchRequest) -> WatchStream:
        door = self._door
        from_zxid = _resumed(request, asked.from_zxid)
        if from_zxid is not None:
            await door.member.reached(from_zxid, door.deadline_ms(request))
        return door.member.watch(
            asked.watches,
            from_zxid=from_zxid,
            is_one_shot=asked.is_one_shot,
        )

    async def _stream(self, request: Request, watch: WatchStream) -> Answered:
        door = self._door
        is_sse = not wants(request, messages.NDJSON_TYPE)
        stream = request.lines(door.labels(), is_sse=is_sse)
        try:
            with door.told_of_closing(watch.close):
                await stream.send(to_body(Watching(watch.start_zxid), stream.encoding))
                async for item in watch:
                    if isinstance(item, Change):
                        line = self._lines.of(item, stream.encoding)
                        await stream.send_encoded(line, "change", item.zxid)
                    else:
                        await stream.send(to_body(item, stream.encoding))
        except CoordinatorError as error:
            if not stream.is_open:
                raise
            await stream.send_error(error)
        finally:
            watch.close()
        await stream.end()
        return stream


class ChangeLines:
    """The lines of the latest changes: many streams are told the same, and it is encoded once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, Encoding], tuple[Change, bytes]] = OrderedDict()
        self._bytes = 0

    def of(self, change: Change, encoding: Encoding) -> bytes:
        """Return ``change`` as a line of this ``encoding``."""
        key = id(change), encoding
        kept = self._kept.get(key)
        if kept is not None:
            return kept[1]
        line = encoded(change, encoding)
        self._kept[key] = change, line  # while it is held, no other one has its id
        self._bytes += len(line)
        while self._bytes > _LINES_BYTES_MAX or len(self._kept) > _LINES_MAX:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= len(oldest)
        return line


def _resumed(request: Request, from_zxid: int | None) -> int | None:
    """Return where to go on: a browser that reconnects says so in Last-Event-ID."""
    last_event_id = request.headers.get("last-event-id")
    if last_event_id is None:
        return from_zxid
    return parsed_integer(last_event_id, "Last-Event-ID", minimum=0)
