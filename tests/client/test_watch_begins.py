"""When a watch begins: with the call where calls wait, with ``async with`` or await elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from coordinator import RetryPolicy, connect
from coordinator.client import Client
from coordinator.errors import BadArgumentsError, UnavailableError
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url) as client:
        yield client


def test_a_watch_begins_with_the_call(client: Client) -> None:
    """What this client does next is told, with ``with`` and without."""
    client.create("/begins")
    watching = client.watch("/begins")
    written = client.set("/begins", b"1")

    change = next(iter(watching))

    assert change.zxid == written.stat.mzxid
    watching.close()


def test_entering_what_was_read_already_does_not_wait(client: Client) -> None:
    """``with`` around a watch that was begun before only ends it."""
    client.create("/entered")
    watching = client.watch("/entered")
    client.set("/entered", b"1")
    assert next(watching).events
    second = client.set("/entered", b"2")

    with watching as same:
        assert next(iter(same)).zxid == second.stat.mzxid


def test_what_is_wrong_with_a_watch_is_said_at_once(client: Client) -> None:
    """And not with its first change."""
    with pytest.raises(BadArgumentsError):
        client.watch("/no/../path")


def test_a_watch_without_a_member_fails_in_time() -> None:
    """It does not look for one without end; once begun it does."""
    client = connect("http://127.0.0.1:9", timeout=0.3, retry=RetryPolicy(base_ms=5, cap_ms=20))
    for bound in (None, 0.1):
        with pytest.raises(UnavailableError):
            client.watch("/", contact_timeout=bound)
    client.close()


def test_another_thread_is_watched_from_the_call_on(client: Client) -> None:
    """A watch handed to a thread misses nothing that comes before the thread runs."""
    client.create("/handed")
    notices: list[int] = []
    watching = client.watch("/handed")
    reader = threading.Thread(target=lambda: notices.append(next(watching).zxid))
    written = client.set("/handed", b"1")
    reader.start()
    reader.join(10)

    assert notices == [written.stat.mzxid]
    watching.close()


@in_memory
async def test_awaiting_a_watch_begins_it(world: MemoryCluster) -> None:
    """``await client.watch(...)`` returns when it is watching."""
    async with world.client() as client:
        await client.create("/a")
        changes = await client.watch("/a")
        written = await client.set("/a", b"1")

        assert (await anext(changes)).zxid == written.stat.mzxid
        await changes.close()


@in_memory
async def test_a_watch_that_would_miss_a_write_says_so(world: MemoryCluster) -> None:
    """It would wait for ever for what has happened; the error names the lines that do not."""
    async with world.client() as client:
        await client.create("/a")
        changes = client.watch("/a")
        await client.set("/a", b"1")

        with pytest.raises(BadArgumentsError, match=r"await client\.watch"):
            await anext(changes)

        resumed = client.watch("/a", from_zxid=1)
        await client.set("/a", b"2")
        assert (await anext(resumed)).zxid == 2  # nothing is missed, wherever it begins
        await resumed.close()


@in_memory
async def test_an_untouched_watch_needs_nothing(world: MemoryCluster) -> None:
    """``async for`` over it begins it, as before."""
    async with world.client() as client, world.client() as other:
        await client.create("/a")

        async def tell() -> None:
            await other.set("/a", b"1")

        loop = client.loop
        loop.call_later(1, lambda: loop.create_task(tell()))
        async for change in client.watch("/a"):
            assert change.zxid == 2
            break
