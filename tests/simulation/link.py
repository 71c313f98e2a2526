"""How a simulated client reaches the members: the client's transport, with everything that breaks.

A request, or each line of a stream, is under way for a while in both directions. It can be lost,
delayed, delivered twice; its answer can be lost; a member that dies resets its connections, one
that is cut off or paused is silent. What ends with silence ends in ``ConnectionLostError``.

Client ids are drawn by the client from the system's entropy. Here each is replaced by a name that
counts up, so that equal seeds make equal worlds; nothing else of a request is changed.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coordinator.client.calling.transport import Request, Response
from coordinator.errors import ConnectionLostError, UnavailableError
from coordinator.wire import messages
from tests.simulation.door import Door, session_renewed_by
from tests.simulation.door_lines import Lines
from tests.simulation.loop import NOBODY, Owner
from tests.simulation.members import STALL_S, SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

NOT_DONE = (429, 503)
"""What a member answers that has not even proposed the request."""
WINDOW_LINES = 16
"""How many lines of a stream may be under way before the member waits."""


@dataclass
class LinkWeather:
    """What happens between clients and members; the faults change it."""

    delay_ms: tuple[float, float] = (0.1, 3.0)
    loss: float = 0.0
    reply_loss: float = 0.0
    duplicates: float = 0.0
    stragglers: float = 0.0
    """Share of requests that take up to five seconds, whoever has given up meanwhile."""
    resets: float = 0.0
    """Share of requests whose connection breaks at once after they were sent."""


class ClientLink:
    """The transport of one client, for one of its lives."""

    def __init__(self, world: World, owner: Owner, seed: int) -> None:
        self._world = world
        self._owner = owner
        self._random = random.Random(seed)
        self._names: dict[str, str] = {}
        self._loop = world.loop

    # --- what the client asks of its transport

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        member = await self._reach(endpoint, timeout_ms)
        request = self._renamed(request)
        called_at = self._world.next_moment()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                response = await self._exchange(member, request)
        except TimeoutError:
            raise ConnectionLostError(f"{endpoint}: no answer within {timeout_ms} ms") from None
        self._world.note_response(self._owner.name, request, response, called_at)
        return response

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _Opening:
        return _Opening(self, endpoint, request, timeout_ms)

    async def close(self) -> None:
        """There is nothing to let go of."""

    # --- inside

    async def _reach(self, endpoint: str, timeout_ms: int) -> SimulatedMember:
        """Connect; nothing was sent if that fails."""
        member = self._world.member_at(endpoint)
        await asyncio.sleep(self._delay_s())
        if not member.is_started or member.is_stopping:
            raise UnavailableError(f"{endpoint}: connection refused")
        if self._world.is_client_cut(self._owner, member):
            await asyncio.sleep(min(2_000, timeout_ms / 2) / 1000)
            raise UnavailableError(f"{endpoint}: cannot connect")
        return member

    async def _exchange(self, member: SimulatedMember, request: Request) -> Response:
        weather, draw = self._world.link_weather, self._random
        answer: asyncio.Future[Response] = self._loop.create_future()
        call = _Call(self, member, request, answer)
        if draw.random() >= weather.loss:
            call.deliver(self._way_s())
        if draw.random() < weather.duplicates:
            call.deliver(self._delay_s() + draw.uniform(0.0, 2.0))
        if draw.random() < weather.resets:
            self._owner.at(self._loop.time() + self._delay_s(), call.reset)
        try:
            return await answer
        finally:
            call.leave()

    def _delay_s(self) -> float:
        return self._random.uniform(*self._world.link_weather.delay_ms) / 1000

    def _way_s(self) -> float:
        """How long a request is under way."""
        is_straggler = self._random.random() < self._world.link_weather.stragglers
        return self._random.uniform(0.1, 5.0) if is_straggler else self._delay_s()

    def _loses_reply(self, member: SimulatedMember) -> bool:
        return self._random.random() < self._world.link_weather.reply_loss or (
            self._world.is_client_cut(self._owner, member)
        )

    def _renamed(self, request: Request) -> Request:
        name = messages.CLIENT_ID_HEADER.lower()
        client_id = request.headers.get(name)
        if client_id is not None:
            headers = {**request.headers, name: self._name_of(client_id)}
            return request.with_headers(headers)
        segments = request.target.split("/")
        if len(segments) > 6 and segments[4] == "attempts":
            segments[5] = self._name_of(segments[5])
            return replace(request, target="/".join(segments))
        return request

    def _name_of(self, client_id: str) -> str:
        return self._names.setdefault(client_id, f"{self._owner.name}-{len(self._names) + 1}")


class _Call:
    """One request under way, maybe twice."""

    def __init__(
        self,
        link: ClientLink,
        member: SimulatedMember,
        request: Request,
        answer: asyncio.Future[Response],
    ) -> None:
        self._link = link
        self._member = member
        self._life = member.life
        self._request = request
        self._answer = answer
        self._session_id = session_renewed_by(request)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_left = False
        self._unanswered = 0
        member.on_gone.append(self._gone)

    def deliver(self, after_s: float) -> None:
        self._unanswered += 1
        loop = self._link._loop
        loop.call_at(loop.time() + after_s, self._arrive, context=NOBODY)

    def _arrive(self) -> None:
        member = self._member
        is_same = member.is_started and member.life == self._life
        if is_same and not self._link._world.is_client_cut(self._link._owner, member):
            serving = self._serve(self._link._loop.time())
            task = member.owner.spawn(serving, f"serve {self._request.target}")
            task.add_done_callback(self._link._world.check_served)
            self._tasks.append(task)

    async def _serve(self, came_s: float) -> None:
        member, link = self._member, self._link
        arrived_s = link._loop.time()
        if self._session_id is not None and arrived_s - came_s > STALL_S:
            member.read_late[self._session_id] = arrived_s
        response = await Door(member.service, member.clock).answer(self._request)
        if member.failure is not None:
            return
        if member.is_halted and response.status < 300:
            what = f"{member.who} answers {self._request.target} with {response.status}"
            link._world.record.violate("a member that differs is silent", what)
        link._world.note_answer(member, self._request, response, arrived_s)
        response = link._world.planted.answered(self._request, response)
        if not link._loses_reply(member):
            link._owner.at(link._loop.time() + link._delay_s(), self._tell, response)

    def _tell(self, response: Response) -> None:
        """Hear an answer; "not done", of one copy, says nothing while there is another."""
        self._unanswered -= 1
        if response.status in NOT_DONE and self._unanswered:
            return
        if not self._answer.done():
            self._answer.set_result(response)

    def _gone(self, _member: SimulatedMember) -> None:
        self._link._owner.at(self._link._loop.time() + self._link._delay_s(), self.reset)

    def reset(self) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionLostError("the connection was reset"))

    def leave(self) -> None:
        """The client listens no more; the member notices soon, and stops working on it."""
        if self._is_left:
            return
        self._is_left = True
        self._member.on_gone.remove(self._gone)
        loop = self._link._loop
        for task in self._tasks:
            if not task.done():
                self._member.owner.at(loop.time() + self._link._delay_s(), task.cancel)


class _Opening:
    """A stream that is open as long as a ``with``."""

    def __init__(self, link: ClientLink, endpoint: str, request: Request, timeout_ms: int) -> None:
        self._link = link
        self._endpoint = endpoint
        self._request = request
        self._timeout_ms = timeout_ms
        self._stream: _Stream | None = None

    async def __aenter__(self) -> _Stream:
        member = await self._link._reach(self._endpoint, self._timeout_ms)
        self._stream = stream = _Stream(self._link, member, self._link._loop)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await stream.begin(self._link._renamed(self._request))
        except TimeoutError:
            stream.close()
            raise ConnectionLostError(
                f"{self._endpoint}: no answer within {self._timeout_ms} ms"
            ) from None
        return stream

    async def __aexit__(self, *_: object) -> None:
        assert self._stream is not None, "it was entered"
        self._stream.close()


class _Stream:
    """One response that goes on; the client's end of it."""

    watches_silence = False

    def __init__(
        self, link: ClientLink, member: SimulatedMember, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._link = link
        self._member = member
        self._life = member.life
        self._loop = loop
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._head: asyncio.Future[Response] = loop.create_future()
        self._arrived: deque[bytes | None] = deque()
        self._body = b""
        self._is_broken = False
        self._is_lost = False
        self._woken: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._under_way = 0
        self._last_s = 0.0
        self._server: asyncio.Task[None] | None = None
        self._is_closed = False
        member.on_gone.append(self._gone)

    async def begin(self, request: Request) -> None:
        """Send the request; return when the head of the answer is here."""
        link = self._link
        if link._random.random() >= link._world.link_weather.loss:
            when_s = self._loop.time() + link._way_s()
            self._loop.call_at(when_s, self._arrive, request, context=NOBODY)
        response = await self._head
        self.status, self.headers, self._body = response.status, response.headers, response.body

    def line_here(self) -> bytes | None:
        return None

    async def line(self) -> bytes | None:
        while not self._arrived:
            if self._is_broken:
                raise ConnectionLostError("the stream broke")
            self._woken = self._loop.create_future()
            await self._woken
        line = self._arrived.popleft()
        self._under_way -= 1
        self._room.set()
        return line

    async def read(self) -> bytes:
        return self._body

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._member.on_gone.remove(self._gone)
        if self._server is not None and not self._server.done():
            when_s = self._loop.time() + self._link._delay_s()
            self._member.owner.at(when_s, self._server.cancel)

    # --- the member's side

    def _arrive(self, request: Request) -> None:
        member = self._member
        is_same = member.is_started and member.life == self._life
        if is_same:
            self._server = member.owner.spawn(self._serve(request), f"serve {request.target}")
            self._server.add_done_callback(self._link._world.check_served)
            if self._is_closed:  # what comes late is begun, and the end of the connection follows
                when_s = self._loop.time() + self._link._delay_s()
                member.owner.at(when_s, self._server.cancel)

    async def _serve(self, request: Request) -> None:
        member = self._member
        head, lines = await Door(member.service, member.clock).lines(request)
        self._send(self._take_head, head)
        if lines is None:
            return
        try:
            await self._send_lines(lines)
        finally:
            await lines.aclose()
        self._send(self._take, None)

    async def _send_lines(self, lines: Lines) -> None:
        was_queued = False
        async for line in lines:
            if self._member.failure is None:
                world, who = self._link._world, self._link._owner.name
                world.note_line(who, line, self._member.who if was_queued else None)
            if self._member.is_halted and line and not line.startswith(b'{"type":"error"'):
                what = f"{self._member.who} says {line[:60]!r}"
                self._link._world.record.violate("a member that differs is silent", what)
            was_queued = was_queued or line.startswith(b'{"type":"queued"')
            while self._under_way >= WINDOW_LINES:
                self._room.clear()
                await self._room.wait()
            self._under_way += 1
            self._send(self._take, line)

    def _send(self, take: Any, what: Any) -> None:
        """In order, unless the member has failed; over a cut the connection breaks in the end."""
        link = self._link
        if self._member.failure is not None or self._is_lost:
            return
        if link._loses_reply(self._member):
            self._is_lost = True  # and with it everything behind it
            link._owner.at(self._loop.time() + 1.0, self._break)
            return
        self._last_s = max(self._last_s, self._loop.time() + link._delay_s())
        link._owner.at(self._last_s, take, what)

    def _take_head(self, head: Response) -> None:
        if not self._head.done():
            self._head.set_result(head)

    def _take(self, line: bytes | None) -> None:
        if not self._is_broken:
            self._arrived.append(line)
            self._wake()

    def _gone(self, _member: SimulatedMember) -> None:
        self._link._owner.at(self._loop.time() + self._link._delay_s(), self._break)

    def _break(self) -> None:
        self._is_broken = True
        if not self._head.done():
            self._head.set_exception(ConnectionLostError("the connection was reset"))
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
