"""Values read without a request: never older than what was acknowledged before."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import AsyncClient, connect
from coordinator.errors import CoordinatorError, LockLostError, LockTimeoutError
from coordinator.recipes import CachedValue
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.client.virtual_time import LoopClock
from tests.recipes.storm import Life, Storm, left_below, storm


def test_threads_read_and_write() -> None:
    """With a sync client."""
    with serving() as url, connect(url) as client, connect(url) as other:
        here, there = CachedValue(client, "v"), CachedValue(other, "v", default=b"none")
        assert there.get() == b"none"
        token = here.set(b"1")
        assert there.get() == b"1"
        assert here.set(b"2") > token
        assert (here.get(), there.get()) == (b"2", b"2")
        there.forget()
        assert there.peek() is None


@in_memory
async def test_a_copy_costs_no_request(world: MemoryCluster) -> None:
    """Until a writer asks: then the copy is given up, and the next read sees what was written."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        here, there = CachedValue(client, "v"), CachedValue(other, "v")
        await there.set(b"1")
        await asyncio.sleep(1)
        assert await here.get() == b"1"
        before = len(network.sent)
        for _ in range(100):
            assert await here.get() == here.peek() == b"1"
        assert len(network.sent) == before
        await there.set(b"2")
        assert here.peek() is None
        assert await asyncio.gather(*(here.get() for _ in range(5))) == [b"2"] * 5


@in_memory
async def test_a_change_costs_each_reader_four_requests(world: MemoryCluster) -> None:
    """The copy is given up, writers are watched for, the reader queues, and reads once."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        here, there = CachedValue(client, "v"), CachedValue(other, "v")
        await there.set(b"1")
        assert await here.get() == b"1"
        await there.set(b"2")
        assert await here.get() == b"2"
        await asyncio.sleep(0.1)
        del network.sent[:]
        await there.set(b"3")
        assert await here.get() == b"3"

        sent = [each for each in network.sent if "heartbeat" not in each]
        assert sorted(each.split()[0] for each in sent) == ["DELETE", "GET", "POST", "POST"], sent


@in_memory
async def test_many_who_ask_hide_no_value(world: MemoryCluster) -> None:
    """The value is read although more writers ask than are looked at."""
    async with world.client() as client, world.client() as other:
        await CachedValue(other, "v").set(b"1")
        for number in range(25):
            asked = f"/values/v/asked/{number}"
            await other.create(asked, mode="ephemeral", parents="container")
        here = CachedValue(client, "v")

        assert await here.get() == b"1"
        assert here.peek() is None


@in_memory
async def test_a_copy_is_not_kept_while_a_writer_waits(world: MemoryCluster) -> None:
    """It may have asked before this reader watched, and not be in the queue yet."""
    async with world.client() as client, world.client() as other:
        here = CachedValue(client, "v", default=b"none")
        asked = "/values/v/asked/another"
        await other.create(asked, mode="ephemeral", parents="container")

        assert await here.get() == b"none"
        assert here.peek() is None
        await other.delete(asked)
        assert await here.get() == here.peek() == b"none"


@in_memory
async def test_a_reader_that_is_cut_off_is_waited_for(world: MemoryCluster) -> None:
    """It relies on its copy until its lease is over; no longer, and the writer no shorter."""
    network = world.network()
    async with world.client(network, session_timeout=4) as client, world.client() as other:
        here, there = CachedValue(client, "v"), CachedValue(other, "v")
        await there.set(b"1")
        await asyncio.sleep(1)
        assert await here.get() == b"1"
        network.is_cut = True

        with pytest.raises(LockTimeoutError):
            await there.set(b"2", timeout=1)
        assert here.peek() == b"1"
        await there.set(b"3", timeout=20)
        assert here.peek() is None
        network.is_cut = False
        assert await here.get() == b"3"


@in_memory
async def test_a_value_that_was_on_its_way_during_a_pause_is_not_returned(
    world: MemoryCluster,
) -> None:
    """The process stood still for longer than its lease: others may have written since."""
    network, clock = world.network(), LoopClock(asyncio.get_running_loop())
    async with world.client(network, clock=clock) as client, world.client() as other:
        await CachedValue(other, "v").set(b"old")
        network.delays_s = lambda request: 0.3 * ("subtree" in request.target)
        reading = asyncio.create_task(CachedValue(client, "v").get())
        await asyncio.sleep(0.2)
        clock.paused_ms += 60_000

        with pytest.raises(LockLostError):
            await reading


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_no_read_is_older_than_what_was_acknowledged_before(seed: int) -> None:
    """In any weather; a reader never goes back."""
    acknowledged = [0]

    async def write(life: Life) -> None:
        value = CachedValue(life.client, "v", default=b"0")
        while not life.storm.is_over:
            try:
                number = int(await value.get()) + 1
                await value.set(str(number).encode(), timeout=20)
                acknowledged[0] = max(acknowledged[0], number)
                life.storm.met["written"] += 1
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 2)

    async def work(life: Life) -> None:
        if life.number == 0:
            return await write(life)
        value, seen = CachedValue(life.client, "v", default=b"0"), 0
        while not life.storm.is_over:
            try:
                before = max(acknowledged[0], seen)
                life.storm.met["without a request"] += value.peek() is not None
                seen = int(await value.get())
                assert seen >= before
                life.storm.met["read"] += 1
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.2)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        assert int(await CachedValue(observer, "v", default=b"0").get()) >= acknowledged[0]
        assert await left_below(observer, "/values") == []

    storm(seed, work, judge=judge, clients=4).check(written=4, read=100, without_a_request=30)
