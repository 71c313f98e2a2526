"""Streams of recipes whose place in the history is gone: they read again, and tell what is now."""

from __future__ import annotations

import asyncio

from coordinator.client import AsyncClient
from coordinator.errors import CompactedError
from recipes import CachedValue, Configuration, Group, TreeCache
from tests.client.memory_cluster import MemoryCluster, Network, in_memory


async def overtaken(world: MemoryCluster, network: Network, other: AsyncClient) -> list[int]:
    """Let more happen than the members remember, and the client, which is cut off, come back.

    Its session lives on: nothing but its watches has missed anything. Returns a list that gets
    the zxid of each watch that is refused as too old."""
    assert network.is_cut
    await asyncio.sleep(30)  # its watches are broken by now
    history = world.member.watches._history
    refused: list[int] = []
    history._changes_max = 3
    refuse = history.refuse_compacted

    def refuse_and_note(from_zxid: int) -> None:
        try:
            refuse(from_zxid)
        except CompactedError:
            refused.append(from_zxid)
            raise

    history.refuse_compacted = refuse_and_note  # type: ignore[method-assign]
    for number in range(10):
        await other.create(f"/noise-{number}")
    assert history.floor_zxid > 0
    network.is_cut = False
    return refused


@in_memory
async def test_a_group_that_missed_too_much_is_listed_again(world: MemoryCluster) -> None:
    """One who left and one who came, all in what nobody remembers."""
    network = world.network()
    async with world.client(network, session_timeout=120) as client, world.client() as other:
        first = await Group(other, "web").join("one", metadata={"n": 1})
        async with Group(client, "web").watch() as stream:
            assert [each.name for each in await anext(stream)] == ["one"]
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.1)
            await first.leave()
            await Group(other, "web").join("two", metadata={"n": 2})
            assert [each.name for each in await waiting] in ([], ["two"])
            while True:  # until it waits for what comes
                waiting = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(1)
                if not waiting.done():
                    break
            network.is_cut = True
            await Group(other, "web").join("three", metadata={"n": 3})
            refused = await overtaken(world, network, other)

            async with asyncio.timeout(60):
                names = [each.name for each in await waiting]
                while names != ["three", "two"]:
                    names = [each.name for each in await anext(stream)]
            assert refused


@in_memory
async def test_a_configuration_whose_watch_begins_too_late_is_read_again(
    world: MemoryCluster,
) -> None:
    """It reads anew after each break, so only a change between read and watch can be too old."""
    async with world.client() as client, world.client() as other:
        shop = Configuration(other, "shop")
        await shop.change({"a": 1})
        history = world.member.watches._history
        refuse = history.refuse_compacted
        refused: list[int] = []

        def refuse_once(from_zxid: int) -> None:
            if not refused:
                refused.append(from_zxid)
                raise CompactedError("kept from later on", oldest_zxid=from_zxid + 1)
            refuse(from_zxid)

        history.refuse_compacted = refuse_once  # type: ignore[method-assign]
        stream = Configuration(client, "shop").watch()
        assert (await anext(stream)).values == {"a": 1}
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        assert refused
        await shop.change({"a": 2})

        async with asyncio.timeout(10):
            assert (await waiting).values == {"a": 2}
        await stream.close()


@in_memory
async def test_a_cache_that_missed_too_much_is_copied_again(world: MemoryCluster) -> None:
    """It has what was made, and not what was deleted, though no event says so any more."""
    network = world.network()
    async with world.client(network, session_timeout=120) as client, world.client() as other:
        await other.create("/app", b"1")
        await other.create("/app/gone")
        async with TreeCache(client, "/app") as cache:
            assert cache.children("/app") == ("gone",)
            network.is_cut = True
            await other.delete("/app/gone")
            await other.create("/app/new", b"2")
            await other.set("/app", b"3")
            refused = await overtaken(world, network, other)

            await cache.sync(60)
            assert refused

            found = cache.get("/app")
            assert found is not None
            assert (found.data, cache.children("/app")) == (b"3", ("new",))


@in_memory
async def test_a_cached_value_that_missed_too_much_is_not_old(world: MemoryCluster) -> None:
    """Its copy has gone by then: the writer waited for its lease, not for its watch."""
    network = world.network()
    async with world.client(network, session_timeout=120) as client, world.client() as other:
        mine, theirs = CachedValue(client, "prices"), CachedValue(other, "prices")
        await theirs.set(b"1")
        assert await mine.get() == b"1"
        network.is_cut = True
        setting = asyncio.ensure_future(theirs.set(b"2", timeout=120))
        await overtaken(world, network, other)

        assert await mine.get() == b"1" or setting.done()
        await setting
        assert await mine.get() == b"2"
        assert mine.peek() == b"2"
