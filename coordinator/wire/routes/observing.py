"""The lines of an observed election: who is elected, and again whenever that changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.access import Caller
from coordinator.model.events import Bookmark
from coordinator.model.views import Elected, ElectionView
from coordinator.service.access import Expiry
from coordinator.wire import messages
from coordinator.wire.codec import to_body
from coordinator.wire.request import Answered, IncomingRequest, LineStream, wants
from coordinator.wire.routes.door import Door


async def observe(door: Door, request: IncomingRequest, name: str) -> Answered:
    """Answer with every view of the election ``name``, until the observation ends."""
    door.refuse_body(request)
    is_ndjson = wants(request, messages.NDJSON_TYPE)
    if not is_ndjson and not wants(request, messages.EVENT_STREAM_TYPE):
        raise BadArgumentsError(
            f"Accept: expected {messages.NDJSON_TYPE} or {messages.EVENT_STREAM_TYPE} "
            "with observe, found neither"
        )
    stream = door.lines(request, is_sse=not is_ndjson)
    try:
        await _send_views(door, stream, name, request.caller)
    except CoordinatorError as error:
        if not stream.is_open:
            raise
        await stream.send_error(error)
    await stream.end()
    return stream


async def _send_views(door: Door, stream: LineStream, name: str, caller: Caller) -> None:
    """Send every view until the observation ends, the door closes or the token expires."""
    views: AsyncGenerator[ElectionView | Bookmark] = door.member.elections.observe(name, caller)
    scope = asyncio.timeout(None)
    expiry = Expiry(door.member.access, caller, lambda: scope.reschedule(0))
    try:
        async with aclosing(views), scope:
            with door.closing.ends(lambda: scope.reschedule(0)), expiry:
                async for view in views:
                    if isinstance(view, Bookmark):
                        await stream.keep_alive()
                    else:
                        elected = Elected(view.elected, view.zxid)
                        await stream.send(to_body(elected, stream.encoding))
    except TimeoutError:
        if not scope.expired():
            raise
    expiry.check()
