"""How a simulated client speaks the stream: the client's real connections over simulated bytes.

A connection carries bytes in order, each piece of them a while. It breaks at random bytes, and goes
dark where a client is cut off from a member: what is sent then never arrives, and nobody is told.
A member that dies resets its connections. The member's end is made of the codec, in front of the
same ``Door`` as the requests of the other link; so a request that was cut in half is not begun, and
one whose answer was cut may have been done.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coordinator.client.calling.leader import KnownLeader
from coordinator.client.calling.transport import Request, Response
from coordinator.client.stream.transport import StreamTransport
from coordinator.wire.messages import NDJSON_TYPE
from coordinator.wire.stream import frames
from tests.simulation.door import Door, session_renewed_by
from tests.simulation.door_lines import Lines
from tests.simulation.link import ClientLink
from tests.simulation.loop import NOBODY
from tests.simulation.members import STALL_S, SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

BREAKS = 0.004
"""Share of the pieces of a connection within which it breaks, whatever the weather."""
_PACKED = "application/msgpack"


class StreamLink:
    """The transport of one client for one of its lives, in front of its ``link``."""

    def __init__(self, link: ClientLink, seed: int) -> None:
        self.link = link
        self.random = random.Random(f"stream {seed}")
        self.leader = KnownLeader()
        self._stream = StreamTransport(self.leader, connect=self._connect)
        self.stream_transport = self._stream

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        link = self.link
        request = link._renamed(request)
        called_at = link._world.next_moment()
        response = await self._stream.request(endpoint, request, timeout_ms)
        link._world.note_response(link._owner.name, request, response, called_at)
        return response

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> Any:
        return self._stream.stream(endpoint, self.link._renamed(request), timeout_ms)

    async def close(self) -> None:
        await self._stream.close()

    async def _connect(self, endpoint: str, make: Callable[[], asyncio.Protocol]) -> object:
        member = await self.link._reach(endpoint, 2_000)
        client = make()
        wire = Wire(self, member, client)
        client.connection_made(wire)
        return client


class Wire(asyncio.Transport):
    """One connection; the client's end of it, and what is under way to both ends."""

    def __init__(self, stream: StreamLink, member: SimulatedMember, client: Any) -> None:
        super().__init__()
        self._stream = stream
        self._link = stream.link
        self._world: World = stream.link._world
        self._loop = self._world.loop
        self._member = member
        self._life = member.life
        self._client = client
        self._peer = Peer(self, member, stream.link)
        self._last_up_s = self._last_down_s = 0.0
        self._is_dark = False
        self._is_broken = False
        self._is_closed = False
        member.on_gone.append(self._gone)

    # --- the client's end

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closed or self._is_broken:
            return
        weather = self._world.link_weather
        for piece, breaks in self._pieces(bytes(data), weather.loss + weather.resets):
            self._last_up_s = max(self._last_up_s, self._loop.time() + self._link._way_s())
            self._loop.call_at(self._last_up_s, self._up, piece, breaks, context=NOBODY)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._last_up_s = max(self._last_up_s, self._loop.time() + self._link._delay_s())
            self._loop.call_at(self._last_up_s, self._break, context=NOBODY)

    def is_closing(self) -> bool:
        return self._is_closed

    # --- the member's end

    def write_down(self, data: bytes) -> None:
        """Send ``data`` to the client."""
        if self._is_broken or self._member.failure is not None:
            return
        weather = self._world.link_weather
        for piece, breaks in self._pieces(data, weather.reply_loss + weather.resets):
            self._last_down_s = max(self._last_down_s, self._loop.time() + self._link._delay_s())
            self._loop.call_at(self._last_down_s, self._down, piece, breaks, context=NOBODY)

    # --- in between

    def _pieces(self, data: bytes, breaks: float) -> list[tuple[bytes, bool]]:
        """Cut ``data`` as a network does; the last piece may be where the connection breaks."""
        draw = self._stream.random
        pieces: list[tuple[bytes, bool]] = []
        while data:
            size = draw.randint(1, len(data))
            if draw.random() < BREAKS + breaks:
                cut = draw.randrange(size)
                return [*pieces, (data[:cut], True)]
            pieces.append((data[:size], False))
            data = data[size:]
        return pieces

    def _is_lost(self) -> bool:
        """Whether what arrives now does not; once it did not, nothing behind it does."""
        if self._world.is_client_cut(self._link._owner, self._member):
            self._is_dark = True
        return self._is_dark or self._is_broken

    def _up(self, piece: bytes, breaks: bool) -> None:
        member = self._member
        if self._is_lost() or not member.is_started or member.life != self._life:
            return
        if piece:
            member.owner.soon(self._peer.receive, piece, self._loop.time())
        if breaks:
            self._break()

    def _down(self, piece: bytes, breaks: bool) -> None:
        if self._is_lost() or self._is_closed:
            return
        if piece:
            self._link._owner.soon(self._received, piece)
        if breaks:
            self._break()

    def _received(self, piece: bytes) -> None:
        if not self._is_closed:
            self._client.data_received(piece)

    def _gone(self, _member: SimulatedMember) -> None:
        self._loop.call_at(self._loop.time() + self._link._delay_s(), self._break, context=NOBODY)

    def _break(self) -> None:
        """Both ends notice, unless they cannot: the client's after the silence it allows."""
        if self._is_broken:
            return
        self._is_broken = True
        if not self._is_closed:
            under_way = bool(self._peer.tasks_under_way)
            self._world.record.tally.deeds["stream_break"] += 1
            if under_way:
                self._world.record.tally.deeds["stream_break_under_way"] += 1
        self._member.on_gone.remove(self._gone)
        self._member.owner.soon(self._peer.lost)
        if not self._is_dark and not self._is_closed:
            self._link._owner.soon(self._client.connection_lost, ConnectionResetError("reset"))


class Peer:
    """The member's end: frames in, requests to its door, frames out."""

    def __init__(self, wire: Wire, member: SimulatedMember, link: ClientLink) -> None:
        self._wire = wire
        self._member = member
        self._link = link
        self._reader = frames.from_client(1 << 22)
        self._preface = b""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._credit: dict[int, int] = {}
        self._room = asyncio.Event()
        self._is_lost = False
        self._leader: str | None = None

    @property
    def tasks_under_way(self) -> int:
        """How many requests are being served."""
        return sum(not task.done() for task in self._tasks.values())

    def receive(self, piece: bytes, came_s: float) -> None:
        if len(self._preface) < len(frames.PREFACE):
            left = len(frames.PREFACE) - len(self._preface)
            self._preface += piece[:left]
            piece = piece[left:]
        if not piece or self._is_lost:
            return
        self._reader.feed(piece)
        while taken := self._reader.take():
            for frame in taken:
                self._take(frame, came_s)

    def lost(self) -> None:
        self._is_lost = True
        for task in self._tasks.values():
            task.cancel()

    def _take(self, frame: frames.FromClient, came_s: float) -> None:
        match frame:
            case frames.Hello():
                self._leader = self._leader_url()
                settings = frames.WelcomeSettings(self._member.who, self._leader)
                self._send(frames.Welcome(frames.VERSION, settings))
            case frames.PingFrame(number):
                self._send(frames.Pong(number))
            case frames.Cancel(number):
                task = self._tasks.pop(number, None)
                if task is not None:
                    task.cancel()
            case frames.Credit(number, amount):
                if number in self._credit:
                    self._credit[number] += amount
                    self._room.set()
            case frames.RequestFrame(number, method, target, headers, body):
                request = Request(
                    method, target=target, headers=_spelt_out(headers, body), body=body
                )
                is_stream = NDJSON_TYPE in headers.get("accept", "")
                serve = self._lines(number, request) if is_stream else None
                work = serve or self._answer(number, request, came_s)
                task = self._member.owner.spawn(work, f"serve {target}")
                task.add_done_callback(self._link._world.check_served)
                self._tasks[number] = task

    async def _answer(self, number: int, request: Request, came_s: float) -> None:
        member, world = self._member, self._link._world
        arrived_s = world.loop.time()
        session_id = session_renewed_by(request)
        if session_id is not None and arrived_s - came_s > STALL_S:
            member.read_late[session_id] = arrived_s
        world.record.tally.deeds["stream_request"] += 1
        if self._leader == member.url:
            world.record.tally.deeds["stream_request_at_the_leader"] += 1
        response = await Door(member.service, member.clock).answer(request)
        if member.failure is not None:
            return
        if member.is_halted and response.status < 300:
            what = f"{member.who} answers {request.target} with {response.status}"
            world.record.violate("a member that differs is silent", what)
        world.note_answer(member, request, response, arrived_s)
        response = world.planted.answered(request, response)
        headers = dict(response.headers)
        if headers.get("content-type") == _PACKED:
            del headers["content-type"]
        self._send(
            frames.AnswerFrame(number, status=response.status, headers=headers, body=response.body)
        )

    async def _lines(self, number: int, request: Request) -> None:
        member = self._member
        head, lines = await Door(member.service, member.clock).lines(request)
        if lines is None:
            self._send(
                frames.AnswerFrame(
                    number, status=head.status, headers=dict(head.headers), body=head.body
                )
            )
            return
        headers = {**head.headers, "content-type": "application/json"}
        self._send(frames.Head(number, status=head.status, headers=headers))
        self._credit[number] = frames.WINDOW_BYTES
        try:
            await self._send_lines(number, lines)
        finally:
            await lines.aclose()
        self._send(frames.End(number))

    async def _send_lines(self, number: int, lines: Lines) -> None:
        was_queued = False
        world, who = self._link._world, self._link._owner.name
        async for line in lines:
            if self._member.failure is None:
                world.note_line(who, line, self._member.who if was_queued else None)
            if self._member.is_halted and line and not line.startswith(b'{"type":"error"'):
                what = f"{self._member.who} says {line[:60]!r}"
                world.record.violate("a member that differs is silent", what)
            was_queued = was_queued or line.startswith(b'{"type":"queued"')
            while self._credit[number] <= 0:
                self._room.clear()
                await self._room.wait()
            self._credit[number] -= len(line)
            self._send(frames.Line(number, line))

    def _leader_url(self) -> str | None:
        return self._member.service.leader_address.url()

    def _send(self, frame: frames.FromServer) -> None:
        if self._is_lost:
            return
        leader = self._leader_url()
        if leader != self._leader:
            self._leader = leader
            self._wire.write_down(frames.encoded(frames.Leader(leader)))
        self._wire.write_down(frames.encoded(frame))


def _spelt_out(headers: dict[str, str], body: bytes | None) -> dict[str, str]:
    said = {"accept": _PACKED, **headers}
    if body is not None:
        said.setdefault("content-type", _PACKED)
    return said
