"""A program's own function that blocks, while the client calls it: what else is held stays held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import Client
from coordinator.client.running import callbacks
from coordinator.errors import BadArgumentsError
from coordinator.recipes import Configuration, Grant, Jobs, Lock, MultiLock, Revoker, TreeLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.client.test_sync_client import eventually
from tests.patience import patient
from tests.recipes.callable_kinds import Ran, async_kinds, never_kinds


@pytest.fixture(params=["http", "stream"], autouse=True)
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_TRANSPORT", request.param)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


class Blocking:
    """A callback that blocks until the test lets it go."""

    def __init__(self, client: Client) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.read = ""
        self._client = client

    def __call__(self, *_: Any) -> None:
        self.has_begun.set()
        self.may_end.wait(patient(30))
        self.read = self._client.get("/").path  # it may use the client


def _revoked(client: Client, other: Client, name: str, blocking: Blocking) -> None:
    Lock(client, name).acquire().on_lost(blocking)
    other.revoke(name, by="ops", reason="a test")


def _asked(client: Client, other: Client, name: str, blocking: Blocking) -> None:
    Lock(client, name).acquire().on_asked(blocking)
    Revoker(other, name).ask("a test", within=0.1)


def _queued(kind: Any) -> Callable[[Client, Client, str, Blocking], None]:
    def queue(client: Client, other: Client, name: str, blocking: Blocking) -> None:
        held = Lock(other, name).acquire()
        waiting = kind(client, name, timeout=patient(30))
        threading.Thread(target=waiting.acquire, kwargs={"on_position": blocking}).start()
        assert blocking.has_begun.wait(patient(10))
        held.release()

    return queue


def _checked(client: Client, other: Client, name: str, blocking: Blocking) -> None:
    configuration = Configuration(client, name, check=blocking)
    threading.Thread(target=configuration.change, args=[{"a": 1}]).start()


def _listed(client: Client, other: Client, name: str, blocking: Blocking) -> None:
    other.create(
        "/schedules/jobs/unreadable-", b"", mode="persistent_sequential", parents="persistent"
    )
    threading.Thread(target=Jobs(client).list, args=[blocking]).start()


BLOCKED: dict[str, Callable[[Client, Client, str, Blocking], None]] = {
    "on_lost": _revoked,
    "on_asked": _asked,
    "on_position of a Lock": _queued(Lock),
    "on_position of a MultiLock": _queued(MultiLock),
    "on_position of a TreeLock": _queued(TreeLock),
    "a configuration's check": _checked,
    "on_unreadable": _listed,
}


@pytest.mark.parametrize("what", BLOCKED)
def test_a_callback_that_blocks_costs_no_heartbeat(url: str, what: str, request: Any) -> None:
    """The session is renewed while it blocks, others are called, and it may wait for the client."""
    name = request.node.name.replace("/", "-")
    with connect(url, session_timeout=2) as client, connect(url) as other:
        kept = Lock(client, f"{name}-kept").acquire()
        other_lost = Lock(client, f"{name}-other").acquire()
        also = threading.Event()
        other_lost.on_lost(also.set)
        blocking = Blocking(client)
        try:
            BLOCKED[what](client, other, name, blocking)
            assert blocking.has_begun.wait(patient(10))
            assert _is_renewed(kept)
            other.revoke(f"{name}-other", by="ops", reason="a test")
            assert also.wait(patient(10))
            assert kept.verify() > 0
        finally:
            blocking.may_end.set()
        assert eventually(lambda: blocking.read == "/", patient(10))


def _is_renewed(grant: Grant[Client]) -> bool:
    """Whether a heartbeat is acknowledged from now on."""
    least = grant.remaining_safe_ms()

    def grows() -> bool:
        nonlocal least
        now, least = grant.remaining_safe_ms(), min(least, grant.remaining_safe_ms())
        return now > least

    return eventually(grows, patient(10))


def test_a_session_listener_that_blocks_costs_no_heartbeat(url: str) -> None:
    """Of the session's own state: it is called in order, one change after the other."""
    with connect(url, session_timeout=2) as client:
        session, blocking = client.session(), Blocking(client)
        seen: list[str] = []
        session.on_state(blocking)
        session.on_state(lambda state: seen.append(state.value))
        client.call(_announced(session))
        assert blocking.has_begun.wait(patient(10))
        assert eventually(lambda: seen == ["suspended", "connected"], patient(10))
        kept = Lock(client, "kept-of-session").acquire()
        assert _is_renewed(kept)
        blocking.may_end.set()


async def _announced(session: Any) -> None:
    for state in ("suspended", "connected"):
        session._turn(type(session.state)(state))


def test_so_many_callbacks_run_at_once_and_all_of_them_run(url: str) -> None:
    """The threads are bounded; more callbacks wait for these, and none is lost."""
    with connect(url) as client, connect(url) as other:
        grants = [Lock(client, f"many-{n}").acquire() for n in range(callbacks.THREADS_MAX + 4)]
        blocking, ended = Blocking(client), threading.Semaphore(0)
        for grant in grants:
            grant.on_lost(lambda: (blocking(), ended.release()))
        for grant in grants:
            other.revoke(grant.lock, by="ops", reason="a test")
        assert eventually(lambda: all(each.is_lost for each in grants), patient(30))
        callers = [each for each in threading.enumerate() if each.name == "coordinator callback"]
        assert 1 <= len(callers) <= callbacks.THREADS_MAX
        blocking.may_end.set()
        for _ in grants:
            assert ended.acquire(timeout=patient(10))


def test_the_end_of_a_client_waits_a_while_for_its_callbacks(url: str) -> None:
    """What says that it is the end has said so when ``close`` returns."""
    called: list[str] = []
    with connect(url) as client:
        Lock(client, "at-the-end").acquire().on_lost(lambda: called.append("lost"))
    assert called == ["lost"]


@in_memory
async def test_a_coroutine_that_waits_costs_an_asyncio_client_nothing(world: MemoryCluster) -> None:
    """It runs as a task of the loop; the other callbacks of the same loss are called."""
    may_end, seen = asyncio.Event(), []

    async def long() -> None:
        seen.append("begun")
        await may_end.wait()
        seen.append("ended")

    async with world.client(session_timeout=3) as client, world.client() as operator:
        taken, kept = [await Lock(client, name).acquire() for name in ("a", "b")]
        taken.on_lost(long)
        taken.on_lost(lambda: seen.append("the other"))
        await operator.revoke("a", by="ops", reason="a test")
        await asyncio.sleep(60)
        assert sorted(seen) == ["begun", "the other"]
        kept.check()
        may_end.set()
        await asyncio.sleep(1)
        assert seen[-1] == "ended"


@in_memory
async def test_a_position_callback_that_hangs_ends_with_the_wait(world: MemoryCluster) -> None:
    """It is waited for, and not for longer than the turn is."""
    async with world.client() as holder, world.client() as waiter, Lock(holder, "daily"):

        async def hang(position: int) -> None:
            await asyncio.Event().wait()

        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await Lock(waiter, "daily", timeout=5).acquire(on_position=hang)
        assert asyncio.get_running_loop().time() - began < 10


@pytest.mark.parametrize("kind", never_kinds(Ran()) | async_kinds(Ran()))
def test_a_callback_that_could_not_be_called_is_refused(url: str, kind: str) -> None:
    """When it is registered, and not in the log when the lock is lost."""
    callback = (never_kinds(Ran()) | async_kinds(Ran()))[kind]
    with connect(url) as client, Lock(client, f"refused-{kind}") as grant:
        for register in (
            grant.on_lost,
            grant.on_asked,
            client.session().on_state,
            lambda given: Configuration(client, "refused", check=given),
            lambda given: Lock(client, "refused").acquire(on_position=given),
            lambda given: Jobs(client).list(given),
        ):
            with pytest.raises(BadArgumentsError, match=r"expected a (plain )?function, found"):
                register(callback)
        assert client.lock("refused").holder is None
