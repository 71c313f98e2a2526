"""Streams of recipes whose place in the history is gone: they read again, and tell what is now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from coordinator.client import AsyncClient
from coordinator.errors import CompactedError
from coordinator.model.events import WatchSelector
from coordinator.recipes import CachedValue, Configuration, Group, TreeCache
from coordinator.service.watches.hub import WatchHub
from coordinator.service.watches.watch_stream import WatchStream
from tests.client.memory_cluster import MemoryCluster, Network, in_memory


class NotingHub:
    """The watches of a member, as its doors ask for them; notes those refused as too old."""

    def __init__(self, hub: WatchHub, *, refuses_first: bool = False) -> None:
        self._hub = hub
        self._refuses_next = refuses_first
        self.refused: list[int] = []

    def watch(
        self, selectors: Sequence[WatchSelector], *, from_zxid: int | None = None, **how: Any
    ) -> WatchStream:
        """Return the stream of changes behind ``from_zxid``, or refuse it."""
        try:
            if self._refuses_next and from_zxid is not None:
                self._refuses_next = False
                raise CompactedError("kept from later on", oldest_zxid=from_zxid + 1)
            return self._hub.watch(selectors, from_zxid=from_zxid, **how)
        except CompactedError:
            assert from_zxid is not None, "who asks for what comes is not too late"
            self.refused.append(from_zxid)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)


async def overtaken(world: MemoryCluster, network: Network, other: AsyncClient) -> list[int]:
    """Let more happen than the members remember, and the client, which is cut off, come back.

    Its session lives on: nothing but its watches has missed anything. Returns a list that gets
    the zxid of each watch that is refused as too old."""
    assert network.is_cut
    await asyncio.sleep(30)  # its watches are broken by now
    history = world.member.watches._history
    history._changes_max = 3
    noting: Any = NotingHub(world.member.watches)
    world.member.watches = noting
    for number in range(10):
        await other.create(f"/noise-{number}")
    assert history.floor_zxid > 0
    network.is_cut = False
    return cast("list[int]", noting.refused)


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
        noting: Any = NotingHub(world.member.watches, refuses_first=True)
        world.member.watches = noting
        stream = Configuration(client, "shop").watch()
        assert (await anext(stream)).values == {"a": 1}
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        assert noting.refused
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
