"""A shared rate: what is taken in one request, what comes back, and clocks that jump."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import connect
from coordinator.errors import BadArgumentsError
from recipes import TokenBucket
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
            with pytest.raises(BadArgumentsError, match="count: expected an integer from 1 to 5"):
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
