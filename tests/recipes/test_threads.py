"""Locks of threads: what their waits promise, and what is left of an interrupted one."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import Client
from coordinator.client.calling.transport import Request
from coordinator.client.loop_thread import LoopThread
from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import (
    ClientClosedError,
    ConnectionLostError,
    DeadlockError,
    LockTimeoutError,
    NoNodeError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes import (
    Election,
    Lock,
    MultiLock,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
    WorkQueue,
)
from tests.client.server_thread import serving
from tests.patience import patient

CONTENDERS: dict[str, Callable[[Client, str], Any]] = {
    "Lock": Lock,
    "Reader": lambda client, name: RWLock(client, name).read(),
    "Writer": lambda client, name: RWLock(client, name).write(),
    "Semaphore": lambda client, name: Semaphore(client, name, 1),
    "MultiLock": lambda client, name: MultiLock(client, f"{name}-also", name),
    "Election": Election,
    "ReentrantLock": ReentrantLock,
    "Bounded": lambda client, name: Lock(client, name, max_hold=60),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url, transport="stream") as client:
        with Lock(client, "first"):
            pass  # its session is open
        yield client


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def done(work: Future[Any]) -> Any:
    return work.result(patient(20))


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + patient(10)
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come to that"
        time.sleep(0.005)


def queued(client: Client, name: str, room: str = "locks") -> int:
    """Return how many hold or wait."""
    try:
        return len(client.children(f"/{room}/{name}").names)
    except NoNodeError:
        return 0


@pytest.mark.parametrize("kind", [*CONTENDERS, "TreeLock"])
def test_a_thread_acquires_and_releases_over_and_over(
    client: Client, threads: ThreadPoolExecutor, kind: str
) -> None:
    """By each kind of lock; nothing of it is left."""
    contender = {**CONTENDERS, "TreeLock": TreeLock}[kind](client, kind)

    def cycle() -> int:
        with contender as held:
            grant = held[0] if isinstance(held, tuple) else held
            grant.check()
            token: int = grant.fencing_token
            return token

    tokens = [done(threads.submit(cycle)) for _ in range(5)]

    assert tokens == sorted(set(tokens))
    assert queued(client, kind, "elections" if kind == "Election" else "locks") == 0


def test_threads_take_turns(client: Client, threads: ThreadPoolExecutor) -> None:
    """In the order of the tokens, one at a time."""
    holding: list[int] = []
    tokens: list[int] = []

    def work() -> None:
        lock = Lock(client, "turns")
        for _ in range(10):
            with lock as grant:
                holding.append(1)
                tokens.append(grant.fencing_token)
                assert len(holding) == 1
                holding.pop()

    for each in [threads.submit(work) for _ in range(4)]:
        done(each)

    assert tokens == sorted(set(tokens))
    assert len(tokens) == 40


def test_a_body_whose_client_was_closed_raises_its_own_exception(url: str) -> None:
    """As a child does that was forked in the body and exits: its exit code stays what it was."""
    with connect(url) as client:
        WorkQueue(client, "closed").put(b"")
        taken = WorkQueue(client, "closed").take()
        assert taken is not None

        def body() -> None:
            with Lock(client, "closed"), taken, client.watch("/"):
                client.close()
                sys.exit(0)

        with pytest.raises(SystemExit) as raised:
            body()

    notes = raised.value.__notes__
    assert len(notes) == 2
    assert all("not given back here: this client is closed" in each for each in notes)


def close(client: Client, _: Client) -> None:
    client.close()


def end_session(client: Client, other: Client) -> None:
    other.call(_delete_session(other, client.session().session_id))


async def _delete_session(client: Client, session_id: str) -> None:
    delivery = client.core.delivery
    endpoint = delivery.endpoints.current
    await delivery.send(endpoint, Request("DELETE", f"/v1/sessions/{session_id}"), 5_000)


def break_connections(client: Client, _: Client) -> None:
    """The wait goes on over another one."""

    async def break_all() -> None:
        transport = client.core.delivery._transport
        assert isinstance(transport, StreamTransport)
        for each in [each for own in transport._connections.values() for each in own]:
            each.close("a test breaks it")

    client.call(break_all())


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (None, LockTimeoutError),
        (close, SessionExpiredError | ClientClosedError),  # whichever the thread learns first
        (end_session, SessionExpiredError),
    ],
)
def test_a_thread_that_waits_is_woken_by_what_ends_its_wait(
    url: str, client: Client, threads: ThreadPoolExecutor, happens: Any, error: Any
) -> None:
    """Its deadline, the end of its client, the end of its session; nothing of it is left."""
    name = f"wakes-{getattr(happens, '__name__', 'nothing')}"
    with connect(url) as other:
        held = Lock(other, name)
        held.acquire()
        timeout = 0.2 if happens is None else 60
        waiting = threads.submit(Lock(client, name, timeout=timeout).acquire)
        if happens is not None:
            until(lambda: queued(other, name) == 2)
            happens(client, other)

        assert isinstance(waiting.exception(patient(20)), error)
        until(lambda: queued(other, name) == 1)
        held.release()


def test_a_thread_that_waits_keeps_its_place_when_its_connection_breaks(
    url: str, client: Client, threads: ThreadPoolExecutor
) -> None:
    """It asks again, over another one."""
    with connect(url) as other:
        held = Lock(other, "broken")
        held.acquire()
        waiting = threads.submit(Lock(client, "broken", timeout=60).acquire)
        until(lambda: queued(other, "broken") == 2)
        first = other.children("/locks/broken").names
        break_connections(client, other)
        assert other.children("/locks/broken").names == first
        held.release()

        assert done(waiting).path.rpartition("/")[2] in first


def test_what_an_attempt_may_have_left_is_withdrawn(
    client: Client, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer never arrives; it is certain afterwards that nothing is queued."""
    stream = StreamTransport.stream

    @asynccontextmanager
    async def unheard(
        self: StreamTransport, endpoint: str, request: Request, timeout_ms: int
    ) -> AsyncIterator[None]:
        async with stream(self, endpoint, request, timeout_ms):
            pass
        raise ConnectionLostError("a test lost the answer")
        yield

    monkeypatch.setattr(StreamTransport, "stream", unheard)
    waiting = threads.submit(Lock(client, "unheard", timeout=0.5).acquire)

    assert isinstance(waiting.exception(patient(20)), UnavailableError)
    assert queued(client, "unheard") == 0


def test_one_object_is_one_contender_for_threads_too(
    client: Client, threads: ThreadPoolExecutor
) -> None:
    """Of many that acquire it at once one succeeds, and the others are refused."""
    lock = Lock(client, "one-object")
    gate = threading.Barrier(4)

    def acquire() -> Any:
        gate.wait(patient(10))
        try:
            return lock.acquire()
        except DeadlockError:
            return None

    for _ in range(20):
        found = [done(each) for each in [threads.submit(acquire) for _ in range(4)]]
        assert sum(each is not None for each in found) == 1
        assert lock.release() is True


def test_threads_that_release_at_once_send_one_release(
    client: Client, threads: ThreadPoolExecutor
) -> None:
    """Neither takes the other's for a loss."""
    gate = threading.Barrier(2)
    losses: list[str] = []

    def release(grant: Any) -> bool:
        gate.wait(patient(10))
        released: bool = grant.release()
        return released

    for _ in range(20):
        grant = Lock(client, "released", owner="").acquire()
        grant.on_lost(lambda: losses.append("lost"))
        found = [done(each) for each in [threads.submit(release, grant) for _ in range(2)]]
        assert any(found)
        assert grant.is_released
    assert losses == []


# --- the main thread, which Ctrl-C interrupts


def interrupt() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


@pytest.fixture
def is_interrupted(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the wait of the main thread was interrupted."""
    is_interrupted, clean_up = threading.Event(), LoopThread._give_up

    def noted(self: LoopThread, *rest: Any) -> None:
        is_interrupted.set()
        clean_up(self, *rest)

    monkeypatch.setattr(LoopThread, "_give_up", noted)
    return is_interrupted


def enter(contender: Any) -> None:
    with contender:
        raise AssertionError("the body ran")


def acquire(contender: Any) -> None:
    (contender.campaign if isinstance(contender, Election) else contender.acquire)()


@pytest.mark.parametrize("takes", [enter, acquire])
@pytest.mark.parametrize("kind", CONTENDERS)
def test_what_comes_with_an_interrupt_is_given_back(
    client: Client,
    kind: str,
    takes: Callable[[Any], None],
    is_interrupted: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call has its result, and has not returned it; the object is free afterwards."""
    contender = CONTENDERS[kind](client, f"{kind}-{takes.__name__}")
    room = "elections" if kind == "Election" else "locks"
    ended = LoopThread._ended

    def interrupted(self: LoopThread, *rest: Any) -> None:
        monkeypatch.setattr(LoopThread, "_ended", ended)
        interrupt()
        assert is_interrupted.wait(patient(10))
        ended(self, *rest)

    monkeypatch.setattr(LoopThread, "_ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        takes(contender)

    assert queued(client, f"{kind}-{takes.__name__}", room) == 0
    with pytest.raises(AssertionError, match="the body ran"):
        enter(contender)


@pytest.mark.parametrize("kind", CONTENDERS)
def test_an_interrupt_ends_the_wait_for_a_turn(url: str, client: Client, kind: str) -> None:
    """Wherever it waits; it leaves the queue."""
    name, room = f"turn-{kind}", "elections" if kind == "Election" else "locks"
    with connect(url) as other:
        acquire(CONTENDERS["Writer" if kind == "Reader" else kind](other, name))
        before = queued(other, name, room)

        def when_it_waits() -> None:
            until(lambda: queued(other, name, room) > before)
            interrupt()

        interrupting = threading.Thread(target=when_it_waits)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            acquire(CONTENDERS[kind](client, name))
        interrupting.join(patient(10))
        assert queued(other, name, room) == before


def cycles(lock: Lock[Client], timer: threading.Timer) -> None:
    timer.start()
    while True:
        lock.acquire()
        lock.release()


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupt_at_any_moment_leaves_nothing(url: str, client: Client, seed: int) -> None:
    """A program that acquires and releases, and gives back what it may hold when interrupted."""
    name, chance = f"any-{seed}", Random(seed)
    lock = Lock(client, name)
    with connect(url) as other:
        for _ in range(15):
            timer = threading.Timer(chance.uniform(0, 0.01), interrupt)
            with pytest.raises(KeyboardInterrupt):
                cycles(lock, timer)
            timer.join()
            lock.release()
            until(lambda: queued(other, name) == 0)


def leave(lock: Lock[Client], before: Callable[[], object]) -> None:
    with lock:
        before()


def test_an_interrupt_before_the_release_has_begun_does_not_prevent_it(
    client: Client, is_interrupted: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has been handed it, and hears of its cancellation next."""
    thread, lock = client._thread, Lock(client, "late")
    assert thread is not None
    start = thread._start

    def late(call: Any) -> None:
        monkeypatch.setattr(thread, "_start", start)
        interrupt()
        assert is_interrupted.wait(patient(10))
        start(call)

    with pytest.raises(KeyboardInterrupt):
        leave(lock, lambda: monkeypatch.setattr(thread, "_start", late))

    until(lambda: queued(client, "late") == 0)
    with lock:
        pass


def test_an_interrupt_before_a_call_was_handed_over_is_raised_soon(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for what nobody does; and what is held is released all the same."""
    assert client._thread is not None
    loop, lock = client._thread._loop, Lock(client, "not-given")

    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    def begins() -> None:
        monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)

    def acquire_once() -> None:
        begins()
        lock.acquire()

    for act in (acquire_once, lambda: leave(lock, begins)):
        began_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            act()
        assert time.monotonic() - began_s < patient(4.5)
        until(lambda: queued(client, "not-given") == 0)
