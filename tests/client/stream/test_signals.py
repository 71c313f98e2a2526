"""Signals that come while the main thread waits for an answer of the stream."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import RetryPolicy
from coordinator.client.stream import transport
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.listening import is_put, scripted, serve, silent, written
from tests.client.stream.scripted import Peer, until


def test_a_call_that_is_interrupted_leaves_a_client_that_works() -> None:
    """Ctrl-C is raised where the caller waits; the request is given up."""
    is_silent = True
    given_up: list[FromClient] = []

    def respond(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Cancel):
            given_up.append(frame)
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
        assert given_up != []


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
        until(lambda: bool(slow))
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
            signaller = threading.Thread(target=signal_main)
            signaller.start()
            client.set("/slow", b"")
            answered.append("/slow")
            signaller.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answered == ["/by the handler", "/slow"]


def test_an_interrupt_while_it_connects_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What connects goes on to its end, and the next call connects again."""
    monkeypatch.setattr(transport, "WELCOME_MS_MAX", 200)
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
        until(lambda: not client.core.delivery._transport._opening)
        client.core.delivery._transport._http_until_s.clear()

        assert client.set("/a", b"").path == "/v1/tree/a"


def test_a_signal_handler_may_ask_whatever_it_interrupts() -> None:
    """Between any two steps of the main thread, which waits for its own answer or is about to."""
    answered: list[str] = []

    def handler(*_: Any) -> None:
        answered.append(client.set("/by the handler", b"").path)

    main, is_over = threading.main_thread().ident, threading.Event()
    assert main is not None

    def signal_main() -> None:
        sent = 0
        while not is_over.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
            sent += 1
            while len(answered) < sent and not is_over.is_set():
                time.sleep(0.0005)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with scripted(serve) as url, connect(url, transport="stream") as client:
            client.set("/a", b"")
            signaller = threading.Thread(target=signal_main)
            signaller.start()
            try:
                for _ in range(300):
                    client.set("/a", b"")
            finally:
                is_over.set()
                signaller.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answered != []
