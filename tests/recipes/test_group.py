"""Groups: who is listed, who is not any more, and who comes back."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import defaultdict
from typing import Any

import pytest

from coordinator.client import AsyncClient, connect
from coordinator.client.calling.transport import Request
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    DataTooLargeError,
    NodeExistsError,
)
from coordinator.recipes import Group, GroupMember, Membership
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.storm import Life, Storm, left_below, storm


def test_threads_join_list_and_watch() -> None:
    """With a sync client; and anybody lists by plain HTTP."""
    with serving() as url, connect(url) as client, connect(url) as other:
        web = Group(client, "web")
        with web.watch() as stream:
            listings = iter(stream)
            assert next(listings) == ()
            with Group(other, "web").join("b", metadata={"port": 80}) as me:
                (seen,) = next(listings)
                assert (seen.name, seen.state, seen.metadata) == ("b", "up", {"port": 80})
                assert seen.fencing_token == me.fencing_token > 0
                assert me.update({"port": 81})
                assert next(listings)[0].metadata == {"port": 81}
                me.drain(linger=0)
                assert [each.state for each in next(listings)] in ([], ["draining"])
            with Group(other, "web").join("a b", metadata={"port": 82}):
                assert [each.name for each in web.members()] == ["a b"]
                with urllib.request.urlopen(f"{url}/v1/tree/groups/web?children") as answer:
                    (name,) = json.load(answer)["children"]
                with urllib.request.urlopen(
                    f"{url}/v1/tree/groups/web/{name.replace('%', '%25')}"
                ) as answer:
                    data = json.loads(json.load(answer)["data"])
                assert data["metadata"] == {"port": 82}
        assert web.members() == ()


@in_memory
async def test_who_has_left_is_forgotten(world: MemoryCluster) -> None:
    """A program that joins and leaves all day keeps nothing of it while its session lives."""
    async with world.client() as client:
        for _ in range(3):
            me = await Group(client, "web").join("a")
            assert len((await client.session())._listeners) == 1
            await me.leave()

        assert len((await client.session())._listeners) == 0


@in_memory
async def test_a_lost_session_is_followed_by_another_registration(world: MemoryCluster) -> None:
    """Under the same name, with what was published last, and a higher token."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as observer:
        me = await Group(client, "web").join("a")
        before = me.fencing_token
        network.is_cut = True
        await asyncio.sleep(5)
        assert not me.is_registered
        assert await Group(observer, "web").members() == ()
        assert not await me.update({"n": 2})
        network.is_cut = False
        await asyncio.sleep(10)

        (listed,) = await Group(observer, "web").members()

        assert listed.metadata == {"n": 2}
        assert listed.fencing_token == me.fencing_token > before


@in_memory
async def test_what_is_published_while_it_is_registered_again_is_seen(
    world: MemoryCluster,
) -> None:
    """The registration was under way with what was true before."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        me = await Group(client, "g").join("a", metadata={"n": 1})
        network.is_cut = True
        await asyncio.sleep(5)
        notices: list[bool] = []

        async def publish(request: Request) -> None:
            if "multi" in request.target and b"create" in (request.body or b""):
                notices.append(await me.update({"n": 2 + len(notices)}))

        network.before = publish
        network.is_cut = False
        await asyncio.sleep(5)

        assert not any(notices), "not registered yet: with the next one"
        (member,) = await Group(other, "g").members()
        assert member.metadata == {"n": 1 + len(notices)}


@in_memory
async def test_who_has_left_is_not_registered_again(world: MemoryCluster) -> None:
    """Not even if its session is lost at the same time."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as observer:
        me = await Group(client, "web").join("a")
        network.is_cut = True
        await asyncio.sleep(5)
        leaving = asyncio.create_task(me.leave())
        network.is_cut = False
        await leaving
        await asyncio.sleep(20)

        assert await Group(observer, "web").members() == ()


@in_memory
async def test_a_program_that_was_restarted_takes_its_place_again(world: MemoryCluster) -> None:
    """It waits for the end of the former one's session, or says that there is another."""
    network = world.network()
    async with world.client(network, session_timeout=4) as dead, world.client() as client:
        await Group(dead, "web").join("a")
        network.is_cut = True

        with pytest.raises(NodeExistsError, match="its session has not ended"):
            await Group(client, "web").join("a", timeout=1)
        me = await Group(client, "web").join("a", timeout=10)

        assert [each.fencing_token for each in await Group(client, "web").members()] == [
            me.fencing_token
        ]
        await me.leave()


@in_memory
async def test_what_is_no_member_is_left_out_and_what_cannot_be_one_refused(
    world: MemoryCluster,
) -> None:
    """Foreign znodes in the directory do no harm."""
    async with world.client() as client:
        web = Group(client, "web")
        for name, data in (("x", b"?"), ("y", b"{}"), ("z", b'{"state": "gone"}')):
            await client.create(f"/groups/web/{name}", data, parents="persistent")
        assert await web.members() == ()
        for metadata in ({"x": object()}, {"x": float("nan")}):
            with pytest.raises(BadArgumentsError, match="metadata: expected JSON"):
                await web.join("a", metadata=metadata)
        me = await web.join("a")
        with pytest.raises(BadArgumentsError, match="state: expected up, draining or down"):
            await me.report("gone")  # type: ignore[arg-type]
        with pytest.raises(BadArgumentsError, match="linger: expected seconds"):
            await me.drain(linger=-1)
        with pytest.raises(BadArgumentsError, match="metadata: expected JSON"):
            await me.update({"x": object()})
        assert await me.update({})


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_after_all_bad_weather_those_are_listed_who_live(seed: int) -> None:
    """Restarted and re-registered; a watcher behind the same weather ends with the same list."""
    tokens: dict[str, list[int]] = defaultdict(list)
    ended: list[set[str]] = []
    seen: list[tuple[GroupMember, ...]] = [()]
    numbers = range(1, 4)

    async def watch(life: Life) -> None:
        async for members in Group(life.client, "web").watch():
            seen.append(members)
            for each in members:
                tokens[each.name].append(each.fencing_token)
            if life.storm.is_over and {each.name for each in members} == {"end"}:
                return

    async def member(life: Life, me: Membership[AsyncClient]) -> None:
        for number in range(life.random.randrange(6)):
            await asyncio.sleep(life.random.random() * 3)
            life.storm.met["published"] += await me.update({"n": number})
            life.storm.met["not registered"] += not me.is_registered

    async def work(life: Life) -> None:
        if life.number == 0:
            return await watch(life)
        while True:
            is_last = life.storm.is_over
            try:
                async with await Group(life.client, "web").join(
                    f"m{life.number}", timeout=30
                ) as me:
                    life.storm.met["joined"] += 1
                    if not is_last:
                        await member(life, me)
                        continue
                    await asyncio.sleep(40)  # all others have come back
                    listed = await Group(life.client, "web").members()
                    ended.append({each.name for each in listed})
                    mine = {each.fencing_token for each in listed if each.name == f"m{life.number}"}
                    assert mine == {me.fencing_token}
                    await asyncio.sleep(20)
                if life.number == 1:
                    await asyncio.sleep(20)
                    await Group(life.client, "web").join("end")
                    await asyncio.sleep(5)
                return
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        assert ended == [{f"m{number}" for number in numbers}] * len(numbers)
        for each in tokens.values():
            assert each == sorted(each)
        assert await left_below(observer, "/groups") == []
        blown.met["listings"] = len(seen)

    storm(seed, work, judge=judge).check(joined=10, published=10, listings=10)


@in_memory
async def test_a_change_costs_a_watcher_no_request(world: MemoryCluster) -> None:
    """Who joins, publishes or leaves: the watch says what a read would."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        web = Group(other, "web")
        early = await web.join("early", metadata={"n": 0})
        async with Group(client, "web").watch() as stream:
            assert [each.name for each in await anext(stream)] == ["early"]
            before = len(network.sent)
            await early.update({"n": 1})
            assert await anext(stream) == await web.members()
            await asyncio.sleep(1)
            late = await web.join("late", metadata={"n": 2})
            assert await anext(stream) == await web.members()
            await late.report("draining", "a new release")
            assert await anext(stream) == await web.members()
            await early.leave()
            assert await anext(stream) == await web.members()
            assert network.sent[before:] == []


@in_memory
async def test_a_large_group_is_read_page_by_page(
    world: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes between two pages is in the first listing, not older and not missing."""
    async with world.client() as client, world.client() as other:
        web = Group(other, "web")
        members = [await web.join(f"m{number}") for number in range(6)]
        read = client.subtree
        pages: list[str | None] = []

        async def some(path: str, *, after: str | None = None) -> Any:
            if pages:
                await members[len(pages) - 1].leave()
                await members[-len(pages)].update({"page": len(pages)})
            pages.append(after)
            return await read(path, after=after, limit=3)

        monkeypatch.setattr(client, "subtree", some)
        async with Group(client, "web").watch() as stream:
            first = await anext(stream)
        assert len(pages) >= 2
        assert first == await web.members()


@in_memory
async def test_who_has_left_does_not_come_back(world: MemoryCluster) -> None:
    """It lost its session, another took its name, and it left before that one did."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        me = await Group(client, "web").join("a")
        network.is_cut = True
        await asyncio.sleep(5)
        heir = await Group(other, "web").join("a")
        network.is_cut = False
        await asyncio.sleep(10)
        await me.leave()
        listings: list[tuple[str, ...]] = []

        async def follow() -> None:
            async for members in Group(other, "web").watch():
                listings.append(tuple(each.session_id for each in members))

        following = asyncio.create_task(follow())
        await asyncio.sleep(1)
        owner = (await other.session()).session_id
        await heir.leave()
        await asyncio.sleep(5)
        following.cancel()

        assert listings == [(owner,), ()]


@in_memory
async def test_what_was_refused_is_not_published_later(world: MemoryCluster) -> None:
    """Neither by the next report nor by the next registration, which it would refuse, too."""
    async with world.client() as client:
        me = await Group(client, "web").join("a", metadata={"n": 1})
        with pytest.raises(DataTooLargeError):
            await me.update({"n": "x" * 2_000_000})

        assert await me.report("down", "full")

        (listed,) = await Group(client, "web").members()
        assert (listed.state, listed.metadata) == ("down", {"n": 1})


@in_memory
async def test_what_was_published_last_is_listed(world: MemoryCluster) -> None:
    """Two tasks publish at once, and the first one's request is late."""
    network = world.network()
    async with world.client(network) as client:
        me = await Group(client, "web").join("a")
        delays_s = [1.0, 0.0]
        network.before = lambda request: asyncio.sleep(delays_s.pop(0) if delays_s else 0.0)
        assert await asyncio.gather(me.update({"n": 2}), me.report("down")) == [True, True]

        (listed,) = await Group(client, "web").members()
        assert (listed.state, listed.metadata) == ("down", {"n": 2})


@in_memory
async def test_a_reader_that_gives_up_in_a_change_misses_nothing(world: MemoryCluster) -> None:
    """A change that has to be read is not lost with the reader that was cancelled meanwhile."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        await other.create("/groups/web/a", b"?", mode="ephemeral", parents="container")
        async with Group(client, "web").watch() as stream:
            assert await anext(stream) == ()
            network.delays_s = lambda request: 3.0 if request.method == "GET" else 0.0
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(0.1)
            await other.set("/groups/web/a", b'{"state": "up", "reason": "", "metadata": {}}')
            await asyncio.sleep(1)  # it is read
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            network.delays_s = lambda request: 0.0

            async with asyncio.timeout(5):
                (listed,) = await anext(stream)
            assert listed.name == "a"
