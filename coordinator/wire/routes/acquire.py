"""One request to acquire a lock or to be elected: from the request to the grant, or to its end.

1. The wait is in the server: one request, and one answer. A client that takes lines only gets its
   position as it changes. One that takes either gets one answer if it need not wait for longer
   than ``_SOON_MS``; else lines, which say that the member lives, and at the end what came of it.
   One that opens a session gets them at once.
2. ``on_disconnect: leave``: a client that goes away leaves the queue, and a grant whose answer
   cannot reach it is given back. ``stay``: the contender stays until abandoned or its session ends.
3. ``lease_ms``: the session opened for this grant is kept alive while its client waits, begins its
   lease in full with the grant, and ends with an attempt that failed; not with one whose grant
   may have been read, whatever becomes of the connection then. It is opened by the command that
   queues. In a numbered request it is the client's own to keep alive and to close: it is named by
   the first line, by the grant, and by the error of an attempt that was queued.
4. When the door closes, the wait is given up with an indefinite error: the contender may be queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    LockTimeoutError,
    forget_frames,
)
from coordinator.model.acquire import Acquire
from coordinator.model.grants import AcquireReply, Granted, GrantReply, Queued
from coordinator.model.sessions import safe_ms
from coordinator.service.access import Expiry
from coordinator.service.base.tasks import let_go
from coordinator.service.base.timers import Deadline, Timer
from coordinator.service.sessions.kept_sessions import KeptSession, in_words_of_a_lease
from coordinator.state.commands import OpenSession, RequestId
from coordinator.wire import messages
from coordinator.wire.codec import to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.request import (
    KEEP_ALIVE_S,
    Answer,
    Answered,
    IncomingRequest,
    LineStream,
)
from coordinator.wire.routes.door import Door

_JSON, _MSGPACK = Encoding.JSON.value, Encoding.MSGPACK.value
_KEEP_ALIVE_MS: Final = int(KEEP_ALIVE_S * 1_000)
_SOON_MS: Final = 20
"""A lock that is handed on quickly is mostly granted by then, with one frame instead of four. Its
client lets so many attempts go without an answer (``client/turns``), so it may not be long."""
_PATIENT_MS: Final = 1_000
"""Who gives up sooner is told at once that it waits: else its own time is over before the answer
that it timed out, and it would take this member for one that does not answer."""


class Entering(NamedTuple):
    """The session with which to enter the queue, and the callbacks for the wait."""

    session_id: str
    opening: OpenSession | None
    on_queued: Callable[[str, int], None]
    on_position: Callable[[int], None] | None
    kept: KeptSession | None = None
    """The session that is opened and kept for an attempt without a number."""


Begin = Callable[[Entering], Awaitable[GrantReply]]
"""Enters the queue and returns the grant."""

GiveBack = Callable[[GrantReply, int], Awaitable[object]]
"""Releases a grant that no client knows of, by a deadline."""


class AcquireHandler:
    """One of them. ``begin`` enters the queue, ``give_back`` releases what no client knows of."""

    def __init__(
        self,
        door: Door,
        request: IncomingRequest,
        wanted: Acquire,
        *,
        request_id: RequestId | None,
        begin: Begin,
        give_back: GiveBack,
    ) -> None:
        self._door = door
        self._request = request
        self._wanted = wanted
        self._request_id = request_id
        self._begin = begin
        self._give_back_now = give_back
        self._kept: KeptSession | None = None
        """The session opened for this grant, when the client gave a lease and no number."""
        self._queued_as = ""
        """The session that waits; empty if it did not have to."""
        self._waiting: _Waiting | None = None
        """The lines of its wait, for a client that takes lines."""
        self._scope = Deadline()
        self._leaves = wanted.on_disconnect == "leave"
        self._may_be_soon = False
        """Whether it may be answered without lines, although it has to wait for a moment."""
        self._is_told = False
        """Whether the client may have read that it was granted."""

    def answer(self) -> Awaitable[Answered]:
        """Return the response: the grant, or why not."""
        lease_ms = self._wanted.lease_ms
        if lease_ms is None or self._request_id is not None:
            return self._answer()
        return self._answer_kept(lease_ms)

    async def _answer_kept(self, lease_ms: int) -> Answered:
        """Return the response to an attempt without a number, with a session of its own."""
        if self._wanted.session_id is not None:
            raise BadArgumentsError(
                "body: expected session_id or lease_ms in a request without a number (a session "
                "under an id of the client's is opened by a numbered one), found both"
            )
        address = self._door.address(self._request)
        kept = self._door.member.kept_sessions.new(
            lease_ms, _session_label(self._wanted), address, caller=self._request.caller
        )
        self._kept = kept
        try:
            return await self._answer()
        finally:
            if not self._is_told:
                name = f"end session {kept.session_id}"
                self._door.clean_up.begin(kept.end, name, is_lasting=True)

    async def _answer(self) -> Answered:
        accept = (self._request.headers.get("accept") or "").lower()
        if messages.NDJSON_TYPE not in accept:
            return self._reply(await self._granted(None))
        takes_either = _JSON in accept or _MSGPACK in accept
        timeout_ms, lease_ms = self._wanted.timeout_ms, self._wanted.lease_ms
        is_patient = timeout_ms is None or timeout_ms >= _PATIENT_MS
        self._may_be_soon = takes_either and lease_ms is None and is_patient
        return await self._stream(None if takes_either else self._send_position)

    def _reply(self, grant: GrantReply) -> Answer:
        """Return the grant as the one answer."""
        if self._leaves and not self._request.is_connected():
            self._give_back(grant)
            raise ConnectionResetError("the client went away while it waited")
        response = self._door.reply_now(self._request, AcquireReply(grant))
        self._is_told = True
        return response

    async def _granted(self, on_position: Callable[[int], None] | None) -> GrantReply:
        """Return the grant; gives up when the door closes."""
        scope, door, cut = self._scope, self._door, self._scope.cut
        expiry = Expiry(door.member.access, self._request.caller, cut)
        try:
            async with scope:
                door.closing.add_listener(cut)
                with expiry:
                    return await self._begun(on_position)
        except LockTimeoutError as error:
            if self._queued_as and self._kept is None:
                error.fields["session_id"] = self._queued_as
            raise
        except TimeoutError:
            if not scope.is_expired:
                raise
            if self._waiting is not None and self._waiting.error is not None:
                raise self._waiting.error from None
            expiry.check()
            raise ConnectionLostError(
                "this member is stopping; the attempt may still be queued. Repeat it at "
                "another member with the same request number, or abandon it"
            ) from None
        finally:
            door.closing.remove_listener(cut)

    async def _begun(self, on_position: Callable[[int], None] | None) -> GrantReply:
        """Return the grant, with what is promised of its lease when it is one of its own."""
        begin, kept, wanted = self._begin, self._kept, self._wanted
        if kept is not None:
            entering = Entering(kept.session_id, kept.begin(), self._on_queued, on_position, kept)
            try:
                grant = await kept.kept(begin(entering))
            except BadArgumentsError as error:
                raise in_words_of_a_lease(error) from None
            paths = [grant.path, *[each.path for each in grant.grants]]
            await kept.begin_in_full(paths)
            return _with_lease(grant, kept.lease_ms, kept.remaining_ms(paths))
        opening, session_id = None, wanted.session_id
        if wanted.lease_ms is not None:
            opening = self._door.member.kept_sessions.opening(
                wanted.lease_ms,
                _session_label(wanted),
                self._request_id,
                session_id=wanted.session_id,
                address=self._door.address(self._request),
            )
            session_id = opening.session_id
        assert session_id is not None, "a request has a session or a lease"
        try:
            grant = await begin(Entering(session_id, opening, self._on_queued, on_position))
        except BadArgumentsError as error:
            raise in_words_of_a_lease(error) from None
        # A client that numbers its requests sends heartbeats and counts from those; it is spared
        # the round to the leader.
        return grant if self._request_id is not None else await self._with_promise(grant)

    def _on_queued(self, session_id: str, position: int) -> None:
        self._queued_as = session_id
        self._request.on_waiting()
        if self._may_be_soon and self._waiting is not None:
            self._waiting.send_soon(position, session_id)
        else:
            self._send_position(position)

    def _send_position(self, position: int) -> None:
        if self._waiting is not None:
            self._waiting.send(position, self._queued_as)

    async def _with_promise(self, grant: GrantReply) -> GrantReply:
        """Return the grant with what the leader promises of the session that the client brought."""
        door = self._door
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

    async def _stream(self, on_position: Callable[[int], None] | None) -> Answered:
        """Answer in lines; without ``on_position`` by the grant alone if it need not wait."""
        self._waiting = waiting = _Waiting(self._door, self._request, self._scope.cut)
        grant: GrantReply | None = None
        is_granting = False
        failed: CoordinatorError | None = None
        try:
            try:
                grant = await self._granted(on_position)
                await waiting.end()
                if on_position is None and not waiting.is_open:
                    granted, grant = grant, None
                    return self._reply(granted)
                stream = waiting.lines()
                is_granting = True
                await stream.send(to_body(Granted(grant), stream.encoding))
            except CoordinatorError as error:
                failed = error
            if failed is not None:
                await waiting.end()
                if not waiting.is_open:
                    raise failed  # the status can still say it
                await waiting.lines().send_error(failed)
        finally:
            failed = None  # its frames hold it: no cycle is left for the collector
            waiting.stop()
            self._is_told = self._is_told or (is_granting and waiting.lines().is_line_out)
            if grant is not None and self._leaves and not self._is_told:
                self._give_back(grant)
        lines = waiting.lines()
        await lines.end()
        return lines

    # --- leaving nothing behind

    def _give_back(self, grant: GrantReply) -> None:
        # With a request number its client may find the grant at another member, and hold it there.
        is_lasting = self._request_id is None
        undo = partial(self._give_back_now, grant)
        self._door.clean_up.begin(undo, f"give back {grant.grant_id}", is_lasting=is_lasting)


def _session_label(wanted: Acquire) -> str:
    return wanted.label if wanted.session_label is None else wanted.session_label


def _with_lease(grant: GrantReply, lease_ms: int, remaining_ms: int) -> GrantReply:
    """Return the grant with what is promised of its lease."""
    grants = tuple([_with_lease(each, lease_ms, remaining_ms) for each in grant.grants])
    safe = safe_ms(lease_ms, remaining_ms)
    return replace(grant, lease_ms=lease_ms, safe_ms=safe, grants=grants)


def wait_deadline_ms(door: Door, request: IncomingRequest, wanted: Acquire) -> int:
    """Return until when to wait; a try is bounded as every request is."""
    return door.clock.monotonic_ms() + (wanted.timeout_ms or door.timeout_ms(request))


class _Waiting:
    """The lines that a client gets while it waits: where it is in the queue, and that the member
    lives. A task of their own sends them, from when there is something to say; most need none.

    ``on_lost`` is called when one cannot be sent; ``error`` says why."""

    def __init__(self, door: Door, request: IncomingRequest, on_lost: Callable[[], None]) -> None:
        self._door = door
        self._request = request
        self._stream: LineStream | None = None
        self._on_lost = on_lost
        self._task: asyncio.Task[None] | None = None
        self._beginning: Timer | None = self._begin_in(_KEEP_ALIVE_MS)
        self._latest: tuple[int, str] | None = None
        """The position that is not reported yet, and the session that waits."""
        self._woken: asyncio.Event | None = None  # most need not wait
        self._is_sending = self._is_ending = False
        self.error: Exception | None = None

    def lines(self) -> LineStream:
        """Return what the lines are sent by."""
        stream = self._stream
        if stream is None:
            self._stream = stream = self._door.lines(self._request)
        return stream

    @property
    def is_open(self) -> bool:
        """Whether a line has been sent, or tried to be."""
        return self._stream is not None and self._stream.is_open

    def send(self, position: int, session_id: str) -> None:
        """Send this position next, instead of one that is not sent yet."""
        self._latest = position, session_id
        if self._task is None:
            self._begin()
        elif self._woken is not None:
            self._woken.set()

    def send_soon(self, position: int, session_id: str) -> None:
        """Send this position first, unless the wait is over soon."""
        if self._task is not None:  # it has taken long to enter, and keeps the stream alive
            self.send(position, session_id)
            return
        self._latest = position, session_id
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = self._begin_in(_SOON_MS)

    async def end(self) -> None:
        """Send nothing more, once the line that is being sent is out."""
        task = self._task
        if task is not None and self._is_sending:
            self._is_ending = True
            await asyncio.wait({task})
        self.stop()

    def stop(self) -> None:
        """Send nothing more."""
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            task.add_done_callback(let_go)

    def _begin_in(self, wait_ms: int) -> Timer:
        begin_ms = self._door.clock.monotonic_ms() + wait_ms
        return self._door.member.timers.at(begin_ms, self._begin)

    def _begin(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None
        self._woken = woken = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._send_lines(woken))

    async def _send_lines(self, woken: asyncio.Event) -> None:
        try:
            stream = self.lines()
            while not self._is_ending:
                latest, self._latest = self._latest, None
                woken.clear()
                self._is_sending = True
                if latest is None:
                    await stream.keep_alive()
                else:
                    line = Queued(*latest)
                    await stream.send(to_body(line, stream.encoding))
                self._is_sending = False
                if not self._is_ending:
                    await self._something(woken)
        except Exception as error:
            forget_frames(error)  # this one, which holds what keeps the error
            self.error = error
            self._on_lost()

    async def _something(self, woken: asyncio.Event) -> None:
        """Wait for something to tell, or until a line must say that the member lives."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await woken.wait()
        except TimeoutError:
            pass
