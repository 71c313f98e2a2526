"""One connection of the stream, at the server: frames in, tasks for its requests, frames out.

1. What one read brings is begun in that pass, ``FRAMES_AT_ONCE`` at most; the rest in the next.
2. A request ends as one of HTTP does whose client has gone: when the connection is lost, and by
   CANCEL. Its id is then answered no more.
3. Deadlines: the preface and HELLO as a header of HTTP, a frame that has begun as a body, silence
   as an idle connection. Of a client that does not read nothing more is read or begun (``outbox``).
4. What breaks docs/stream.md gets GOAWAY, and the connection closes.
5. Requests take turns, within the connection (``turns``) and between clients (``client_turns``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    ShuttingDownError,
    ThrottledError,
    to_problem,
)
from coordinator.service.base.turns import KEY
from coordinator.wire import messages
from coordinator.wire.addresses import network_of
from coordinator.wire.admission import Place
from coordinator.wire.arrival import release, spare_s
from coordinator.wire.request import Answer
from coordinator.wire.routes.bodies import PartialBytes
from coordinator.wire.stream import frames
from coordinator.wire.stream.door import StreamDoor
from coordinator.wire.stream.frames import FRAMES_AT_ONCE, FromClient
from coordinator.wire.stream.outbox import Outbox
from coordinator.wire.stream.request import StreamRequest
from coordinator.wire.stream.turns import RequestTurns
from coordinator.wire.strict_json import shortened

logger = logging.getLogger("coordinator.stream")

_LARGE_BYTES: Final = 4 * 1024
_UNSENT_BYTES_LARGE = 4 * 1024 * 1024
"""Beyond it a large answer to a read is not sent: it is refused, and may be sent again."""
_PARTIAL_BYTES_FREE: Final = 16 * 1024
"""So much of a frame in part is everyone's: others who send long ones cut no heartbeat off."""
_MSGPACK: Final = "application/msgpack"
_USUAL_HEADERS: Final = frozenset(
    each.lower()
    for each in (
        "accept", "content-type", messages.CLIENT_ID_HEADER, messages.REQUEST_NUMBER_HEADER,
        messages.FLOOR_INDEX_HEADER, messages.SESSION_ID_HEADER, messages.TIMEOUT_HEADER,
    )
)  # fmt: skip
"""Names in small letters that need not be looked at one by one."""
_ZXID: Final = messages.ZXID_HEADER.lower()
_INDEX: Final = messages.INDEX_HEADER.lower()


class StreamConnection(asyncio.Protocol):
    """A client's connection, from its preface on."""

    __slots__ = (
        "_at", "_door", "_frame_timer", "_has_hello", "_heard_at", "_idle_timer", "_is_held",
        "_is_leaving", "_is_reading", "_is_rest_held", "_is_turn_due", "_last_id", "_leader_url",
        "_loop", "_partial", "_preface_left", "_reader", "_running", "_spare_timer", "_transport",
        "_turns", "authorization", "out", "place", "window_bytes",
    )  # fmt: skip

    def __init__(self, door: StreamDoor, place: Place, at: float) -> None:
        self._door = door
        self.place = place
        """Where its client is, and what it was admitted with."""
        self._turns = RequestTurns(door.turns, self, self._take)
        self._at = at
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = frames.from_client()
        self._running: dict[int, StreamRequest] = {}
        self._last_id = 0
        self._leader_url: str | None = None
        """The URL that was sent to the client last."""
        self._preface_left = len(frames.PREFACE)
        self._partial = PartialBytes(door.body_bytes)
        self._has_hello = False
        self._is_rest_held = False
        """Whether bytes of a frame in part are counted."""
        self._is_reading = True
        self._is_turn_due = False
        """Whether frames that have come wait for the next pass."""
        self._is_held = False
        """Whether they wait until its client has taken what was sent."""
        self._is_leaving = False
        """Whether GOAWAY was sent: nothing more is begun."""
        self._heard_at = at
        self._frame_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._spare_timer: asyncio.TimerHandle | None = None
        self.out: Outbox
        """What waits to be sent, once it is connected."""
        self.window_bytes = frames.WINDOW_BYTES
        self.authorization: str | None = None
        """What its client shows now to prove who it is."""

    # --- the life of the connection, called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the greeting."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        config = self._door.config
        self.out = Outbox(transport, self._running, config.idle_deadline_ms / 1_000)
        self._door.enter(self)
        deadline_at = self._at + config.header_deadline_ms / 1_000
        self._frame_timer = self._loop.call_at(deadline_at, self._late)
        if self.place.full:
            wait_s = spare_s(self._door.admission)
            self._spare_timer = self._loop.call_at(self._at + wait_s, self._spare_over)

    def data_received(self, data: bytes) -> None:
        """Read the frames, and answer them."""
        if self._preface_left:
            left, self._preface_left = self._preface_left, max(0, self._preface_left - len(data))
            data = data[left:]
        self._heard_at = self._loop.time()
        self._reader.feed(data)
        if not self._is_turn_due:
            self._take()

    def eof_received(self) -> bool:
        """Close when the client closes."""
        return False

    def pause_writing(self) -> None:
        """Read no more while its client takes nothing."""
        self.out.pause()
        self._read_or_not()

    def resume_writing(self) -> None:
        """Read on, and wake those who wait for room."""
        self.out.resume()
        if self._is_held:
            self._is_held = False
            self._loop.call_soon(self._take)
        self._read_or_not()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timers, end what is under way, and give the place back."""
        self._door.admission.leave(self.place)
        self._count_partial(0)
        for timer in (self._frame_timer, self._idle_timer, self._spare_timer):
            if timer is not None:
                timer.cancel()
        running = list(self._running.values())
        self._running.clear()
        self._turns.close()
        for request in running:
            self._door.turns.end(request)  # of a task that has not begun nothing runs any more
            if request.task is not None:
                self._door.end(request.task)
                request.task = None  # it holds on to us: no cycle is left for the collector
        self.out.close()
        if self._transport is not None:
            release(self._transport)
        self._transport = None
        self._door.leave(self)

    # --- what comes in

    def _take(self) -> None:
        """Begin what has come, so much of it as one pass may begin."""
        if self._has_hello and (self.out.is_paused or self._turns.has_to_hold()):
            self._is_turn_due, self._is_held = True, self.out.is_paused
            self._read_or_not()
            return
        self._is_turn_due = False
        if self._is_closing():
            return
        is_first, taken = self.out.hold(), 0
        try:
            if not self._has_hello:
                taken = self._hello()
            if self._has_hello:
                for frame in self._reader.take(FRAMES_AT_ONCE - taken):
                    taken += 1
                    self._begin(frame)
        except BadArgumentsError as mistake:
            logger.debug("not the stream, from %s: %s", self.place.address, ascii(mistake.message))
            self._go_away_at_once(mistake)
            return
        finally:
            if is_first:
                self.out.flush()
        if taken >= FRAMES_AT_ONCE and self._reader.has_rest:
            self._is_turn_due = True
            self._loop.call_soon(self._take)
        if self._is_turn_due or self.out.is_paused or not self._is_reading:
            self._read_or_not()
        if self._frame_timer is not None or self._is_rest_held or self._reader.has_rest:
            self._watch_rest(taken)

    def _hello(self) -> int:
        for frame in self._reader.take(1):
            if type(frame) is not frames.Hello:
                raise BadArgumentsError("stream: expected HELLO first, found another frame")
            if (found := frame.version) != frames.VERSION:
                raise BadArgumentsError(f"stream: expected version {frames.VERSION}, found {found}")
            self._has_hello = True
            self.window_bytes = frame.settings.window_bytes
            self._reader.frame_bytes_max = self._door.frame_bytes_max
            self._leader_url = self._door.leader_url(self.place)
            welcome = self._door.welcome(self._leader_url)
            self.out.send(frames.Welcome(frames.VERSION, welcome))
            self._frame_in_time()
            idle_s = self._door.config.idle_deadline_ms / 1_000
            self._idle_timer = self._loop.call_later(idle_s, self._maybe_idle)
            return 1
        return 0

    def _begin(self, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame):
            self._begin_request(frame)
        elif isinstance(frame, frames.Credit):
            request = self._running.get(frame.id)
            if request is not None and request.stream is not None:
                request.stream.add_credit(frame.amount)
        elif isinstance(frame, frames.Cancel):
            request = self._running.pop(frame.id, None)
            if request is not None:
                if request.task is not None:
                    self._end(request, request.task)
                else:
                    self._turns.forget(request)
                self._maybe_done()
        elif isinstance(frame, frames.PingFrame):
            self.out.send(frames.Pong(frame.number))
        elif isinstance(frame, frames.Credential):
            self.authorization = frame.authorization or None
        else:
            raise BadArgumentsError("stream: expected HELLO once, found it again")

    def _begin_request(self, frame: frames.RequestFrame) -> None:
        if frame.id <= (last := self._last_id):
            raise BadArgumentsError(f"stream: expected an id above {last}, found {frame.id}")
        self._last_id = frame.id
        if self._is_leaving:
            self._refuse(frame.id, ShuttingDownError("this member is stopping; try another one"))
        elif not _USUAL_HEADERS.issuperset(headers := frame.headers) and not (
            "".join(headers).islower()
        ):
            self._refuse(frame.id, _not_in_lower_case(headers))
        elif len(self._running) >= (maximum := 1 if self.place.full else self._door.requests_max):
            message = (
                f"expected at most {maximum} requests of one connection under way, found more; "
                "nothing was done, try again with fewer at once"
            )
            self._refuse(frame.id, ThrottledError(message))
        else:
            request = StreamRequest(frame, self)
            self._running[frame.id] = request
            self._turns.start(request)

    def on_waiting(self, request: StreamRequest) -> None:
        """End the turn of a request that waits for others."""
        self._door.turns.end(request)

    def on_lines(self, number: int) -> None:
        """Let the next long answer begin: this one is an observation, which may never end."""
        request = self._running.get(number)
        if request is not None:
            self._turns.on_lines(request)

    def _end(self, request: StreamRequest, task: asyncio.Task[None]) -> None:
        self._door.turns.end(request)
        self._door.end(task)
        request.task = None
        self._turns.over(request)

    def serve(self, request: StreamRequest) -> None:
        """Begin to answer a request: it is its turn."""
        request.task = self._loop.create_task(self._serve(request))

    def give_up(self, request: StreamRequest, error: ThrottledError) -> None:
        """Refuse a request that had no turn."""
        del self._running[request.id]
        self._refuse(request.id, error)
        self._maybe_done()

    # --- what goes out

    async def _serve(self, request: StreamRequest) -> None:
        answered = None
        KEY.set(request.key)
        try:  # not `suppress`: it is entered and left for each request
            answered = await self._door.answering.answer(request, self.place.full)
        except (ConnectionError, asyncio.CancelledError):
            pass  # its task ends by no error, which would hold on to all that it has passed through
        self._door.turns.end(request)
        is_waited_for = self._running.pop(request.id, None) is request
        request.task = None  # it holds on to us: no cycle is left for the collector
        if not self.place.is_known and request.caller.credential:
            self.place.is_known = True
            self.tell_leader()
        if not is_waited_for:
            return
        if request.is_long:
            self._turns.over(request)
        if isinstance(answered, Answer):
            self._answer(request, answered)
        elif answered is None and request.has_begun:
            self.out.send(frames.End(request.id))
        elif answered is None:
            logger.warning("%r %r: no answer came of it", request.method, request.target)
            self._refuse(request.id, CoordinatorError("no answer came of it; see the member's log"))
        if self._is_leaving:
            self._maybe_done()

    def _answer(self, request: StreamRequest, answer: Answer) -> None:
        body = b"" if answer.body is None or request.method == "HEAD" else answer.body
        if len(body) > _LARGE_BYTES:
            is_read = request.method == "GET"  # what a write came to is never kept back
            if is_read and (unsent := self.out.unsent_bytes()) > _UNSENT_BYTES_LARGE:
                message = (
                    f"expected a client that reads its answers, found {unsent} bytes that it has "
                    "not read; read them, then ask again"
                )
                self._refuse(request.id, ThrottledError(message))
                return
            self.out.allow(len(body))
        headers = _labels(answer)
        if answer.content_type != _MSGPACK and answer.content_type is not None:
            headers["content-type"] = answer.content_type
        if answer.headers is not None:
            for name, value in answer.headers.items():
                headers[name.lower()] = value
        self.out.answer(frames.AnswerFrame(request.id, answer.status, headers, body))
        if self.place.full:
            self.go_away(ThrottledError(self.place.full))

    def _refuse(self, number: int, error: CoordinatorError) -> None:
        answer = self._door.problem(error)
        headers = {name.lower(): value for name, value in (answer.headers or {}).items()}
        headers |= _labels(answer)
        self.out.send(frames.AnswerFrame(number, answer.status, headers, answer.body or b""))

    def is_waited_for(self, number: int) -> bool:
        """Say whether the client still waits for the answer to a request."""
        return number in self._running and not self._is_closing()

    # --- deadlines

    def _read_or_not(self) -> None:
        """Read while what has come was taken, and its client takes what is sent."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.out.is_paused or self._is_turn_due:
            if self._is_reading:
                transport.pause_reading()
            self._is_reading = False
        elif not self._is_reading:
            self._is_reading = True
            transport.resume_reading()

    def _watch_rest(self, taken: int) -> None:
        """Give a frame that has begun its time, and count what has come of it."""
        if not self._has_hello:
            return
        rest = 0 if self._is_turn_due else self._reader.rest_bytes
        self._count_partial(max(0, rest - _PARTIAL_BYTES_FREE))
        if taken or not rest:
            self._frame_in_time()
        if rest and self._frame_timer is None:
            seconds = self._door.config.body_deadline_ms / 1_000
            self._frame_timer = self._loop.call_later(seconds, self._late)

    def _count_partial(self, count: int) -> None:
        self._is_rest_held = count > 0
        try:
            self._partial.hold(self._turns.client or network_of(self.place.address), count)
        except ThrottledError as error:
            self._go_away_at_once(error)

    def _frame_in_time(self) -> None:
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None

    def _late(self) -> None:
        self._frame_timer = None
        if self.out.is_paused or self._is_turn_due:  # the rest of it is not read
            self._frame_timer = self._loop.call_later(1.0, self._late)
        else:
            self._close()

    def _maybe_idle(self) -> None:
        idle_s = self._door.config.idle_deadline_ms / 1_000
        left_s = self._heard_at + idle_s - self._loop.time()
        if left_s <= 0 and not self.out.is_paused:  # then it has another deadline
            self._close()
        else:
            self._idle_timer = self._loop.call_later(max(left_s, 0.01), self._maybe_idle)

    def _spare_over(self) -> None:
        """The time of a spare connection is over: tell a client that asked nothing why."""
        if not self._running and not self._is_leaving:
            self._go_away_at_once(ThrottledError(self.place.full))

    def tell_leader(self) -> None:
        """Say where the leader serves, if the client may know it and does not yet."""
        url = self._door.leader_url(self.place)
        if self._has_hello and url != self._leader_url:
            self._leader_url = url
            self.out.send(frames.Leader(url))

    # --- the end

    @property
    def is_certified(self) -> bool:
        """Whether its client has shown a certificate."""
        return self.place.has_certificate

    def go_away(self, error: CoordinatorError) -> None:
        """Take no more requests, and close when those under way are answered."""
        if not self._is_leaving:
            self._is_leaving = True
            self.out.send(frames.GoAway(to_problem(error)))
        self._maybe_done()

    def _maybe_done(self) -> None:
        if self._is_leaving and not self._running:
            self._close()

    def _go_away_at_once(self, error: CoordinatorError) -> None:
        self._is_leaving = True
        self.out.send(frames.GoAway(to_problem(error)))
        self._close()

    def _close(self) -> None:
        self.out.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Break it; what waits to be sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()


def _not_in_lower_case(names: Iterable[str]) -> BadArgumentsError:
    """Return the refusal of headers that nobody would look at, a condition perhaps."""
    wrong = next((each for each in names if not each.islower()), "")
    return BadArgumentsError(
        f"headers: expected names in lower case, found {shortened(ascii(wrong))}"
    )


def _labels(answer: Answer) -> dict[str, str]:
    """Return the headers that say from which state an answer is."""
    if not answer.is_labelled:
        return {}
    return {_ZXID: str(answer.zxid), _INDEX: str(answer.index)}
