"""One connection of the stream on a socket of an event loop.

1. The frames of one pass of the loop leave in one send; the first of a quiet connection at once.
   Of many requests ``REQUESTS_AT_ONCE`` leave together, of many reads ``READS_AT_ONCE``. When
   several answers have come at once the reads that follow leave in two halves. So the server works
   while others are made; a part of writes costs it a round with the other members.
   The tasks whose answers were read go on at once (``task_wait``).
2. Deadlines cost no task and no timer of their own: requests are put into slots of ``_SLOT_S``, and
   one timer looks at each slot when it is due. So a deadline is kept up to ``_SLOT_S`` late.
3. A silent server is asked whether it is there, and given up if it stays so (``liveness``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Generator, Hashable, Mapping
from typing import Any, cast

from coordinator.client.calling.securing import cannot_connect, reason_of
from coordinator.client.calling.transport import Request, Response
from coordinator.client.stream.conversation import Conversation, Waiter
from coordinator.client.stream.liveness import Liveness, has_begun
from coordinator.client.stream.shared_lines import SharedLines
from coordinator.client.stream.task_wait import TaskWait, let_go_on
from coordinator.client.stream.waiters import LinesRead, LinesSource, not_lines
from coordinator.errors import BadArgumentsError, ConnectionLostError, CoordinatorError
from coordinator.wire.stream.frames import PREFACE

REQUESTS_AT_ONCE = 32
READS_AT_ONCE = 16
"""With fewer, what a server does once for each part costs more than is won (docs/performance.md,
"Overlap")."""
_SLOT_S = 0.025


class Connection(asyncio.Protocol):
    """One connection of an asyncio client; made by ``loop.create_connection``.

    ``began`` is done once WELCOME was read, or never will be; ``is_http`` says then that the other
    side does not know the stream.
    """

    def __init__(
        self,
        endpoint: str,
        label: str,
        on_leader: Callable[[Connection, str | None], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self.endpoint = endpoint
        self.is_http = False
        self.is_spare: Callable[[], bool] = lambda: False
        """Whether its client has another one to this server, too."""
        self.leader_url: str | None = None
        """Who leads, as this server has said last."""
        self.shared: dict[Hashable, SharedLines] = {}
        """The lines under way that another task may read, too."""
        self.conversation = Conversation(endpoint, self._note_leader)
        self._label = label
        self._on_leader = on_leader
        self._on_lost = on_lost
        self.loop = asyncio.get_running_loop()
        self.began: asyncio.Future[None] = self.loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._is_flush_due = False
        self._gathered = 0
        """How many requests wait to be sent."""
        self._half = 0
        """So many reads leave next, while tasks go on whose answers came at once; else 0."""
        self._is_paused = False
        self._answered: list[TaskWait] | None = None
        """Whose tasks go on when what was read is read through; None while nothing is read."""
        self._slots: dict[int, list[tuple[int, int]]] = {}
        """Requests and how many ms they had, by the slot in which their deadline is."""
        self._slot_timer: asyncio.TimerHandle | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._began_s = self.loop.time()
        self.liveness = Liveness(
            self.loop, self.conversation, self._flush_soon, self.give_up, self.close
        )

    def takes(self, request: Request) -> bool:
        """Whether ``request`` may be asked now."""
        conversation = self.conversation
        if self._is_paused or conversation.pong < self.liveness.proof:
            return False
        return conversation.takes(request)

    # --- requests

    def ask(self, request: Request, timeout_ms: int) -> WholeAnswer:
        """Send ``request``; awaited it returns its whole response."""
        whole = WholeAnswer(self, self.loop)
        whole.number = self._begin(request, whole, timeout_ms)
        return whole

    def open_lines(self, request: Request, timeout_ms: int) -> ResponseLines:
        """Send ``request``; its response is read from what is returned.

        It is not sent if it may share the lines of another one."""
        share = request.share
        if share is None:
            lines = ResponseLines(self, self)
            lines.number = self._begin(request, lines, timeout_ms)
        else:
            shared = self.shared.get(share.key)
            if shared is not None:
                lines = ResponseLines(self, shared)
                if shared.joins(share, lines):
                    return lines
            shared = SharedLines(self, share)
            lines = ResponseLines(self, shared)
            shared.add(lines)
            shared.number = self._begin(request, shared, timeout_ms)
        self.liveness.watch_lines()
        return lines

    def lines_closed(self, number: int) -> None:
        """Nobody reads the lines of request ``number`` any more."""
        self.liveness.lines_closed()
        self.give_up(number)

    def give_up(self, number: int) -> None:
        """Give up request ``number``; the server is notified if it may still work at it."""
        if self.conversation.cancel(number):
            self._flush_soon()

    def credit(self, number: int, amount: int) -> None:
        """Let more lines of request ``number`` come."""
        if not self.conversation.is_over:
            self.conversation.credit(number, amount)
            self._flush_soon()

    def wake(self, awaited: TaskWait) -> None:
        """Let the task behind ``awaited`` go on, which may do so now."""
        if self._answered is None:
            awaited.go_on_soon()
        elif not awaited.is_done:
            awaited.is_done = True
            self._answered.append(awaited)

    def close(self, why: str) -> None:
        """End it; what is under way fails."""
        if self._transport is not None:
            self._transport.abort()
        self._lose(why)

    def _begin(self, request: Request, waiter: Waiter, timeout_ms: int) -> int:
        conversation = self.conversation
        is_quiet = not conversation.waiting and not self._is_flush_due
        number = conversation.ask(request, waiter)
        self._await_deadline(number, timeout_ms)
        self.liveness.watch_answers()
        self._gathered += 1
        is_read = request.method == "GET"
        at_once = (self._half or READS_AT_ONCE) if is_read else REQUESTS_AT_ONCE
        if is_quiet or self._gathered >= at_once:
            self._send()
        else:
            self._flush_soon()
        return number

    # --- what asyncio reports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the greeting."""
        self._transport = written = cast("asyncio.Transport", transport)  # uvloop's is none
        self.conversation.hello(self._label)
        written.write(PREFACE + self.conversation.take())

    def data_received(self, data: bytes) -> None:
        """Read the frames, and answer what they ask."""
        self.liveness.heard_s = self.loop.time()
        conversation = self.conversation
        answered = self._answered = []
        try:
            conversation.receive(data)
        except BadArgumentsError as error:
            self.is_http = conversation.welcome is None
            self.close(error.message)
        finally:
            self._answered = None
            if answered:
                self._go_on_with(answered)
        if conversation.is_over:
            return
        if not self.began.done() and (conversation.welcome or conversation.problem):
            self._welcomed()
        if conversation.problem is not None and not conversation.waiting:
            self.close(conversation.problem.message)

    def eof_received(self) -> bool:
        """Close when the server closes."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests that are under way."""
        conversation = self.conversation
        self.is_http = self.is_http or (conversation.welcome is None and exc is None)
        reason = "" if exc is None else reason_of(exc)
        if conversation.welcome is None and isinstance(exc, ssl.SSLError):
            conversation.problem = cannot_connect(self.endpoint, reason)
        self._lose(reason or "the server closed it")

    def pause_writing(self) -> None:
        """Note that the socket takes no more for now."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Note that the socket takes more again."""
        self._is_paused = False

    # --- in between

    def _welcomed(self) -> None:
        self.began.set_result(None)
        welcome = self.conversation.welcome
        if welcome is not None:
            self._ping_timer = self.loop.call_later(welcome.idle_ms / 3000, self._ping)

    def _go_on_with(self, answered: list[TaskWait]) -> None:
        """Let the tasks behind ``answered`` go on; what they ask for leaves in one send."""
        count, later = len(answered), None
        if count > 1:
            self._half = min((count + 1) // 2, READS_AT_ONCE)
            if not self._is_flush_due:  # one may run the loop inside itself: then this sends
                self._is_flush_due = True
                later = self.loop.call_soon(self._flush)
        try:
            let_go_on(answered)
        finally:
            if later is not None:
                later.cancel()
            self._half = 0
            self._flush()

    def _note_leader(self, url: str | None) -> None:
        self.leader_url = url
        self._on_leader(self, url)

    def _lose(self, why: str) -> None:
        self.liveness.end()
        for timer in (self._slot_timer, self._ping_timer):
            if timer is not None:
                timer.cancel()
        if not self.conversation.is_over:
            self.conversation.lose(why)
            self._on_lost(self)
        if not self.began.done():
            self.began.set_result(None)

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self.conversation.writer.buffer:
            self._send()

    def _send(self) -> None:
        self._gathered = self._half = 0
        if self._transport is not None and not self.conversation.is_over:
            self._transport.write(self.conversation.take())

    def _ping(self) -> None:
        welcome = self.conversation.welcome
        assert welcome is not None, "pings begin with WELCOME"
        if not self.conversation.waiting and self.is_spare():
            self.close("it is not needed any more")
            return
        self._ping_timer = self.loop.call_later(welcome.idle_ms / 3000, self._ping)
        self.conversation.ping()
        self._flush_soon()

    # --- deadlines

    def _await_deadline(self, number: int, timeout_ms: int) -> None:
        slot = int((self.loop.time() - self._began_s + timeout_ms / 1000) / _SLOT_S) + 1
        numbers = self._slots.get(slot)
        if numbers is None:
            self._slots[slot] = [(number, timeout_ms)]
            timer = self._slot_timer
            if timer is None or timer.when() > self._due_s(slot):
                self._next_slot()
        else:
            numbers.append((number, timeout_ms))

    def _due_s(self, slot: int) -> float:
        return self._began_s + slot * _SLOT_S

    def _next_slot(self) -> None:
        if self._slot_timer is not None:
            self._slot_timer.cancel()
        self._slot_timer = None
        if self._slots:
            due_s = self._due_s(min(self._slots))
            self._slot_timer = self.loop.call_at(due_s, self._look_at_slots)

    def _look_at_slots(self) -> None:
        """Fail the requests whose deadline is over; the connection too, if nothing came since."""
        now_s, waiting = self.loop.time(), self.conversation.waiting
        late: list[tuple[Waiter, int]] = []
        for slot in [each for each in self._slots if self._due_s(each) <= now_s + 1e-6]:
            for number, timeout_ms in self._slots.pop(slot):
                waiter = waiting.get(number)
                if waiter is not None and not has_begun(waiter):
                    late.append((waiter, timeout_ms))
                    self.give_up(number)
        self._slot_timer = None
        for waiter, timeout_ms in late:
            message = f"{self.endpoint}: no answer within {timeout_ms} ms"
            waiter.on_failure(ConnectionLostError(message, endpoint=self.endpoint))
        if late:
            self.liveness.ask_for_proof(min(timeout_ms for _, timeout_ms in late) / 1000)
        self._next_slot()


class WholeAnswer(TaskWait):
    """One whole response, and the task that awaits it."""

    __slots__ = ("_connection", "_error", "_response", "number")

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.number = 0
        self._connection = connection
        self._response: Response | None = None
        self._error: CoordinatorError | None = None

    def __await__(self) -> Generator[Any, None, Response]:
        if self.is_done:
            self.result()
        else:
            self._asyncio_future_blocking = True
            yield self  # whose ``result`` was asked before the task goes on
        assert self._response is not None, "it goes on with an answer or with an error"
        return self._response

    def on_answer(self, response: Response) -> None:
        """Take the answer; the task goes on when all that was read is read through."""
        self._response = response
        self._connection.wake(self)

    def on_failure(self, error: CoordinatorError) -> None:
        """Take what came instead."""
        self._error = error
        self._connection.wake(self)

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Lines are not what was asked for."""
        self.on_failure(not_lines(status))

    def on_line(self, body: bytes) -> None:
        """Ignore a line: the request has failed already (``on_head``)."""

    def on_end(self) -> None:
        """Ignore the end: the request has failed already."""

    def result(self) -> None:
        """Raise what the task gets in place of the response, if anything."""
        if self._is_cancelled:
            raise self._cancellation()
        if self._error is not None:
            raise self._error

    def cancel(self, msg: object = None) -> bool:
        """Give the request up, unless it was answered."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._connection.give_up(self.number)
        return is_cancelled


class ResponseLines(LinesRead):
    """A response that a task reads line by line."""

    def __init__(self, connection: Connection, source: LinesSource) -> None:
        super().__init__(source)
        self._connected = connection
        self._wakened: TaskWait | None = None

    def ring(self) -> None:
        """Wake who waits."""
        if self._wakened is not None:
            self._connected.wake(self._wakened)

    def on_line(self, body: bytes) -> None:
        """Take one line."""
        self._lines.append(body)
        waits = self._wakened
        if waits is not None and not waits.is_done:
            self._connected.wake(waits)

    def news(self) -> TaskWait:
        """Return what is awaited until something comes: first of all status and headers."""
        self._wakened = news = TaskWait(self._connected.loop)
        return news
