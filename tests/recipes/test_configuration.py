"""Shared configuration: whole versions only, compared, checked, kept, and gone back to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import AsyncClient, connect
from coordinator.errors import (
    BadArgumentsError,
    BadVersionError,
    CoordinatorError,
    DataTooLargeError,
    NoNodeError,
    OutcomeUnknownError,
)
from coordinator.recipes import Configuration, Snapshot
from coordinator.recipes.sharing.configuration_snapshot import BYTES_MAX, VALUES_MAX, KeptVersions
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.storm import Life, Storm, storm


def test_threads_change_and_watch() -> None:
    """With a sync client; the first of a watch is what is there."""
    with serving() as url, connect(url) as client, connect(url, label="deploy") as other:
        here, there = Configuration(client, "web"), Configuration(other, "web")
        seen = here.watch()
        assert next(seen) == Snapshot(0, {})
        made = there.change({"a": 1, "b": [True, None]}, note="first")
        assert (made.by, made.note, made.version) == ("deploy", "first", 1)
        assert next(seen) == made == here.get(1) == here.get()
        assert seen.next(timeout=0) is None
        with pytest.raises(BadArgumentsError, match="async for"):
            aiter(seen)  # type: ignore[misc]


@in_memory
async def test_nothing_is_written_that_changes_nothing(world: MemoryCluster) -> None:
    """Of JSON: true and 1 are different values."""
    async with world.client() as client:
        web = Configuration(client, "web")
        assert (await web.replace({})).version == 1
        assert (await web.change({"a": True})).version == 2
        assert (await web.change({"a": True}, remove=["gone"])).version == 2
        changed = await web.change({"a": 1, "b": 2})
        assert changed.version == 3
        assert changed.names_changed(await web.get(2)) == ["a", "b"]
        with pytest.raises(BadVersionError, match="expected version 2, found 3"):
            await web.rollback(2, expected_version=2)
        with pytest.raises(NoNodeError, match=r"kept \(1, 2, 3\), found 7"):
            await web.rollback(7)
        back = await web.rollback(2)
        assert (back.version, back.values, back.note) == (4, {"a": True}, "as version 2")


@in_memory
async def test_two_changes_at_once_are_both_done(world: MemoryCluster) -> None:
    """One is done to what the other has written; with an expected version one is refused."""
    async with world.client() as client, world.client() as other:
        here, there = Configuration(client, "web"), Configuration(other, "web")
        await asyncio.gather(
            *(each.change({name: 1}) for each in (here, there) for name in ("a", "b", "c")),
            *(there.change({f"there-{number}": 1}) for number in range(5)),
        )
        assert len((await here.get()).values) == 8
        version = (await here.get()).version
        results = await asyncio.gather(
            *(
                each.change({"d": n}, expected_version=version)
                for n, each in enumerate((here, there))
            ),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in results) == ["BadVersionError", "Snapshot"]


@in_memory
async def test_what_is_not_allowed_is_refused_whole(world: MemoryCluster) -> None:
    """By the check, which sees all that would be there, or by a bound; nothing is written."""

    def check(values: dict[str, Any]) -> bool:
        if "low" in values and "high" not in values:
            raise ValueError("low needs high")
        return values.get("low", 0) <= values.get("high", 0)

    async with world.client() as client:
        web = Configuration(client, "web", check=check)
        await web.change({"low": 1, "high": 2})
        with pytest.raises(ValueError, match="low needs high"):
            await web.change({}, remove=["high"])
        for values, error in [
            ({"low": 3}, BadArgumentsError),
            ({"": 1}, BadArgumentsError),
            ({7: 1}, BadArgumentsError),
            ({"a": float("nan")}, BadArgumentsError),
            ({"a": "\ud800"}, BadArgumentsError),
            ({"a": object()}, BadArgumentsError),
            ({str(n): n for n in range(VALUES_MAX + 1)}, BadArgumentsError),
            ({"a": "x" * BYTES_MAX}, DataTooLargeError),
            (["a"], BadArgumentsError),
        ]:
            with pytest.raises(error):
                await web.change(values)  # type: ignore[arg-type]
        with pytest.raises(BadArgumentsError, match="note"):
            await web.change({"high": 9}, note="x" * 201)
        assert (await web.get()).version == 1
        await client.set("/configurations/web", b"[]")
        with pytest.raises(BadArgumentsError, match="expected a Configuration"):
            await web.get()


def test_the_number_of_versions_has_bounds() -> None:
    """Before anything is sent."""
    with pytest.raises(BadArgumentsError, match="versions"):
        Configuration(connect(), "web", versions=0)


@in_memory
async def test_only_so_many_versions_are_kept(world: MemoryCluster) -> None:
    """Also when a client keeps fewer than the ones before, and if somebody deleted one."""
    async with world.client() as client:
        for number in range(6):
            await Configuration(client, "web").change({"n": number})
        await client.delete("/configurations/web/versions/0000000004")
        web = Configuration(client, "web", versions=2)
        await web.change({"n": 7})
        assert [each.version for each in await web.history()] == [7, 6]


@in_memory
async def test_a_watcher_that_was_cut_off_gets_the_newest(world: MemoryCluster) -> None:
    """And not those in between."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        seen, there = Configuration(client, "web").watch(), Configuration(other, "web")
        assert (await anext(seen)).version == 0
        waiting = asyncio.create_task(seen.next(60))
        await asyncio.sleep(1)
        network.is_cut = True
        for number in range(3):
            await there.change({"n": number})
        await asyncio.sleep(20)
        network.is_cut = False
        found = await waiting
        assert found is not None
        assert found.version == 3


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_no_reader_sees_half_of_a_change(seed: int) -> None:
    """In any weather: two writers, whose changes are done once each, and watchers that go forth."""
    known: list[str] = []
    unknown: list[str] = []

    async def write(life: Life, web: Configuration[AsyncClient]) -> None:
        tag = f"{life.name}/{life.random.random()}"
        unknown.append(tag)
        try:
            now = await web.get()
            count = now.values.get("count", 0) + 1
            made = await web.change(
                {"count": count, "left": tag, "right": tag}, expected_version=now.version
            )
            assert made.version == now.version + 1
            known.append(tag)
            unknown.remove(tag)
        except OutcomeUnknownError:
            return  # it may have been written
        except CoordinatorError as error:
            life.storm.met[type(error).__name__] += 1
            unknown.remove(tag)
        await asyncio.sleep(life.random.random())

    async def work(life: Life) -> None:
        web = Configuration(life.client, "web", versions=5, by=life.name)
        seen, last = web.watch(), -1
        while not life.storm.is_over:
            if life.number < 2:
                await write(life, web)
                continue
            try:
                found = await seen.next(3)
            except CoordinatorError:
                continue
            if found is not None:
                assert found.values.get("left") == found.values.get("right")
                assert found.version == found.values.get("count", 0) > last
                last = found.version
                life.storm.met["seen"] += 1

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        web = Configuration(observer, "web")
        history = await web.history()
        newest = history[0]
        assert newest == await web.get()
        assert [each.version for each in history] == list(
            range(newest.version, newest.version - 5, -1)
        )
        assert len(known) <= newest.version <= len(known) + len(unknown)
        assert {each.values["left"] for each in history} <= {*known, *unknown}
        blown.met["known"] = len(known)

    storm(seed, work, judge=judge).check(known=20, seen=20, BadVersionError=1)


@in_memory
async def test_a_configuration_made_again_is_another(world: MemoryCluster) -> None:
    """Although its version is the same number: a watcher goes by zxids."""
    async with world.client() as client:
        web = Configuration(client, "web")
        seen = web.watch()
        await web.change({"a": 1})
        assert (await anext(seen)).values == {"a": 1}
        await client.delete("/configurations/web", recursive=True)
        await web.change({"a": 2})
        found = await seen.next(0)
        assert found is not None
        assert (found.version, found.values) == (1, {"a": 2})


@in_memory
async def test_a_version_that_goes_meanwhile_stops_no_change(
    world: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed as too old, and an operator deleted it before the change did."""
    async with world.client() as client:
        web = Configuration(client, "web", versions=1)
        await web.change({"a": 1})
        listed, names = [["0000000000", "0000000001"]], KeptVersions.names

        async def names_then(kept: KeptVersions) -> list[str]:
            return listed.pop() if listed else await names(kept)

        monkeypatch.setattr(KeptVersions, "names", names_then)
        assert (await web.change({"a": 2})).version == 2
        assert [each.version for each in await web.history()] == [2]


@in_memory
async def test_a_change_costs_a_watcher_no_request(world: MemoryCluster) -> None:
    """The watch brings the values; what it says is what a read would."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        there = Configuration(other, "web")
        async with Configuration(client, "web").watch() as seen:
            assert (await anext(seen)).version == 0
            before = len(network.sent)
            for number in range(5):
                made = await there.change({"n": number}, note=str(number))
                assert await anext(seen) == made == await there.get()
            assert network.sent[before:] == []
            assert await seen.next(1) is None
            await other.delete("/configurations/web", recursive=True)
            assert await anext(seen) == Snapshot(0, {})
            assert network.sent[before:] == ["GET /v1/tree/configurations/web"]  # "None" is known


@in_memory
async def test_a_watcher_that_was_busy_gets_the_newest(world: MemoryCluster) -> None:
    """Of what has arrived meanwhile; without a request, and never an older one after it."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        there = Configuration(other, "web")
        async with Configuration(client, "web").watch() as seen:
            assert (await anext(seen)).version == 0
            before = len(network.sent)
            for number in range(5):
                await there.change({"n": number})
            await asyncio.sleep(1)
            versions = [(await anext(seen)).version]
            while versions[-1] < 5:
                versions.append((await anext(seen)).version)
            assert versions == sorted(set(versions))
            assert network.sent[before:] == []
            assert await seen.next(1) is None
            assert network.sent[before:] == ["GET /v1/tree/configurations/web"]  # "None" is known


@in_memory
async def test_what_a_look_returned_is_not_told_again(world: MemoryCluster) -> None:
    """Nor what was before it, though the watch had brought that already."""
    async with world.client() as client, world.client() as other:
        there = Configuration(other, "web")
        async with Configuration(client, "web").watch() as seen:
            assert (await anext(seen)).version == 0
            await there.change({"a": 1})
            await there.change({"a": 2})
            found = await seen.next(0)
            assert found is not None
            assert found.version == 2
            assert await seen.next(1) is None
            await other.set("/configurations/web", b"?")
            for timeout in (1, 1, 0):
                with pytest.raises(BadArgumentsError, match="expected a Configuration"):
                    await seen.next(timeout)
