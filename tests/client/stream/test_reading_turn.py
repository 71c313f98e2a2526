"""Who reads a connection that threads share: its own thread, or the only caller that waits.

The main thread never reads, so callers that do are other threads: ``in_a_thread``.
"""

from __future__ import annotations

import errno
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec

import pytest

from coordinator.client.stream import patience, reading_turn
from coordinator.client.stream.blocking_connection import BlockingConnection
from coordinator.client.transport import Request
from coordinator.clock import Clock, SystemClock
from coordinator.errors import ConnectionLostError, OutcomeUnknownError
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import PREFACE
from tests.client.stream.scripted import until
from tests.patience import patient

P = ParamSpec("P")

ASK_MS = 20_000
KEPT = 3_600.0
"""The delay of what is never answered, or by the test itself."""


def in_a_thread(test: Callable[P, None]) -> Callable[P, None]:
    """Run a test in a thread that may read."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(test, *args, **kwargs).result()

    return run


class JumpingClock:
    """Goes on by ``ALONE_MS`` after the next look of a thread."""

    def __init__(self) -> None:
        self.jumps_for: int | None = None
        self._ahead_ms = 0

    def monotonic_ms(self) -> int:
        now_ms = SystemClock().monotonic_ms() + self._ahead_ms
        if self.jumps_for == threading.get_ident():
            self.jumps_for = None
            self._ahead_ms = reading_turn.ALONE_MS
        return now_ms

    def wall_ms(self) -> int:
        return SystemClock().wall_ms()


class RefusingSocket(socket.socket):
    """Refuses options once it was shut down, as macOS does."""

    is_shut = False

    def shutdown(self, how: int) -> None:
        self.is_shut = True
        super().shutdown(how)

    def setsockopt(self, *arguments: Any) -> None:
        if self.is_shut:
            raise OSError(errno.EINVAL, "Invalid argument")
        super().setsockopt(*arguments)


class Answering(threading.Thread):
    """The server's end: answers after ``delay_s(target)``, in a thread for each request that waits.

    Before each answer it names a leader, so that a connection reports who reads it.
    """

    def __init__(self, theirs: socket.socket, delay_s: Callable[[str], float]) -> None:
        super().__init__(daemon=True)
        self.theirs = theirs
        self.delay_s = delay_s
        self.kept: list[frames.RequestFrame] = []
        self.received: list[frames.FromClient] = []
        self._sending = threading.Lock()

    def run(self) -> None:
        with suppress(OSError):  # the test may be over before this has begun to read
            self._read()

    def _read(self) -> None:
        reader, unread = frames.from_client(1 << 20), len(PREFACE)
        while data := self.theirs.recv(1 << 16):
            reader.feed(data[unread:])
            unread = max(0, unread - len(data))
            for frame in reader.take():
                self.received.append(frame)
                if isinstance(frame, frames.RequestFrame):
                    delay_s = self.delay_s(frame.target)
                    if delay_s == KEPT:
                        self.kept.append(frame)
                    elif delay_s == 0:
                        self.answer(frame)
                    else:
                        threading.Timer(delay_s, self.answer, (frame,)).start()

    def answer(self, frame: frames.RequestFrame) -> None:
        named = frames.encoded(frames.Leader(frame.target))
        answer = frames.AnswerFrame(id=frame.id, status=200, headers={}, body=frame.target.encode())
        with self._sending, suppress(OSError):  # the test may be over
            self.theirs.sendall(named + frames.encoded(answer))


class Served:
    """A connection, its server, and which thread read the answer to each request."""

    def __init__(self, connection: BlockingConnection, server: Answering) -> None:
        self.connection = connection
        self.server = server
        self.readers: dict[str, int] = {}

    def ask(self, target: str, timeout_ms: int = ASK_MS) -> bool:
        """Ask, and return whether this thread has read the answer itself."""
        response = self.connection.ask(Request("GET", target), timeout_ms)
        assert response.body == target.encode()
        return self.readers[target] == threading.get_ident()

    def alone(self) -> None:
        """Ask one after the other until the answers are read here."""
        deadline_s = time.monotonic() + patient(10)
        while not self.ask("/alone"):
            assert time.monotonic() < deadline_s, "the thread does not leave the reading"

    def alone_elsewhere(self) -> None:
        """Let another thread read its answers; for a moment the reading is left to callers."""
        caller = threading.Thread(target=self.alone)
        caller.start()
        caller.join(patient(20))

    def signal_main(self, number: int) -> None:
        """Send a signal to the main thread once what it asked is sent, and kept by the server."""
        main = threading.main_thread().ident
        assert main is not None
        until(lambda: bool(self.server.kept) and not self.connection._sending.locked())
        signal.pthread_kill(main, number)


def kept(*targets: str) -> Callable[[str], float]:
    """Return the delays of a server that does not answer these by itself."""
    return lambda target: KEPT if target in targets else 0


@contextmanager
def served(
    delay_s: Callable[[str], float] = lambda target: 0, clock: Clock | None = None
) -> Iterator[Served]:
    """Serve one connection over a real socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = RefusingSocket()
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
    pair: Served

    def on_leader(connection: BlockingConnection, url: str | None) -> None:
        if url is not None:
            pair.readers[url] = threading.get_ident()
        if url == "/stopped" and threading.current_thread() is not connection._reading:
            raise KeyboardInterrupt

    def ignored(*_: Any) -> None:
        """Nothing is remembered of a lost connection."""

    connection = BlockingConnection("http://m:1", ours, clock or SystemClock(), on_leader, ignored)
    pair = Served(connection, Answering(theirs, delay_s))
    connection.begin("test")
    theirs.sendall(frames.encoded(frames.Welcome(1, frames.WelcomeSettings("n1"))))
    assert connection.began.wait(10)
    pair.server.start()
    try:
        yield pair
    finally:
        connection.close("the test is over")
        connection.join(10)
        assert connection._socket.fileno() == -1, "the thread that reads closes the socket"
        theirs.close()


@in_a_thread
def test_the_only_caller_reads_its_answers_itself() -> None:
    """So it is not woken by another thread; after a pause the first answer is the thread's."""
    with served() as pair:
        pair.alone()
        assert all(pair.ask(f"/{number}") for number in range(20))

        until(lambda: not pair.connection._turn._is_away)  # nobody asks
        assert not pair.ask("/after a pause")
        pair.alone()


@in_a_thread
def test_an_answer_that_takes_long_is_left_to_the_thread() -> None:
    """A caller reads for a moment only: pings, deadlines and cancelling are the thread's."""
    with served(lambda target: 0.3 if target == "/slow" else 0) as pair:
        pair.alone()
        assert not pair.ask("/slow")
        pair.alone()


@in_a_thread
def test_a_caller_that_has_its_answer_leaves_the_others_to_the_thread() -> None:
    """The second request began while the first caller was reading."""
    delays_s = {"/first": 0.02, "/second": 0.04}
    with served(lambda target: delays_s.get(target, 0)) as pair:
        pair.alone()
        second = threading.Timer(0.01, lambda: pair.ask("/second"))
        second.start()
        pair.ask("/first")
        second.join(10)
        assert pair.readers["/second"] != second.ident
        pair.alone()


@in_a_thread
def test_a_short_deadline_is_kept_by_the_thread() -> None:
    """A caller that reads would notice it late."""
    with served(lambda target: 0 if target == "/alone" else 5) as pair:
        pair.alone()
        with pytest.raises(ConnectionLostError, match="no answer within"):
            pair.ask("/never", 60)
        pair.alone()


def test_a_caller_that_may_not_read_calls_the_thread_back_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the thread would come back when it had been away for long enough, after the deadline."""
    waiting: dict[int, object] = {}
    turn = reading_turn.ReadingTurn(threading.Lock(), waiting)
    assert turn.leave()
    turn.begin("long", may_read=True)
    waiting[1] = "long"
    turn.begin("short", may_read=False)
    assert turn.is_of("long"), "who reads goes on until it has its answer"
    waiting.clear()
    turn.end("long")
    turn.begin("short", may_read=False)
    monkeypatch.setattr(reading_turn, "AWAY_S", 60.0)
    began_s = time.monotonic()
    assert turn.wait()
    assert time.monotonic() - began_s < 30, "it was not called"


def test_the_main_thread_never_reads_and_keeps_the_thread_reading() -> None:
    """Were the reading left to it, each of its requests would have to call the thread back."""
    with served() as pair:
        pair.alone_elsewhere()
        for number in range(20):
            assert not pair.ask(f"/{number}")
            assert not pair.connection._turn._is_away


def test_a_signal_handler_is_answered_while_the_main_thread_waits() -> None:
    """It runs within the wait of the main thread, which goes on only when it has returned."""
    answered: list[str] = []

    def handler(*_: Any) -> None:
        pair.ask("/by the handler")
        answered.append("/by the handler")
        pair.server.answer(pair.server.kept[0])

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with served(kept("/slow")) as pair:
            pair.alone_elsewhere()
            signaller = threading.Thread(target=pair.signal_main, args=(signal.SIGUSR1,))
            signaller.start()
            pair.ask("/slow")
            answered.append("/slow")
            signaller.join(10)
            assert answered == ["/by the handler", "/slow"]
            assert pair.connection.conversation.is_usable
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_while_the_main_thread_waits_leaves_the_connection() -> None:
    """The main thread has read nothing that could be lost; only its request is given up."""
    with served(kept("/slow")) as pair:
        pair.alone_elsewhere()
        signaller = threading.Thread(target=pair.signal_main, args=(signal.SIGINT,))
        signaller.start()
        with pytest.raises(KeyboardInterrupt):
            pair.ask("/slow")
        signaller.join(10)
        pair.ask("/next")
        assert any(isinstance(each, frames.Cancel) for each in pair.server.received)


@in_a_thread
def test_what_stops_a_caller_while_it_reads_ends_the_connection() -> None:
    """What it had read of an answer may be lost, so nobody goes on with the rest."""
    with served() as pair:

        def ask_until_it_is_read_here() -> None:
            for _ in range(1_000):  # the thread may have come back meanwhile
                pair.alone()
                pair.ask("/stopped")

        with pytest.raises(KeyboardInterrupt):
            ask_until_it_is_read_here()
        assert pair.connection.conversation.is_over


@in_a_thread
def test_a_deadline_is_named_as_it_was_given() -> None:
    """Though part of it was spent on reading."""
    with served(kept("/never")) as pair:
        pair.alone()
        with pytest.raises(ConnectionLostError, match="no answer within 150 ms"):
            pair.ask("/never", 150)


@in_a_thread
def test_a_server_that_spoke_since_the_request_began_is_not_asked_for_a_proof() -> None:
    """Also if it spoke while the caller read."""
    with served(kept("/never")) as pair:
        pair.alone()
        pong = frames.encoded(frames.Pong(0))
        threading.Timer(0.02, pair.server.theirs.sendall, (pong,)).start()
        with pytest.raises(ConnectionLostError):
            pair.ask("/never", patience.ASK_MS // 2)
        pair.ask("/next")
        assert not any(isinstance(each, frames.PingFrame) for each in pair.server.received)


@in_a_thread
def test_a_caller_that_was_long_in_sending_leaves_the_reading_to_the_thread() -> None:
    """A read that begins late may end after the deadline."""
    clock = JumpingClock()
    with served(clock=clock) as pair:
        pair.alone()
        clock.jumps_for = threading.get_ident()
        assert not pair.ask("/long in sending")


@in_a_thread
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_socket_that_refuses_options_at_the_end_does_not_disturb_it() -> None:
    """The thread that reads ends as ever, though the connection is closed while it is away."""
    with served() as pair:
        pair.alone()


@in_a_thread
def test_a_server_that_closes_ends_the_read_of_a_caller() -> None:
    """The caller finds it, and the thread ends."""
    with served(lambda target: 0 if target == "/alone" else 5) as pair:
        pair.alone()
        threading.Timer(0.01, pair.server.theirs.shutdown, (socket.SHUT_RDWR,)).start()
        with pytest.raises(OutcomeUnknownError, match="the server closed it"):
            pair.ask("/never")
        pair.connection.join(patient(5))


@in_a_thread
def test_a_server_that_closes_is_noticed_though_nobody_asks() -> None:
    """The thread reads again soon after the last caller."""
    with served() as pair:
        pair.alone()
        pair.server.theirs.shutdown(socket.SHUT_RDWR)
        until(lambda: pair.connection.conversation.is_over)


@in_a_thread
def test_a_turn_that_is_never_ended_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second interrupt may come within the clean-up of the first; no call waits for nothing."""
    monkeypatch.setattr(reading_turn, "_GONE_S", 0.2)
    with served() as pair:
        pair.alone()
        with pair.connection._guard:
            gone = object()
            pair.connection._turn.begin(gone, may_read=True)
        assert pair.connection._turn.is_of(gone)
        until(lambda: pair.connection.conversation.is_over)
        pair.connection._turn.end(gone)


def test_no_answer_is_left_unread_when_callers_come_and_go() -> None:
    """Threads that ask with pauses of any length are all answered at once."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    slow: list[float] = []

    def caller(pauses_s: list[float], name: str) -> None:
        for number, pause_s in enumerate(pauses_s):
            time.sleep(pause_s)
            began_s = time.monotonic()
            pair.ask(f"/{name}/{number}")
            slow.append(time.monotonic() - began_s)

    with served() as pair:
        for count in (1, 2, 3, 2, 1):
            choices = (0.0, 0.0, 0.0, 0.0, 0.001, 0.004)
            pauses_s = [draw.choices(choices, k=150) for _ in range(count)]
            threads = [
                threading.Thread(target=caller, args=(each, f"{count}-{number}"))
                for number, each in enumerate(pauses_s)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(patient(20))
                assert not thread.is_alive(), "a caller waits for an answer that nobody reads"
    assert len(slow) == 150 * 9
