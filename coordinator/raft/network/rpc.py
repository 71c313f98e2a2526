"""Requests between members and their answers (``Engine.request``): correlation and bounds.

Every request ends in exactly one of: its answer, an error of the error tree that the handler
raised, NoLeaderError or ThrottledError (certainly not handled), ConnectionLostError or
LeaderChangedError (unknown).
An answer is sent over the connection of its request, or not at all.

A thousand requests may arrive at once. A bounded number is begun in each pass of the loop, in the
order in which they came.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import (
    REGISTRY,
    ConnectionLostError,
    CoordinatorError,
    DataTooLargeError,
    LeaderChangedError,
    NoLeaderError,
    OutcomeUnknownError,
    ShuttingDownError,
    ThrottledError,
    from_code,
)
from coordinator.raft.engine import RequestHandler
from coordinator.raft.network.messages import (
    REPLY_ERROR,
    REPLY_OK,
    REPLY_REFUSED,
    MemberRequest,
    Reply,
)
from coordinator.raft.network.transport import MemberTransport
from coordinator.waiting import wake_in_turns

logger = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT_MAX = 4_096
"""Requests of one member that are answered here at the same time."""
BEGUN_BYTES_MAX = 64 * 1024
"""The size of the requests that are begun in a pass, but for a longer one alone."""
_BEGUN_BYTES_MIN = BEGUN_BYTES_MAX // 100
"""What a short request counts as: a hundred are begun in a pass."""
FRAME_OVERHEAD_BYTES = 512
_ERROR_BYTES_MAX = 64 * 1024
"""The size of an error and its fields; without them if they are longer."""


class _Incoming(NamedTuple):
    """A question that is to be answered over the connection over which it came."""

    member_id: str
    connection: int
    request: MemberRequest
    cost: int


class RequestDesk:
    """Sends requests and answers over a transport."""

    def __init__(self, transport: MemberTransport, payload_bytes_max: int) -> None:
        self._transport = transport
        self.on_answered: Callable[[str], None] = lambda _: None
        """Called with the member to which an answer is about to leave."""
        self._payload_bytes_max = payload_bytes_max - FRAME_OVERHEAD_BYTES
        self._handlers: dict[str, RequestHandler] = {}
        self._next_id = 0
        self._waiting: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._alone: set[str] = set()
        """Kinds of which one is begun in a pass."""
        self._to_answer: deque[_Incoming] = deque()
        self._to_answer_count: Counter[str] = Counter()
        self._begun_bytes = 0
        """In this pass."""
        self._beginning: asyncio.Handle | None = None
        self._answering: dict[str, set[asyncio.Task[None]]] = {}
        self._connections: dict[str, int] = {}
        """How often the connection to each member has changed."""
        self._is_silent = False

    def set_handler(self, kind: str, handler: RequestHandler, *, is_alone: bool = False) -> None:
        """Have ``handler`` answer questions of ``kind``; ``is_alone``: one of them in a pass."""
        self._handlers[kind] = handler
        if is_alone:
            self._alone.add(kind)

    def silence(self) -> None:
        """This member has failed: send no more requests or answers, and wait for none."""
        self._is_silent = True
        self._give_up_all()

    async def ask(self, member_id: str, kind: str, payload: bytes) -> bytes:
        """Send a request and return its answer; no deadline of its own."""
        if len(payload) > self._payload_bytes_max:
            raise DataTooLargeError(
                f"expected at most {self._payload_bytes_max} bytes in a request between members,"
                f" found {len(payload)}"
            )
        if self._is_silent:
            raise ShuttingDownError("this member has failed; try another one")
        self._next_id += 1
        request_id = self._next_id
        if not self._transport.send(member_id, MemberRequest(request_id, kind, payload)):
            if self._transport.is_connected(member_id):
                raise ThrottledError(
                    f"more waits to be sent to member {member_id!r} than may "
                    "(raft.send_buffer_bytes_max); nothing was sent, try again"
                )
            raise NoLeaderError(f"member {member_id!r} is not connected; nothing was sent")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = (member_id, future)
        try:
            return await future
        finally:
            self._waiting.pop(request_id, None)

    def on_reply(self, member_id: str, reply: Reply) -> None:
        """Wake the caller whose request this answers, if it still waits."""
        asked = self._waiting.get(reply.request_id)
        if asked is None or asked[0] != member_id or asked[1].done():
            return
        future = asked[1]
        if reply.status == REPLY_OK:
            future.set_result(reply.payload)
        elif reply.status == REPLY_REFUSED:
            future.set_exception(NoLeaderError(f"member {member_id!r} refused the request"))
        else:
            future.set_exception(_unpack_error(reply))

    def on_request(self, member_id: str, request: MemberRequest) -> None:
        """Begin to answer a request, in this pass or a later one; refuse it if too many wait."""
        tasks = self._answering.setdefault(member_id, set())
        waiting = self._to_answer_count[member_id]
        if request.kind not in self._handlers or len(tasks) + waiting >= REQUESTS_IN_FLIGHT_MAX:
            self._transport.send(member_id, Reply(request.request_id, REPLY_REFUSED, "", b""))
            return
        least = BEGUN_BYTES_MAX if request.kind in self._alone else _BEGUN_BYTES_MIN
        connection = self._connections.get(member_id, 0)
        cost = max(least, len(request.payload))
        self._to_answer.append(_Incoming(member_id, connection, request, cost))
        self._to_answer_count[member_id] += 1
        self._begin_answers()

    def _begin_answers(self) -> None:
        """Begin what this pass may begin; the next one begins the rest."""
        loop = asyncio.get_running_loop()
        while self._to_answer:
            asked = self._to_answer[0]
            if self._begun_bytes and self._begun_bytes + asked.cost > BEGUN_BYTES_MAX:
                break
            self._to_answer.popleft()
            self._to_answer_count[asked.member_id] -= 1
            self._begun_bytes += asked.cost
            tasks = self._answering[asked.member_id]
            task = loop.create_task(self._answer(asked))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if self._begun_bytes and self._beginning is None:
            self._beginning = loop.call_soon(self._on_next_pass)

    def _on_next_pass(self) -> None:
        self._beginning, self._begun_bytes = None, 0
        self._begin_answers()

    def on_connection_changed(self, member_id: str) -> None:
        """Fail the requests sent to ``member_id``: they may or may not have reached it.

        Its own requests over the old connection get no answer. It may have started again since;
        then it numbers its requests from one, and would take the answer for another request's."""
        self._connections[member_id] = self._connections.get(member_id, 0) + 1
        self._give_up(
            member_id, ConnectionLostError(f"the connection to member {member_id!r} was lost")
        )

    def on_leader_lost(self, member_id: str) -> None:
        """Fail the requests sent to ``member_id``, which is no longer the leader known here.

        Its answer may never come, even over an open connection (a stopped process, a cut)."""
        self._give_up(
            member_id, LeaderChangedError(f"member {member_id!r} is not known to lead any more")
        )

    def _give_up(self, member_id: str, error: CoordinatorError) -> None:
        asked = [future for asked_id, future in self._waiting.values() if asked_id == member_id]
        wake_in_turns(asked, lambda each: each.set_exception(type(error)(error.message)))

    def _give_up_all(self) -> None:
        for member_id in {asked_id for asked_id, _ in self._waiting.values()}:
            self.on_connection_changed(member_id)

    async def stop(self) -> None:
        """Cancel all requests under way."""
        self._give_up_all()
        self._to_answer.clear()
        self._to_answer_count.clear()
        tasks = [task for tasks in self._answering.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, asked: _Incoming) -> None:
        member_id, connection, request, _ = asked
        handler = self._handlers[request.kind]
        try:
            payload = await handler(member_id, request.payload)
            reply = Reply(request.request_id, REPLY_OK, "", payload)
        except CoordinatorError as error:
            reply = Reply(request.request_id, REPLY_ERROR, error.code, _pack_error(error))
        except Exception:
            logger.exception("the handler of %r failed", request.kind)
            reply = _unknown(request, "its handler failed; see its log")
        if len(reply.payload) > self._payload_bytes_max:
            reply = _unknown(request, "its answer is too large")
        if self._connections.get(member_id, 0) == connection and not self._is_silent:
            if not self._transport.send(member_id, reply):
                self._transport.send(member_id, _unknown(request, "too much waits"))
            self.on_answered(member_id)


def _unknown(request: MemberRequest, why: str) -> Reply:
    """Return the answer to a request whose outcome the other member cannot be told."""
    error = OutcomeUnknownError(f"the request {request.kind!r} has no answer: {why}")
    return Reply(request.request_id, REPLY_ERROR, error.code, _pack_error(error))


def _pack_error(error: CoordinatorError) -> bytes:
    packed: bytes
    try:
        packed = msgpack.packb((error.message, error.fields))
    except (TypeError, ValueError, OverflowError):
        packed = msgpack.packb((error.message, {}))
    if len(packed) > _ERROR_BYTES_MAX:
        packed = msgpack.packb((error.message[: _ERROR_BYTES_MAX // 8], {}))
    return packed


def _unpack_error(reply: Reply) -> CoordinatorError:
    try:
        if len(reply.payload) > _ERROR_BYTES_MAX:
            raise ValueError("an error is short")
        message, fields = msgpack.unpackb(reply.payload)
        named: dict[str, Any] = {str(name): value for name, value in fields.items()}
    except Exception:  # the outcome over there is unknown in any case
        return OutcomeUnknownError("the other member's answer cannot be read")
    if reply.code not in REGISTRY:
        return OutcomeUnknownError(str(message))
    return from_code(reply.code, str(message), named)
