"""Watches that survive their members: nothing missed, nothing twice, no silent gap."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import ChangeStream, Create, RetryPolicy
from coordinator.client.calling.delivery import CallDelivery
from coordinator.errors import CompactedError, UnavailableError
from coordinator.model.events import WatchSelector
from coordinator.recipes import Election
from tests.client.fake_members import REFUSED, A, B, FakeMembers, FakeStream, refusal
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.virtual_time import LoopClock, run


@in_memory
async def test_every_change_is_told_once_and_in_order_although_members_die(
    world: MemoryCluster,
) -> None:
    """Writes go on while the watch is cut, killed and resumed elsewhere."""
    network = world.network()
    async with world.client() as writer, world.client(network) as reader:
        await writer.create("/a")
        notices: list[int] = []
        versions: list[int] = []

        async def listen() -> None:
            async with reader.watch("/a", kind="subtree", from_zxid=1) as changes:
                async for change in changes:
                    notices.append(change.zxid)
                    versions.append(change.events[0].version)
                    if len(notices) == 60:
                        return

        listening = asyncio.create_task(listen())
        for number in range(60):
            await writer.set("/a", str(number).encode())
            await asyncio.sleep(0.05)
            if number == 20:
                network.kill(reader._delivery.endpoints.current)
            network.is_cut = 30 <= number < 40
        await asyncio.wait_for(listening, 60)

        assert notices == list(range(2, 62))
        assert versions == list(range(1, 61))


@in_memory
async def test_entering_the_watch_means_that_it_watches(world: MemoryCluster) -> None:
    """What changes after ``async with`` was entered is told, without a race."""
    async with world.client() as client:
        async with client.watch("/b") as changes:
            created = await client.create("/b")
            change = await anext(changes)

        assert change.zxid == created.stat.czxid
        assert [(event.type, event.path) for event in change.events] == [("NodeCreated", "/b")]


@in_memory
async def test_the_changes_of_one_write_come_together(world: MemoryCluster) -> None:
    """A multi is one change with all its events, never split (etcd 729)."""
    async with world.client() as client:
        await client.create("/c")
        async with client.watch("/c", kind="children") as changes:
            await client.multi([Create("/c/1"), Create("/c/2"), Create("/c/3")])
            change = await anext(changes)

        assert [event.path for event in change.events] == ["/c/1", "/c/2", "/c/3"]


@in_memory
async def test_a_one_shot_watch_tells_one_change(world: MemoryCluster) -> None:
    """Then it is over."""
    async with world.client() as client:
        await client.create("/d")
        zxid = (await client.set("/d", b"1")).stat.mzxid - 1
        await client.set("/d", b"2")

        changes = [each async for each in client.watch("/d", from_zxid=zxid, one_shot=True)]

        assert len(changes) == 1
        assert changes[0].zxid == zxid + 1


def delivery_over(members: FakeMembers) -> CallDelivery:
    return CallDelivery(
        members,
        endpoints=(A, B),
        clock=LoopClock(asyncio.get_running_loop()),
        retry=RetryPolicy(seed=2),
    )


def watching(
    members: FakeMembers, delivery: CallDelivery | None = None, **options: int | None
) -> ChangeStream:
    delivery = delivery_over(members) if delivery is None else delivery
    return ChangeStream(
        delivery,
        [WatchSelector("/a")],
        from_zxid=options.get("from_zxid"),
        is_one_shot=False,
        contact_timeout_ms=options.get("contact_timeout_ms"),
    )


def change(zxid: int) -> dict[str, object]:
    event = {"type": "NodeDataChanged", "path": "/a", "version": zxid, "czxid": 1}
    return {"type": "change", "zxid": zxid, "events": [event]}


def test_what_a_second_member_repeats_is_not_told_twice() -> None:
    """A change at or before the last one told is dropped; bookmarks move the resume point."""

    async def scenario() -> None:
        streams = iter(
            [
                FakeStream().say(type="watching", zxid=5).say(**change(6)).snap(),
                FakeStream()
                .say(type="watching", zxid=5)
                .say(**change(6))
                .say(**change(7))
                .say(type="bookmark", zxid=20)
                .end(),
                FakeStream().say(type="watching", zxid=20).say(**change(21)),
            ]
        )
        members = FakeMembers(lambda seen: None, lambda seen: next(streams))
        stream = watching(members)

        assert [(await anext(stream)).zxid for _ in range(3)] == [6, 7, 21]
        assert [each.body.get("from_zxid") for each in members.seen] == [None, 6, 20]
        assert {each.endpoint for each in members.seen} == {A, B}

    run(scenario())


def test_watches_that_have_fallen_behind_read_each_line_once_for_all() -> None:
    """Each reads several in a row, before the next one reads the same; a long one is not kept."""

    async def scenario() -> None:
        def said() -> FakeStream:
            stream = FakeStream().say(type="watching", zxid=5)
            for zxid in range(6, 12):
                stream.say(**change(zxid))
            for zxid in (12, 13):
                stream.say(**{**change(zxid), "unknown": "x" * 5_000})
            return stream

        members = FakeMembers(lambda seen: None, lambda seen: said())
        delivery = delivery_over(members)
        first, second = [watching(members, delivery) for _ in range(2)]

        read = [await anext(first) for _ in range(8)]
        read_later = [await anext(second) for _ in range(8)]

        assert [each.zxid for each in read] == [each.zxid for each in read_later] == [*range(6, 14)]
        are_shared = [one is other for one, other in zip(read, read_later, strict=True)]
        assert are_shared == [True] * 6 + [False, False]
        assert len(delivery.recent_lines.said) <= 32

    run(scenario())


def test_a_watch_cut_off_before_its_first_change_resumes_from_where_it_began() -> None:
    """What changed during the reconnect is asked for, not skipped (etcd jetcd 1209)."""

    async def scenario() -> None:
        streams = iter(
            [
                FakeStream().say(type="watching", zxid=5).end(),
                FakeStream().say(type="watching", zxid=9).say(**change(7)),
            ]
        )
        members = FakeMembers(lambda seen: None, lambda seen: next(streams))
        stream = watching(members)

        assert (await anext(stream)).zxid == 7
        assert members.seen[1].body["from_zxid"] == 5

    run(scenario())


def test_a_silent_watch_is_left_for_another_member() -> None:
    """Missing keep-alive lines mean a deaf member (jetcd 523)."""

    async def scenario() -> None:
        deaf = FakeStream().say(type="watching", zxid=5)
        streams = iter([deaf, FakeStream().say(type="watching", zxid=5).say(**change(6))])
        members = FakeMembers(lambda seen: None, lambda seen: next(streams))
        loop = asyncio.get_running_loop()
        began = loop.time()

        assert (await anext(watching(members))).zxid == 6
        assert deaf.is_closed
        assert loop.time() - began < 15

    run(scenario())


def test_a_slow_reader_is_resumed_from_the_history() -> None:
    """After "resync" the stream goes on from the last change told, without a gap."""

    async def scenario() -> None:
        streams = iter(
            [
                FakeStream()
                .say(type="watching", zxid=5)
                .say(**change(6))
                .say(type="resync", zxid=6)
                .end(),
                FakeStream().say(type="watching", zxid=9).say(**change(7)),
            ]
        )
        members = FakeMembers(lambda seen: None, lambda seen: next(streams))
        stream = watching(members)

        assert [(await anext(stream)).zxid for _ in range(2)] == [6, 7]

    run(scenario())


@pytest.mark.parametrize("as_line", [True, False])
def test_a_gap_is_an_error_never_silence(as_line: bool) -> None:
    """When the history does not reach back far enough the reader is told (etcd 18089)."""

    async def scenario() -> None:
        error = CompactedError("kept from zxid 100 on", oldest_zxid=100)

        def open_stream(seen: object) -> FakeStream | CompactedError:
            if as_line:
                problem = {"code": "Compacted", "detail": error.message, "oldest_zxid": 100}
                return FakeStream().say(type="error", problem=problem)
            return error

        members = FakeMembers(lambda seen: refusal(error), open_stream)
        with pytest.raises(CompactedError) as raised:
            await anext(watching(members, from_zxid=3))
        assert raised.value.oldest_zxid == 100

    run(scenario())


def test_a_watch_without_any_member_can_be_bounded() -> None:
    """``contact_timeout`` ends the retries with an error; without it they go on."""

    async def scenario() -> None:
        members = FakeMembers(lambda seen: REFUSED, lambda seen: REFUSED)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(UnavailableError):
            await anext(watching(members, contact_timeout_ms=5_000))
        assert loop.time() - began <= 5.1

        patient = asyncio.create_task(anext(watching(members)))
        await asyncio.sleep(3_600)
        assert not patient.done()
        patient.cancel()
        await asyncio.wait({patient})

    run(scenario())


@in_memory
async def test_only_the_time_without_a_member_counts_as_such(world: MemoryCluster) -> None:
    """A stream that had nothing to say for long continues at the other member."""
    network = world.network()
    async with world.client() as writer, world.client(network) as reader:
        await writer.create("/a")
        async with (
            reader.watch("/a", contact_timeout=1.0) as changes,
            reader.observe("daily", contact_timeout=1.0) as elections,
        ):
            await anext(elections)
            change = asyncio.create_task(anext(changes))
            elected = asyncio.create_task(anext(elections))
            await asyncio.sleep(4.5)  # there is a bookmark every 5 s

            network.kill(reader._delivery.endpoints.current)
            await asyncio.sleep(0.5)
            await writer.set("/a", b"1")
            grant = await Election(writer, "daily").campaign()

            assert (await change).events[0].version == 1
            assert (await elected).elected.epoch == grant.epoch

            both = [asyncio.create_task(anext(each)) for each in (changes, elections)]
            await asyncio.sleep(4.5)
            network.kill(reader._delivery.endpoints.current)
            began = asyncio.get_running_loop().time()
            for each in both:
                with pytest.raises(UnavailableError):
                    await each
            assert 0.5 < asyncio.get_running_loop().time() - began < 1.5
