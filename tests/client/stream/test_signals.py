"""Signals that come while the main thread waits for an answer of the stream."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import RetryPolicy
from coordinator.client.stream import blocking
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.listening import in_threads, is_put, scripted, serve, silent, written
from tests.client.stream.scripted import Peer, until


def test_a_call_that_is_interrupted_leaves_a_client_that_works() -> None:
    """Ctrl-C is raised where the caller waits; the request is given up, or its connection."""
    is_silent = True
    given_up: list[FromClient] = []
    connected: list[FromClient] = []

    def respond(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Cancel):
            given_up.append(frame)
        if isinstance(frame, frames.Hello):
            connected.append(frame)
        (silent if is_silent else serve)(peer, frame)
        if is_silent and is_put(frame):
            signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None
    with scripted(respond) as url, connect(url, transport="stream") as client:
        with pytest.raises(KeyboardInterrupt):
            client.set("/a", b"")
        is_silent = False
        assert client.set("/b", b"").path == "/v1/tree/b"
        assert given_up != [] or len(connected) == 2  # it was interrupted while it sent


def test_a_signal_handler_may_write_while_the_main_thread_waits() -> None:
    """It is answered at once; the write that it interrupted goes on and ends after it."""
    slow: list[tuple[Peer, int]] = []
    answered: list[str] = []

    def respond(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame) and frame.target.endswith("/slow"):
            slow.append((peer, frame.id))
        else:
            serve(peer, frame)
            if slow and is_put(frame):  # this one is the handler's
                peer.send(written(slow[0][1]))

    def signal_main() -> None:
        (connection,) = client.verbs.delivery._transport._connections
        until(lambda: bool(slow) and not connection._sending.locked())
        signal.pthread_kill(main, signal.SIGUSR1)

    def handler(*_: Any) -> None:
        client.set("/by the handler", b"")
        answered.append("/by the handler")

    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with (
            scripted(respond) as url,
            connect(url, transport="stream", retry=RetryPolicy(tries=1)) as client,
        ):
            in_threads(1, lambda _: [client.set("/a", b"") for _ in range(20)])
            signaller = threading.Thread(target=signal_main)
            signaller.start()
            client.set("/slow", b"")
            answered.append("/slow")
            signaller.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answered == ["/by the handler", "/slow"]


def test_an_interrupt_while_it_connects_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that connects goes on to its end, and the next call connects again."""
    monkeypatch.setattr(blocking, "WELCOME_MS_MAX", 200)
    received: list[FromClient] = []

    def deaf_at_first(peer: Peer, frame: FromClient) -> None:
        received.append(frame)
        if len(received) > 1:
            serve(peer, frame)
        else:
            signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None
    with scripted(deaf_at_first) as url, connect(url, transport="stream") as client:
        with pytest.raises(KeyboardInterrupt):
            client.set("/a", b"")
        until(lambda: not any(url in each.name for each in threading.enumerate()))
        client.verbs.delivery._transport._http_until_ms.clear()

        assert client.set("/a", b"").path == "/v1/tree/a"
