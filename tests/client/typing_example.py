"""The public API as a type checker sees it. Never run: mypy --strict reads it in the tests.

What must be refused carries an ignore, and an unused ignore is an error too.
"""

from __future__ import annotations

from typing import assert_type

import coordinator
from coordinator import AsyncClient, Client, connect
from coordinator.client import Change, Elected, GrantRecord, Session, Znode
from coordinator.recipes import (
    FOREVER,
    Election,
    Grant,
    Lock,
    MultiLock,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
    exclusive,
    execute_exclusive,
)


def sync_face() -> None:
    with connect("http://127.0.0.1:7071", timeout=5) as client:
        assert_type(client, Client)
        assert_type(client.get("/a"), Znode)
        assert_type(client.session(), Session)
        client.create("/a", b"x", mode="ephemeral", parents="container")
        client.create("/a", mode="temporary")  # type: ignore[arg-type]
        client.get(42)  # type: ignore[arg-type]
        for change in client.watch("/a", kind="subtree"):
            assert_type(change, Change)

        with Lock(client, "daily", timeout=10) as grant:
            assert_type(grant, Grant[Client])
            assert_type(grant.fencing_token, int)
            assert_type(grant.verify(), int)
        lock = Lock(client, "daily", timeout=FOREVER)
        assert_type(lock, Lock[Client])
        assert_type(lock.acquire(blocking=False), Grant[Client])
        assert_type(lock.try_acquire(timeout=1), Grant[Client] | None)
        assert_type(lock.release(), bool)
        Lock(client, "daily", timeout=None)  # type: ignore[arg-type]
        Lock(client, "daily", when_unsure="pray")  # type: ignore[arg-type]
        client.set("/a", b"x", if_held=lock.acquire())
        client.set("/a", b"x", if_held="daily")  # type: ignore[arg-type]
        with ReentrantLock(client, "daily", timeout=1, owner="me") as again:
            assert_type(again, Grant[Client])
        ReentrantLock(client, "daily", timeot=1)  # type: ignore[call-arg]
        with RWLock(client, "daily").read(timeout=0) as reading:
            assert_type(reading.downgrade(), None)
            assert_type(reading.note(b"half"), None)
        assert_type(RWLock(client, "daily").write(), Lock[Client])
        semaphore = Semaphore(client, "daily", 3, max_hold=60)
        assert_type(semaphore.resize(5), int)
        with MultiLock(client, "a", 7) as several:
            assert_type(several, tuple[Grant[Client], ...])
            client.set("/a", b"x", if_held=several)
        for record in client.grants("daily", how="forced"):
            assert_type(record, GrantRecord)
        with TreeLock(client, "daily") as tree_grant:
            assert_type(tree_grant.release(), bool)

        with Election(client, "service", value=b"me") as leadership:
            assert_type(leadership.epoch, int)
        for elected in Election(client, "service").observe():
            assert_type(elected, Elected)

        def task(grant: Grant[Client]) -> str:
            return str(grant.fencing_token)

        assert_type(execute_exclusive(client, "daily", task), str)
        assert_type(execute_exclusive(client, "daily", task, max_hold=60), str)


def without_with(url: str) -> None:
    client = connect(url)
    assert_type(client.get("/a"), Znode)
    with Lock(client, "daily") as grant:
        assert_type(grant.verify(), int)
    client.gett("/a")  # type: ignore[attr-defined]
    client.lock("daily").acquire()  # type: ignore[attr-defined]
    connect(hosts=url)  # type: ignore[call-arg]
    client.create("/a", ephemeral=True)  # type: ignore[call-arg]
    with coordinator.Lock(client, "daily") as exported:
        assert_type(exported.fencing_token, int)
    assert_type(coordinator.__version__, str)


async def by_await(url: str) -> None:
    client = await connect(url)
    assert_type(client, AsyncClient)
    assert_type((await client.lock("daily")).zxid, int)


def bare(grant: Grant, lock: Lock) -> int:
    lock.release()
    return grant.fencing_token


async def async_face() -> None:
    async with connect() as client:
        assert_type(client, AsyncClient)
        assert_type(await client.get("/a"), Znode)
        async for change in client.watch("/a"):
            assert_type(change, Change)

        assert_type(await Semaphore(client, "daily", 3).resize(5), int)
        async with ReentrantLock(client, "daily") as counted:
            assert_type(await counted.note(b"x"), None)
        async with Lock(client, "daily") as grant:
            assert_type(grant, Grant[AsyncClient])
            assert_type(await grant.verify(), int)
        lock = Lock(client, "daily")
        assert_type(await lock.acquire(timeout=3), Grant[AsyncClient])
        assert_type(await lock.try_acquire(), Grant[AsyncClient] | None)
        assert_type(await lock.release(), bool)
        lock.release()  # type: ignore[unused-coroutine]
        with lock:  # type: ignore[misc]
            pass

        async with Election(client, "service") as leadership:
            assert_type(leadership.epoch, int)
        async for elected in Election(client, "service").observe():
            assert_type(elected, Elected)

        async def task(grant: Grant[AsyncClient]) -> str:
            return str(grant.fencing_token)

        assert_type(await execute_exclusive(client, "daily", task), str)


@exclusive("daily", timeout=0)
def decorated(grant: Grant[Client], day: str, *, copies: int = 1) -> int:
    return grant.fencing_token


@exclusive("daily")
def decorated_bare(grant: Grant, day: str) -> int:
    return grant.fencing_token


@exclusive("daily")
async def decorated_async(grant: Grant[AsyncClient], day: str) -> int:
    return grant.fencing_token


def call_decorated() -> None:
    assert_type(decorated("monday", copies=2), int)
    decorated(7)  # type: ignore[arg-type]
    assert_type(decorated_bare("monday"), int)


async def call_decorated_async() -> None:
    assert_type(await decorated_async("monday"), int)
