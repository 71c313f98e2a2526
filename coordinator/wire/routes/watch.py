"""/v1/watch: a stream of what changes, in zxid order, resumable on any member."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.events import (
    BOOKMARK_MS_MAX,
    BOOKMARK_MS_MIN,
    Change,
    EventType,
    Watching,
    WatchKind,
    WatchRequest,
    WatchSelector,
)
from coordinator.service.access import Expiry
from coordinator.service.watches.watch_stream import Wanted, WatchItem, WatchStream
from coordinator.wire import messages
from coordinator.wire.codec import encoded, reader, to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.request import Answered, IncomingRequest, LineStream, wants
from coordinator.wire.routes.bodies import MANY
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import Query, parsed_integer
from coordinator.wire.routes.route import Route

_QUERY = frozenset(
    {"path", "kind", "from_zxid", "one_shot", "values", "only", "prefix", "bookmark_ms"}
)
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

    async def watch_query(self, request: IncomingRequest) -> Answered:
        """Stream the changes of the paths in the query, all of one kind."""
        self._door.refuse_body(request)
        query = Query(request.query, _QUERY, repeatable=("path", "only"))
        kind = query.text("kind") or "znode"
        if kind not in set(WatchKind):
            raise BadArgumentsError(
                f"query.kind: expected one of {', '.join(WatchKind)}, found {kind[:20]!r}"
            )
        only = query.texts("only")
        for each in only:
            if each not in set(EventType):
                raise BadArgumentsError(
                    f"query.only: expected one of {', '.join(EventType)}, found {each[:20]!r}"
                )
        watch_request = WatchRequest(
            watches=tuple(WatchSelector(path, WatchKind(kind)) for path in query.texts("path")),
            from_zxid=query.integer("from_zxid", minimum=0),
            is_one_shot=query.flag("one_shot"),
            has_values=query.flag("values"),
            only=tuple(EventType(each) for each in only),
            prefix=query.text("prefix") or "",
            bookmark_ms=query.integer(
                "bookmark_ms", minimum=BOOKMARK_MS_MIN, maximum=BOOKMARK_MS_MAX
            ),
        )
        watch = await self._begun(request, watch_request)
        del watch_request, query
        return await self._stream(request, watch)

    async def watch_body(self, request: IncomingRequest) -> Answered:
        """Stream the changes that the selectors in the body ask for."""
        Query(request.query)
        watch_request = await self._door.body_read(request, reader(WatchRequest), MANY)
        watch = await self._begun(request, watch_request)
        del watch_request  # thousands of selectors, which nobody asks for again while it streams
        return await self._stream(request, watch)

    async def _begun(self, request: IncomingRequest, watch_request: WatchRequest) -> WatchStream:
        door = self._door
        from_zxid = _resumed(request, watch_request.from_zxid)
        if from_zxid is not None:
            await door.member.reached(from_zxid, door.deadline_ms(request))
        door.turns.note_quick()
        return door.member.watches.watch(
            watch_request.watches,
            from_zxid=from_zxid,
            is_one_shot=watch_request.is_one_shot,
            wanted=Wanted(
                watch_request.has_values, frozenset(watch_request.only), watch_request.prefix
            ),
            bookmark_ms=watch_request.bookmark_ms,
            caller=request.caller,
        )

    async def _stream(self, request: IncomingRequest, watch: WatchStream) -> Answered:
        door = self._door
        is_sse = not wants(request, messages.NDJSON_TYPE)
        stream = door.lines(request, is_sse=is_sse)
        try:
            expiry = Expiry(door.member.access, request.caller, watch.close)
            with door.closing.ends(watch.close), expiry:
                await stream.send(to_body(Watching(watch.start_zxid), stream.encoding))
                watch.hand_to(partial(self._sent_at_once, stream))
                async for item in watch:
                    if isinstance(item, Change):
                        line = self._lines.of(item, stream.encoding)
                        await stream.send_encoded(line, "change", item.zxid)
                    else:
                        await stream.send(to_body(item, stream.encoding))
            expiry.check()
        except CoordinatorError as error:
            if not stream.is_open:
                raise
            await stream.send_error(error)
        finally:
            watch.close()
        await stream.end()
        return stream

    def _sent_at_once(self, stream: LineStream, item: WatchItem) -> bool:
        """Send a change if nothing must be waited for; return whether that was so."""
        if not isinstance(item, Change):
            return False
        return stream.send_at_once(self._lines.of(item, stream.encoding))


class ChangeLines:
    """The lines of the latest changes: many streams send the same, and it is encoded once."""

    def __init__(self) -> None:
        self._last: tuple[Change | None, Encoding, bytes] = None, Encoding.JSON, b""
        self._kept: OrderedDict[tuple[int, Encoding], tuple[Change, bytes]] = OrderedDict()
        self._bytes = 0

    def of(self, change: Change, encoding: Encoding) -> bytes:
        """Return ``change`` as a line of this ``encoding``."""
        last, its_encoding, line = self._last
        if last is change and its_encoding is encoding:
            return line
        key = id(change), encoding
        kept = self._kept.get(key)
        if kept is not None:
            self._last = change, encoding, kept[1]
            return kept[1]
        line = encoded(change, encoding)
        self._last = change, encoding, line
        self._kept[key] = change, line  # while it is held, no other one has its id
        self._bytes += len(line)
        while self._bytes > _LINES_BYTES_MAX or len(self._kept) > _LINES_MAX:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= len(oldest)
        return line


def _resumed(request: IncomingRequest, from_zxid: int | None) -> int | None:
    """Return where to go on: a browser that reconnects says so in Last-Event-ID."""
    last_event_id = request.headers.get("last-event-id")
    if last_event_id is None:
        return from_zxid
    return parsed_integer(last_event_id, "Last-Event-ID", minimum=0)
