"""One connection of the stream for threads: a socket, a thread that reads it, callers that wait.

A caller puts its frame behind those of others and sends what is there, unless another thread is
sending just now and will send it too; then it sleeps on a lock of its own, which the reading thread
opens when the answer is there. One that is alone reads its answer itself, but in the main thread
(``reading_turn``).

1. An interrupt (Ctrl-C) within a send may leave half a frame behind, so it ends the connection; so
   does what stops a caller while it reads.
2. No caller waits long for a socket that takes nothing: it leaves the rest to a thread made for
   that, and waits for its answer, or its deadline. A server that takes nothing is taken for dead.
3. A caller that waits for the first of an answer asks a silent server whether it is there (PING),
   and goes elsewhere if it goes on to say nothing; at once if another member says meanwhile that
   this one leads no more. So asks one whose deadline passes, and, after more silence, the thread
   that reads for callers that wait for lines. A server that says nothing then is taken for dead.
4. The reading thread alone closes the descriptor: another would take its number for its own.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from collections.abc import Callable

from coordinator.client.deputy import is_in_main_thread, wait_cancellably
from coordinator.client.securing import cannot_connect, reason_of
from coordinator.client.stream.blocking_waiters import AnswerWaiter, BlockingLines
from coordinator.client.stream.conversation import Conversation, Waiter
from coordinator.client.stream.patience import (
    ASK_MS,
    PROOF_MS,
    QUIET_MS,
    REPLACED_MS,
    SILENCE_MS_MAX,
    answer_ms,
)
from coordinator.client.stream.reading_turn import ALONE_MS, ReadingTurn
from coordinator.client.stream.sockets import PlainBytes, SecuredBytes, look_up_after, prepare
from coordinator.client.transport import Request, Response
from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    UnavailableError,
)
from coordinator.wire.stream.frames import PREFACE

_READ_BYTES = 256 * 1024
_TICK_MS = 1_000
"""How often the reading thread looks up, if nothing comes."""
_PATIENCE_MS = 100
"""For how long a caller waits at most for a socket that takes nothing."""
_SEND_MS_MAX = 5_000
"""A server that takes nothing for so long is taken for dead."""
_DONT_WAIT: int = getattr(socket, "MSG_DONTWAIT", 0)


class BlockingConnection:
    """One connection, shared by threads; ``connected`` is its socket."""

    def __init__(
        self,
        endpoint: str,
        connected: socket.socket,
        clock: Clock,
        on_leader: Callable[[BlockingConnection, str | None], None],
        on_lost: Callable[[BlockingConnection], None],
        secured: SecuredBytes | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.leader_url: str | None = None
        """Who leads, as this server has said last, if the client has it among its endpoints."""
        self.is_http = False
        self.began = threading.Event()
        self._socket = connected
        self._bytes = secured or PlainBytes()
        self._clock = clock
        self._on_leader = on_leader
        self._on_lost = on_lost
        self.conversation = Conversation(endpoint, self._note_leader)
        self._guard = threading.Lock()
        """Held around the conversation, for a moment."""
        self._turn = ReadingTurn(self._guard, self.conversation.waiting)
        self._sending = threading.Lock()
        self.heard_ms = clock.monotonic_ms()
        """When the server has sent something last."""
        self.is_doubted = False
        """Whether another member says that this one leads no more, and it was not heard since."""
        self.on_silent: Callable[[BlockingConnection], None] = lambda _: None
        """Called when it is asked since it is silent: what waits may go elsewhere soon."""
        self._proof_asked_ms: int | None = None
        """When the server was asked whether it is there; None if it was heard since."""
        self._line_streams = 0
        self._reading: threading.Thread | None = None

    def begin(self, label: str) -> None:
        """Say hello, and read from now on."""
        prepare(self._socket)
        look_up_after(self._socket, _TICK_MS)
        self.conversation.hello(label)
        self._socket.sendall(self._bytes.sealed(PREFACE + self.conversation.take()))
        name = f"coordinator stream {self.endpoint}"
        reading = threading.Thread(target=self._read, name=name, daemon=True)
        reading.start()
        self._reading = reading

    def join(self, timeout_s: float) -> None:
        """Wait until nothing of it is left, once it is closed."""
        if self._reading is not None and self._reading is not threading.current_thread():
            self._reading.join(timeout_s)

    def ask(self, request: Request, timeout_ms: int) -> Response:
        """Send ``request`` and wait for its whole response."""
        waiter, number, began_ms = AnswerWaiter(), 0, self._clock.monotonic_ms()
        try:
            number = self._begin(request, waiter, timeout_ms)
            self._send(timeout_ms)
            self._read_alone(waiter, began_ms)
            while not waiter.is_answered:
                waiter.wait(self._look_s(number, began_ms, timeout_ms))
        except BaseException:
            self._turn.end(waiter)
            self.give_up(number)
            raise
        if waiter.response is None:
            assert waiter.error is not None, "the lock is opened by an answer or by an error"
            raise waiter.error.with_traceback(None)
        return waiter.response

    def open_lines(self, request: Request, timeout_ms: int) -> BlockingLines:
        """Send ``request`` and wait for the head of its response, which is read line by line."""
        lines = BlockingLines(self)
        with self._guard:
            self._line_streams += 1
        try:
            began_ms = self._clock.monotonic_ms()
            lines.number = self._begin(request, lines, timeout_ms)
            self._send(timeout_ms)
            self._read_alone(lines, began_ms)
            while not lines.has_begun:
                lines.check_begun()
                limit_s = self._look_s(lines.number, began_ms, timeout_ms)
                wait_cancellably(lines.wait, lines.ring, limit_s)
        except BaseException:
            self._turn.end(lines)
            lines.close()
            raise
        return lines

    def lines_closed(self, number: int) -> None:
        """Nobody reads the lines of request ``number`` any more."""
        with self._guard:
            self._line_streams -= 1
        self.give_up(number)

    def give_up(self, number: int) -> None:
        """Give up request ``number``; the server is notified if it may still work at it."""
        with self._guard:
            is_to_send = self.conversation.cancel(number)
        if is_to_send:
            self._send(0)

    def credit(self, number: int, amount: int) -> None:
        """Let more lines of request ``number`` come."""
        with self._guard:
            if self.conversation.is_over:
                return
            self.conversation.credit(number, amount)
        self._send(0)

    @property
    def is_silent(self) -> bool:
        """Whether it was asked whether it is there, and has said nothing for long enough."""
        asked_ms, answer_in_ms = self._proof_asked_ms, answer_ms(self.conversation.unheard_bytes)
        return asked_ms is not None and self._clock.monotonic_ms() - asked_ms >= answer_in_ms

    def doubt(self) -> None:
        """Another member leads, as it says: what waits here does so only if this one is heard.

        From any thread, which may hold the guard of another connection."""
        self.is_doubted = True
        for waiter in list(self.conversation.waiting.values()):
            assert isinstance(waiter, AnswerWaiter | BlockingLines), "threads wait here"
            waiter.ring()

    def look_ms(self, since_ms: int) -> int:
        """Look after the server, for a caller that has waited since then; return for how many ms
        it may wait before it looks again.

        Raises:
            ConnectionLostError: the server was asked, and goes on to say nothing.
        """
        now_ms = self._clock.monotonic_ms()
        with self._guard:
            is_asked = self._proof_asked_ms is not None
            due_ms = now_ms if self.is_doubted else max(self.heard_ms, since_ms) + ASK_MS
            if not is_asked and now_ms < due_ms:
                return due_ms - now_ms
            if self._proof_asked_ms is None:
                self._proof_asked_ms = now_ms
                self.conversation.ping()
            answer_in_ms = answer_ms(self.conversation.unheard_bytes)
            due_ms = self._proof_asked_ms + (REPLACED_MS if self.is_doubted else answer_in_ms)
        if not is_asked:
            self._send(0)
            self.on_silent(self)
        elif now_ms >= due_ms:
            silence = f"said nothing for {now_ms - self.heard_ms} ms"
            if self.is_doubted:
                self.close(f"another member leads, and this one {silence}")
            raise ConnectionLostError(
                f"{self.endpoint}: no answer; the member {silence}", endpoint=self.endpoint
            )
        return max(0, due_ms - now_ms)

    def close(self, why: str) -> None:
        """End it; what is under way fails."""
        with self._guard:
            is_first = not self.conversation.is_over
            self.conversation.lose(why)
        self._turn.stop()
        if is_first:
            self._on_lost(self)
        self.began.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already
        if self._reading is None:
            self._socket.close()

    # --- out

    def _begin(self, request: Request, waiter: Waiter, timeout_ms: int) -> int:
        may_read = timeout_ms > 2 * ALONE_MS and not is_in_main_thread()
        with self._guard:
            if self.conversation.is_over:
                message = f"{self.endpoint}: the connection has ended; nothing was sent"
                raise UnavailableError(message, endpoint=self.endpoint)
            self._turn.begin(waiter, may_read)
            return self.conversation.ask(request, waiter)

    def _send(self, limit_ms: int) -> None:
        """Send what there is, unless it is being sent: who sends looks again afterwards.

        Waits up to ``limit_ms``, and never for long.
        """
        writer = self.conversation.writer
        waited_ms = 0
        try:
            while len(writer) and self._sending.acquire(blocking=False):
                with self._guard:
                    data = self.conversation.take()
                if data:
                    waited_ms += self._push(data, min(limit_ms - waited_ms, _PATIENCE_MS))
                else:
                    self._sending.release()
        except BaseException:
            self.close("the program was interrupted while it sent a request")
            raise

    def _push(self, data: bytes | bytearray, limit_ms: int) -> int:
        """Send ``data``, or leave the rest of it to a thread; who sends is let go in the end.

        Returns for how long it has waited.
        """
        try:
            data = self._bytes.sealed(data)
            sent = self._socket.send(data, _DONT_WAIT)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(reason_of(error))
            sent = len(data)
        if sent == len(data):
            self._sending.release()
            return 0
        began_ms = self._clock.monotonic_ms()
        rest = self._pushed(memoryview(data)[sent:], began_ms + limit_ms)
        if rest:
            threading.Thread(target=self._push_all, args=(rest,), daemon=True).start()
        else:
            self._sending.release()
        return self._clock.monotonic_ms() - began_ms

    def _pushed(self, data: memoryview, until_ms: int) -> memoryview:
        """Send as much as the socket takes until then; return what is left."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_WRITE)
            while data and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
                selector.select(left_ms / 1000)
                try:
                    sent = self._socket.send(data, _DONT_WAIT)
                    data = data[sent:]
                except BlockingIOError:
                    pass
                except OSError as error:
                    self.close(str(error) or type(error).__name__)
                    return data[:0]
        return data

    def _push_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data`` to the end, however long it takes, while the server takes some of it."""
        rest = memoryview(data)
        while rest and not self.conversation.is_over:
            left = self._pushed(rest, self._clock.monotonic_ms() + _SEND_MS_MAX)
            if len(left) == len(rest):
                self.close(f"the server took nothing for {_SEND_MS_MAX} ms")
            rest = left
        self._sending.release()
        self._send(0)

    def _look_s(self, number: int, began_ms: int, timeout_ms: int) -> float:
        """Return for how long request ``number`` may wait before its caller looks again.

        Raises:
            ConnectionLostError: its time is over, or the server says nothing.
        """
        left_ms = began_ms + timeout_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            self._late(number, timeout_ms)
            raise self._no_answer(timeout_ms)
        return min(left_ms, self.look_ms(began_ms)) / 1000

    def _late(self, number: int, waited_ms: int) -> None:
        """Give up; ask whether the server is there, if it has said nothing since."""
        now_ms = self._clock.monotonic_ms()
        with self._guard:
            self.conversation.cancel(number)
            if now_ms - self.heard_ms >= waited_ms and self._proof_asked_ms is None:
                self._proof_asked_ms = now_ms
                self.conversation.ping()
        self._send(0)

    def _no_answer(self, timeout_ms: int) -> ConnectionLostError:
        return ConnectionLostError(
            f"{self.endpoint}: no answer within {timeout_ms} ms", endpoint=self.endpoint
        )

    # --- in

    def _read_alone(self, waiter: AnswerWaiter | BlockingLines, began_ms: int) -> None:
        """Read until ``waiter``, whose call began at ``began_ms``, is answered, if it is its turn.

        The last read begins within ``ALONE_MS`` and takes no longer: no deadline is passed.
        """
        if not self._turn.is_of(waiter):
            return
        until_ms = began_ms + ALONE_MS
        try:
            while not waiter.is_answered and self._clock.monotonic_ms() < until_ms:
                self._read_once()
        except BaseException:
            self.close("a caller was stopped while it read an answer")
            raise
        self._turn.end(waiter)

    def _read(self) -> None:
        try:
            self._read_on()
        finally:
            self.close("the thread that read it has ended")
            self._turn.wait_for_caller(PROOF_MS / 1000)
            self._sending.acquire(timeout=PROOF_MS / 1000)  # until nobody uses the descriptor
            self._socket.close()

    def _read_on(self) -> None:
        turn, conversation = self._turn, self.conversation
        while not conversation.is_over:
            if not self._read_once():
                self._look_up()
            elif turn.may_leave():
                look_up_after(self._socket, ALONE_MS)
                if turn.leave() and not turn.wait():
                    self.close("a caller was stopped while it read an answer")
                look_up_after(self._socket, _TICK_MS)

    def _read_once(self) -> bool:
        """Read what comes next, and hand it to who waits for it; False if nothing came."""
        try:
            data = self._socket.recv(_READ_BYTES)
            if data and not (data := self._bytes.opened(data)):
                return True
        except BlockingIOError:
            return False
        except OSError as error:
            self._broke(error)
            return True
        if data:
            self._take(data)
        else:
            self.is_http = self.conversation.welcome is None
            self.close("the server closed it")
        return True

    def _broke(self, error: OSError) -> None:
        """End it; a server that ends TLS before it has said anything takes no requests."""
        reason = reason_of(error)
        if self.conversation.welcome is None and isinstance(error, ssl.SSLError):
            self.conversation.problem = cannot_connect(self.endpoint, reason)
        self.close(reason)

    def _take(self, data: bytes) -> None:
        conversation = self.conversation
        self.heard_ms = self._clock.monotonic_ms()
        self._proof_asked_ms, self.is_doubted = None, False
        try:
            with self._guard:
                conversation.receive(data)
        except BadArgumentsError as error:
            self.is_http = conversation.welcome is None
            self.close(error.message)
            return
        if not self.began.is_set():
            self.began.set()
        if conversation.problem is not None and not conversation.waiting:
            self.close(conversation.problem.message)

    def _look_up(self) -> None:
        """Nothing came for a while: ask the server whether it is there, or take it for dead."""
        now_ms = self._clock.monotonic_ms()
        silence_ms, asked_ms = now_ms - self.heard_ms, self._proof_asked_ms
        is_silent = bool(self._line_streams) and silence_ms >= SILENCE_MS_MAX
        patience_ms = PROOF_MS + answer_ms(self.conversation.unheard_bytes) - answer_ms(0)
        if is_silent or (asked_ms is not None and now_ms - asked_ms >= patience_ms):
            self.close(f"the server said nothing for {silence_ms} ms")
            return
        welcome = self.conversation.welcome
        is_idle = welcome is not None and silence_ms * 3 >= welcome.idle_ms
        if is_idle or (self._line_streams and silence_ms >= QUIET_MS):
            with self._guard:
                self.conversation.ping()
            self._send(0)

    def _note_leader(self, url: str | None) -> None:
        self._on_leader(self, url)
