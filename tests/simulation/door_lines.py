"""What a member's door says line by line: changes, and what who waits for a grant is told.

Apart from the door, since mypyc compiles no generator that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from coordinator.errors import CoordinatorError
from coordinator.model.events import StreamError, Watching
from coordinator.model.grants import Granted, GrantReply, Queued
from coordinator.service.member import Member
from coordinator.service.watches.watch_stream import WatchStream
from coordinator.wire.codec import encoded
from coordinator.wire.routes.silence import instead_of

KEEP_ALIVE_S = 2.0

Lines = AsyncGenerator[bytes, None]


async def until_different(member: Member, lines: Lines) -> Lines:
    """Pass the lines on while the member may say something."""
    async with aclosing(lines):
        async for line in lines:
            instead = instead_of(member, "POST", 200, None)
            if instead is not None:
                yield encoded(StreamError(instead))
                return
            yield line


async def watching(stream: WatchStream) -> Lines:
    """Tell where the watch begins, then each change."""
    try:
        yield encoded(Watching(stream.start_zxid))
        async for item in stream:
            yield encoded(item)
    except CoordinatorError as error:
        yield encoded(StreamError(error))
    finally:
        stream.close()


async def waiting(
    begin: Callable[[Callable[[int], None]], Awaitable[GrantReply]], session_id: str
) -> Lines:
    """Tell the positions, a blank line now and then, and in the end the grant or the error."""
    told: asyncio.Queue[int | None] = asyncio.Queue()
    waiting = asyncio.ensure_future(begin(told.put_nowait))
    waiting.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    position = await told.get()
            except TimeoutError:
                yield b""
                continue
            if position is None:
                break
            yield encoded(Queued(position, session_id))
        try:
            yield encoded(Granted(waiting.result()))
        except CoordinatorError as error:
            yield encoded(StreamError(error))
    finally:
        waiting.cancel()
