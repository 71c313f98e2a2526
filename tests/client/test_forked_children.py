"""A child that is forked from a client's process: it holds nothing, and knows nothing."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import Client
from coordinator.errors import CoordinatorError
from coordinator.recipes import (
    CachedValue,
    DoubleBarrier,
    Election,
    Group,
    Lock,
    Pool,
    ReentrantLock,
    TokenBucket,
    TreeCache,
    WorkQueue,
)
from coordinator.recipes.partitioner import Partitioner
from tests.client.server_thread import serving
from tests.patience import patient


@pytest.fixture(params=["http", "stream"], autouse=True)
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_TRANSPORT", request.param)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url, label="parent") as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def in_child(answers: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return what each of ``answers`` is in a forked child: its value, or the error's class."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = {}
            for what, ask in answers.items():
                try:
                    found[what] = ask()
                except CoordinatorError as error:
                    found[what] = type(error).__name__
            os.write(writing, json.dumps(found, default=str).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    answered: dict[str, Any] = json.loads(text)
    return answered


def test_a_forked_child_holds_nothing(client: Client, name: str) -> None:
    """Whatever is answered without a request is answered for the process that asks."""
    held, again = Lock(client, name), ReentrantLock(client, f"{name}-2")
    grant = held.acquire()
    again.acquire()
    election = Election(client, name)
    leadership = election.campaign()
    session = client.session()
    member = Group(client, name).join("me")
    WorkQueue(client, name).put(b"")
    delivery = WorkQueue(client, name).take()
    borrowed = Pool(client, name, ["one"]).borrow()
    chunk = TokenBucket(client, name, rate=1, burst=10).chunk(5)
    barrier = DoubleBarrier(client, name, 1)
    assert delivery is not None
    assert chunk.take()
    assert barrier.enter()
    answers: dict[str, tuple[Callable[[], Any], Any, Any]] = {
        "grant.is_lost": (lambda: grant.is_lost, False, True),
        "grant.is_unsure": (lambda: grant.is_unsure, False, True),
        "grant.check": (grant.check, None, "LockLostError"),
        "grant.remaining_safe_ms": (lambda: grant.remaining_safe_ms() > 0, True, False),
        "grant.next_write_number": (grant.next_write_number, 1, "ClientClosedError"),
        "grant.on_asked": (lambda: grant.on_asked(print) and None, None, "ClientClosedError"),
        "leadership.is_lost": (lambda: leadership.is_lost, False, True),
        "reentrant.count": (lambda: again.count, 1, 0),
        "session.is_lost": (lambda: session.is_lost, False, True),
        "session.state": (lambda: session.state, "connected", "lost"),
        "session.check": (session.check, None, "SessionExpiredError"),
        "session.on_state": (lambda: session.on_state(print) and None, None, "ClientClosedError"),
        "member.is_registered": (lambda: member.is_registered, True, False),
        "delivery.is_lost": (lambda: delivery.is_lost, False, True),
        "delivery.check": (delivery.check, None, "SessionExpiredError"),
        "borrowed.is_lost": (lambda: borrowed.is_lost, False, True),
        "borrowed.check": (borrowed.check, None, "SessionExpiredError"),
        "chunk.left": (lambda: chunk.left, 4, 0),
        "chunk.take": (chunk.take, True, "ClientClosedError"),
        "barrier.is_in": (lambda: barrier.is_in, True, False),
        "verify": (lambda: grant.verify() > 0, True, "ClientClosedError"),
        "release": (held.release, True, "ClientClosedError"),
    }

    in_the_child = in_child({what: ask for what, (ask, _, _) in answers.items()})

    assert in_the_child == {what: expected for what, (_, _, expected) in answers.items()}
    here = {what: ask() for what, (ask, _, _) in answers.items()}
    assert here == {what: expected for what, (_, expected, _) in answers.items()}


def test_a_forked_child_has_no_true_copy(client: Client, url: str, name: str) -> None:
    """A cached value, and a cached tree, are kept true by the parent's loop alone."""
    path = f"/tree-{name}"
    client.create(path, b"old")
    value = CachedValue(client, name)
    value.set(b"old")
    while value.peek() is None:  # a writer that has just written is about to go
        value.get()
    with TreeCache(client, path) as cache:
        begun = threading.Event()
        partitions = Partitioner(client, name, 1)
        thread = threading.Thread(
            target=partitions.run, args=[lambda owned: (begun.set(), owned.stopping.wait())]
        )
        thread.start()
        assert begun.wait(patient(10))
        answers: dict[str, Callable[[], Any]] = {
            "peek": value.peek,
            "get": value.get,
            "cache.get": lambda: cache.get(path) is not None,
            "cache.children": lambda: cache.children(path),
            "cache.walk": lambda: len(cache.walk()),
            "cache.as_of": lambda: cache.as_of.is_stale,
            "owned": lambda: partitions.owned,
        }

        found = in_child(answers)

        partitions.stop()
        thread.join(patient(10))
        assert value.peek() == b"old"
        assert cache.get(path) is not None
    assert found == {
        "peek": None,
        "owned": [],
        **dict.fromkeys(set(answers) - {"peek", "owned"}, "ClientClosedError"),
    }


def test_a_loss_in_the_child_says_whose_it_is_and_costs_the_parent_nothing(
    client: Client, name: str
) -> None:
    """The reverse: what the child finds lost is held in the parent, and its own to give back."""
    lost_here = threading.Event()
    with Lock(client, name) as grant:
        grant.on_lost(lost_here.set)

        def called_back() -> bool:
            called = threading.Event()
            grant.on_lost(called.set)
            return called.is_set()

        def leave() -> str:
            try:
                grant.check()
            except CoordinatorError as error:
                return error.message
            return ""

        found = in_child({"called back": called_back, "why": leave, "get": lambda: client.get("/")})

        assert found["called back"] is True
        assert f"belongs to process {os.getpid()}" in found["why"]
        assert "must connect again" in found["why"]
        assert grant.verify() > 0
        assert not lost_here.is_set()


def test_the_child_of_an_event_loop_cannot_speak_for_its_parent(url: str, name: str) -> None:
    """Its copies of the connections are the parent's: not a byte is sent on them, nor an end."""

    async def scene() -> None:
        async with connect(url, session_timeout=5) as client:
            lock = Lock(client, name)
            grant = await lock.acquire()
            value = CachedValue(client, name)
            await value.set(b"old")
            while value.peek() is None:
                await value.get()

            def run(make: Callable[[], Any]) -> Callable[[], Any]:
                async def steps() -> Any:
                    return await make()

                def ask() -> Any:
                    asyncio._set_running_loop(None)
                    return asyncio.run(steps())

                return ask

            found = in_child(
                {
                    "is_lost": lambda: grant.is_lost,
                    "peek": value.peek,
                    "get": run(lambda: client.get("/")),
                    "create": run(lambda: client.create(f"/{name}")),
                    "acquire": run(lambda: Lock(client, f"{name}-2").acquire()),
                    "watch": run(lambda: client.watch("/").open()),
                    "release": run(lock.release),
                    "close": run(client.close),
                }
            )

            assert found == {
                "is_lost": True,
                "peek": None,
                **dict.fromkeys(("get", "create", "acquire", "watch"), "ClientClosedError"),
                "release": False,
                "close": None,
            }
            assert await grant.verify() > 0
            assert await client.exists(f"/{name}") is None

    asyncio.run(scene())
