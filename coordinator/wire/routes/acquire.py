"""One request to acquire a lock or to be elected: from the request to the grant, or to its end.

1. The wait is in the server: one request, answered by the grant, or streamed line by line.
2. ``on_disconnect: leave``: a client that goes away leaves the queue, and a grant that it can no
   longer be told is given back. ``stay``: the contender stays until abandoned or its session ends.
3. ``lease_ms``: the session opened for this grant is kept alive while its client waits, begins its
   lease in full with the grant, and ends with an attempt that failed; not with one whose grant
   may have been read, whatever becomes of the connection then.
4. When the door closes, the wait is given up with an indefinite error: the contender may stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from coordinator.errors import BadArgumentsError, ConnectionLostError, CoordinatorError
from coordinator.model.acquire import Acquire
from coordinator.model.grants import AcquireReply, Granted, GrantReply, Queued
from coordinator.model.sessions import safe_ms
from coordinator.service.kept_sessions import KeptSession
from coordinator.service.tasks import let_go
from coordinator.wire import messages
from coordinator.wire.codec import to_body
from coordinator.wire.request import KEEP_ALIVE_S, Answered, LineStream, Request, wants
from coordinator.wire.routes.door import Door

_CLIENT_ID, _NUMBER = 4, 5

Begin = Callable[[str, Callable[[int], None] | None], Awaitable[GrantReply]]
"""Enters the queue for (session_id, on_position) and returns the grant."""

GiveBack = Callable[[GrantReply, int], Awaitable[object]]
"""Releases a grant that nobody was told of, by a deadline."""


class AcquireHandler:
    """One of them. ``begin`` enters the queue, ``give_back`` releases what nobody was told of."""

    def __init__(
        self,
        door: Door,
        request: Request,
        asked: Acquire,
        begin: Begin,
        give_back: GiveBack,
    ) -> None:
        self._door = door
        self._request = request
        self._asked = asked
        self._begin = begin
        self._give_back_now = give_back
        self._kept: KeptSession | None = None
        """The session opened for this grant, when the client gave a lease."""
        self._leaves = asked.on_disconnect == "leave"
        self._is_told = False
        """Whether the client may have read that it was granted."""

    async def answer(self) -> Answered:
        """Return the response: the grant, or why not."""
        if self._asked.lease_ms is None:
            return await self._answer()
        self._kept = kept = self._new_session(self._asked.lease_ms)
        try:
            await kept.open(self._door.deadline_ms(self._request))
            return await self._answer()
        finally:
            if not self._is_told:
                self._door.spawn(kept.end, f"end session {kept.session_id}", is_lasting=True)

    async def _answer(self) -> Answered:
        if wants(self._request, messages.NDJSON_TYPE):
            return await self._stream()
        grant = await self._granted(None)
        if self._leaves and not self._request.is_connected():
            self._give_back(grant)
            raise ConnectionResetError("the client went away while it waited")
        response = self._door.reply_now(self._request, AcquireReply(grant))
        self._is_told = True
        return response

    async def _granted(self, on_position: Callable[[int], None] | None) -> GrantReply:
        """Return the grant; gives up when the door closes."""
        try:
            async with asyncio.timeout(None) as scope:
                with self._door.told_of_closing(lambda: scope.reschedule(0)):
                    return await self._begun(on_position)
        except TimeoutError:
            if not scope.expired():
                raise
            raise ConnectionLostError(
                "this member is stopping; the attempt may still be queued. Repeat it at "
                "another member with the same request number, or abandon it"
            ) from None

    async def _begun(self, on_position: Callable[[int], None] | None) -> GrantReply:
        """Return the grant, with what is promised of its lease when it is one of its own."""
        begin, kept = self._begin, self._kept
        if kept is None:
            assert self._asked.session_id is not None, "a request has a session or a lease"
            grant = await begin(self._asked.session_id, on_position)
            return await self._with_promise(grant)
        async with kept.kept():
            grant = await begin(kept.session_id, on_position)
        paths = [grant.path, *(each.path for each in grant.grants)]
        await kept.begin_in_full(paths)
        return _with_lease(grant, kept.lease_ms, kept.remaining_ms(paths))

    async def _with_promise(self, grant: GrantReply) -> GrantReply:
        """Return the grant with what the leader promises of the session that the client brought.

        A client that numbers its requests sends heartbeats and counts from those; it is spared
        the round to the leader."""
        door = self._door
        if door.request_id(self._request) is not None:
            return grant
        grants = (grant, *grant.grants)
        paths = dict.fromkeys([each.path for each in grants if each.max_hold_ms])
        deadline_ms = door.deadline_ms(self._request)
        try:
            left = await door.member.lock_views.lease_left(
                grant.session_id, tuple(paths), deadline_ms
            )
        except asyncio.CancelledError:
            if self._leaves:
                self._give_back(grant)
            raise
        if left is None:
            return grant
        return _with_lease(grant, *left)

    # --- line by line

    async def _stream(self) -> Answered:
        stream = self._request.lines(self._door.labels())
        positions = _Positions()
        waiting = asyncio.create_task(self._granted(positions.put))
        waiting.add_done_callback(positions.wake)
        is_granting = False
        try:
            while not waiting.done():
                await self._tell_position(stream, positions)
            grant = waiting.result()
            is_granting = True
            await stream.send(to_body(Granted(grant), stream.encoding))
        except CoordinatorError as error:
            if not stream.is_open:
                raise  # the status can still say it
            await stream.send_error(error)
        finally:
            self._is_told = is_granting and stream.is_line_out
            if not self._is_told:
                await self._give_up(waiting)
            let_go(waiting)
        await stream.end()
        return stream

    async def _tell_position(self, stream: LineStream, positions: _Positions) -> None:
        """Send the next position, or a blank line when there is none for a while."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                position = await positions.get()
        except TimeoutError:
            await stream.keep_alive()
            return
        if position is not None:
            await stream.send(to_body(Queued(position), stream.encoding))

    async def _give_up(self, waiting: asyncio.Task[GrantReply]) -> None:
        """End the wait of a client that is not there any more, and what came of it."""
        waiting.cancel()
        await asyncio.wait({waiting})
        if self._leaves and not waiting.cancelled() and waiting.exception() is None:
            self._give_back(waiting.result())

    # --- leaving nothing behind

    def _give_back(self, grant: GrantReply) -> None:
        # With a request number its client may find the grant at another member, and hold it there.
        is_lasting = self._door.request_id(self._request) is None
        chore = partial(self._give_back_now, grant)
        self._door.spawn(chore, f"give back {grant.grant_id}", is_lasting=is_lasting)

    def _new_session(self, lease_ms: int) -> KeptSession:
        if self._door.request_id(self._request) is not None:
            raise BadArgumentsError(
                "body.lease_ms: expected session_id in a request that carries a request number "
                "(its repetition would open another session), found lease_ms"
            )
        address = self._door.address(self._request)
        return self._door.member.kept_sessions.new(lease_ms, self._asked.label, address)


def _with_lease(grant: GrantReply, lease_ms: int, remaining_ms: int) -> GrantReply:
    """Return the grant with what is promised of its lease."""
    grants = tuple([_with_lease(each, lease_ms, remaining_ms) for each in grant.grants])
    safe = safe_ms(lease_ms, remaining_ms)
    return replace(grant, lease_ms=lease_ms, safe_ms=safe, grants=grants)


def wait_deadline_ms(door: Door, request: Request, asked: Acquire) -> int:
    """Return until when to wait; a try is bounded as every request is."""
    return door.clock.monotonic_ms() + (asked.timeout_ms or door.timeout_ms(request))


class _Positions:
    """The latest position that is not told yet; wakes its one reader."""

    def __init__(self) -> None:
        self._latest: int | None = None
        self._woken = asyncio.Event()

    def put(self, position: int) -> None:
        self._latest = position
        self._woken.set()

    def wake(self, _done: object) -> None:
        self._woken.set()

    async def get(self) -> int | None:
        """Wait for something to tell; None when there is only the end."""
        await self._woken.wait()
        self._woken.clear()
        position, self._latest = self._latest, None
        return position
