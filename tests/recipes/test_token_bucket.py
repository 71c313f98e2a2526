"""A shared rate: what is taken in one request, what comes back, and clocks that jump."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator.client import connect
from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.recipes import TokenBucket
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.client.virtual_time import LoopClock


@in_memory
async def test_the_burst_is_there_at_once_and_the_rate_after_it(world: MemoryCluster) -> None:
    """Ten at once, then five a second, however many clients ask."""
    async with world.client() as one, world.client() as other:
        buckets = [TokenBucket(each, "mail", rate=5, burst=10) for each in (one, other)]
        taken = 0
        for _ in range(100):  # ten seconds, and each tries ten times a second
            for bucket in buckets:
                taken += await bucket.take()
            await asyncio.sleep(0.1)

        assert 10 + 48 <= taken <= 10 + 50


@in_memory
async def test_one_request_looks_and_takes(world: MemoryCluster) -> None:
    """Nobody else came between: one request each; empty: none at all."""
    network = world.network()
    async with world.client(network) as client:
        bucket = TokenBucket(client, "mail", rate=1, burst=3)
        assert await bucket.take()  # makes it
        before = len(network.sent)

        assert await bucket.take()
        assert await bucket.take()
        assert len(network.sent) - before == 2
        assert not await bucket.take()
        assert len(network.sent) - before == 2


@in_memory
async def test_it_waits_when_asked_to_and_only_if_that_helps(world: MemoryCluster) -> None:
    """The deadline is one for all; too short a one is told at once."""
    async with world.client() as client:
        bucket = TokenBucket(client, "mail", rate=2, burst=2)
        assert await bucket.take(2)
        began = asyncio.get_running_loop().time()

        assert not await bucket.take(2, timeout=0.9)
        assert asyncio.get_running_loop().time() - began < 0.1
        assert await bucket.take(2, timeout=5)
        assert 1.0 <= asyncio.get_running_loop().time() - began <= 1.2


@in_memory
async def test_everybody_at_once_gets_exactly_what_is_there(world: MemoryCluster) -> None:
    """Fifty clients, twenty permits."""
    clients = [world.client() for _ in range(50)]
    opened = [await each.__aenter__() for each in clients]
    buckets = [TokenBucket(each, "stock", rate=0.001, burst=20) for each in opened]

    taken = await asyncio.gather(*(each.take() for each in buckets))

    assert sum(taken) == 20
    assert await buckets[0].available() == 0
    for each in clients:
        await each.__aexit__(None, None, None)


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
@in_memory
async def test_a_clock_that_jumps_costs_one_burst_at_most(
    world: MemoryCluster, jump_ms: int
) -> None:
    """An hour forward or back: never more than a burst too many, and the others go on."""
    crazy = LoopClock(asyncio.get_running_loop())
    async with world.client(clock=crazy) as one, world.client() as other:
        wrong = TokenBucket(one, "mail", rate=2, burst=4)
        right = TokenBucket(other, "mail", rate=2, burst=4)
        taken = 0
        for second in range(20):
            if second == 10:
                crazy.paused_ms += jump_ms
            for _ in range(4):
                taken += await wrong.take()
                taken += await right.take()
            await asyncio.sleep(1)

        assert taken <= 4 + 2 * 20 + 4 * 2
        assert taken >= 2 * 18


@in_memory
async def test_arguments_and_foreign_znodes_are_refused(world: MemoryCluster) -> None:
    """What was expected and what was found."""
    async with world.client() as client:
        for rate, burst, said in (
            (0, 1, "rate: expected"),
            (float("nan"), 1, "rate: expected"),
            (1, 0, "burst: expected"),
            (1, True, "burst: expected"),
        ):
            with pytest.raises(BadArgumentsError, match=said):
                TokenBucket(client, "mail", rate=rate, burst=burst)
        with pytest.raises(BadArgumentsError, match="name: expected"):
            TokenBucket(client, "", rate=1, burst=1)
        bucket = TokenBucket(client, "mail", rate=1, burst=5)
        for count in (0, 6, True):
            with pytest.raises(BadArgumentsError, match="count: expected 1 to 5"):
                await bucket.take(count)
        await client.create("/buckets/mail", b"other", parents="persistent")
        with pytest.raises(BadArgumentsError, match="expected a TokenBucket"):
            await bucket.take()


@in_memory
async def test_a_bucket_that_was_deleted_is_made_anew(world: MemoryCluster) -> None:
    """The znode of another incarnation is not mistaken for the one that was known."""
    async with world.client() as client:
        bucket = TokenBucket(client, "mail", rate=0.001, burst=2)
        assert await bucket.take()
        await client.delete("/buckets/mail")
        await client.create("/buckets/mail", b'{"milli": 0, "at_ms": 1800000000000}')

        assert not await bucket.take()


def test_plain_callers_take_too() -> None:
    """With a sync client."""
    with serving() as url, connect(url) as client:
        bucket = TokenBucket(client, "mail", rate=0.001, burst=2)

        assert [bucket.take() for _ in range(3)] == [True, True, False]
        assert bucket.available() == 0


# --- chunks


@in_memory
async def test_a_chunk_is_one_request_and_what_is_left_is_returned(world: MemoryCluster) -> None:
    """Two hundred permits in two requests; the rest is there again at once."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()
        bucket = TokenBucket(client, "mail", rate=0.001, burst=1_000)
        async with bucket.chunk(100) as permits:
            before = len(network.sent)
            for _ in range(150):
                assert await permits.take()
            assert permits.left == 50
            assert len(network.sent) - before == 2
            assert await bucket.available() == 800
        assert permits.left == 0
        assert await bucket.available() == 850
        assert await permits.give_back() == 0


@in_memory
async def test_what_is_returned_to_a_full_bucket_makes_no_larger_burst(
    world: MemoryCluster,
) -> None:
    """It has refilled while the chunk was out."""
    async with world.client() as client:
        bucket = TokenBucket(client, "mail", rate=100, burst=4)
        async with bucket.chunk(4) as permits:
            assert await permits.take()
            await asyncio.sleep(1)

        assert [await bucket.take(4), await bucket.take(1)] == [True, False]


@in_memory
async def test_a_scarce_rate_is_shared_by_chunks(world: MemoryCluster) -> None:
    """Without a whole chunk, what is asked for is taken; nobody exceeds the rate."""
    async with world.client() as one, world.client() as other:
        chunks = [TokenBucket(each, "mail", rate=5, burst=20).chunk(10) for each in (one, other)]
        taken = [0, 0]
        for _ in range(100):  # ten seconds
            for number, permits in enumerate(chunks):
                taken[number] += await permits.take()
            await asyncio.sleep(0.1)

        assert 20 + 45 <= sum(taken) <= 20 + 50
        assert min(taken) >= 10
        assert not await chunks[0].take(10, timeout=0)
        assert await chunks[0].take(10, timeout=5)


@in_memory
async def test_permits_end_with_the_session(world: MemoryCluster) -> None:
    """Who is cut off spends none after its lease; what it has is never spent later."""
    network = world.network()
    async with world.client(network, session_timeout=4, timeout=1) as client:
        bucket = TokenBucket(client, "mail", rate=1, burst=100)
        permits = bucket.chunk(50)
        assert await permits.take(timeout=1)
        network.is_cut = True
        assert await permits.take()
        await asyncio.sleep(5)
        assert permits.left == 0
        with pytest.raises(CoordinatorError):
            await permits.take()
        network.is_cut = False
        await asyncio.sleep(5)
        assert await permits.take(timeout=5)
        assert permits.left == 49
        assert await bucket.available() <= 20  # a whole chunk was taken, after a whole one


@in_memory
async def test_many_tasks_share_one_chunk(world: MemoryCluster) -> None:
    """One fetches, the others wait for it; each permit is spent once."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()
        permits = TokenBucket(client, "mail", rate=0.001, burst=100).chunk(40)
        before = len(network.sent)
        done = await asyncio.gather(*(permits.take() for _ in range(120)))

        assert sum(done) == 100
        assert len(network.sent) - before < 30
        with pytest.raises(BadArgumentsError, match="size: expected 1 to 100"):
            TokenBucket(client, "mail", rate=1, burst=100).chunk(101)
        with pytest.raises(BadArgumentsError, match="count: expected 1 to 40"):
            await permits.take(41)


def test_threads_share_one_chunk() -> None:
    """What is at hand is spent in the caller's thread."""
    with (
        serving() as url,
        connect(url) as client,
        TokenBucket(client, "mail", rate=0.001, burst=300).chunk(100) as permits,
    ):
        spent: list[int] = []

        def spend(count: int) -> None:
            for _ in range(50):
                spent.append(count * permits.take(count))

        threads = [threading.Thread(target=spend, args=[1 + each % 3]) for each in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sum(spent) + permits.left == 300
        assert sum(spent) >= 298


@in_memory
async def test_who_has_no_time_does_not_wait_for_who_has(world: MemoryCluster) -> None:
    """One task of a chunk waits for permits to come back; the others are answered in theirs."""
    async with world.client() as client:
        bucket = TokenBucket(client, "mail", rate=0.1, burst=5)
        permits = bucket.chunk(2)
        assert await bucket.take(5)
        waiting = asyncio.create_task(permits.take(timeout=60))
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()

        assert not await permits.take(timeout=0)
        assert not await permits.take(timeout=3)
        assert await permits.give_back() == 0

        assert asyncio.get_running_loop().time() - began < 0.1
        assert await waiting
        assert asyncio.get_running_loop().time() - began < 11
