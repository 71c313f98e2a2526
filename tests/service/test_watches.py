"""Watches: told of everything, once, in order, whole; or told plainly that it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator.errors import (
    BadArgumentsError,
    CompactedError,
    QuotaExceededError,
    ThrottledError,
)
from coordinator.model.events import Bookmark, Change, Resync, WatchSelector
from coordinator.node.config import Config, MemberLimits
from coordinator.service.base.wakes import WOKEN_AT_ONCE
from coordinator.service.reads.reads import STALE
from coordinator.service.watches.hub import HANDED_AT_ONCE
from coordinator.service.watches.watch_stream import WatchItem, WatchStream
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import encode_command
from coordinator.state.commands import (
    Command,
    Create,
    Delete,
    Multi,
    OpenSession,
    Operation,
    SetData,
)
from coordinator.waiting import AT_ONCE
from tests.service.fake_cluster import World, cluster, counted, settle, soon


def limited(**limits: int) -> Config:
    return Config(limits=replace(MemberLimits(), **limits))


async def write(world: World, *operations: Operation) -> None:
    for operation in operations:
        await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))


def watching(world: World, path: str, kind: str = "znode", **options: int | bool) -> WatchStream:
    return world.leader.watches.watch([WatchSelector(path, kind)], **options)  # type: ignore[arg-type]


async def taken(stream: WatchStream, count: int) -> list[WatchItem]:
    return [await soon(anext(stream)) for _ in range(count)]


def told(items: list[WatchItem]) -> list[tuple[int, tuple[str, ...]]]:
    """Return (zxid, ("NodeCreated /a", ...)) of each change."""
    found = []
    for item in items:
        assert isinstance(item, Change)
        found.append((item.zxid, tuple(f"{each.type} {each.path}" for each in item.events)))
    return found


async def test_each_kind_is_told_what_it_watches() -> None:
    """The znode itself, its direct children, or everything below: nothing else."""
    async with cluster(1) as world:
        znode = watching(world, "/a")
        children = watching(world, "/a", "children")
        subtree = watching(world, "/a", "subtree")

        await write(world, Create("/a"), Create("/a/b"), Create("/a/b/c"), SetData("/a/b", b"x"))
        await write(world, Create("/ab"), Delete("/a", is_recursive=True))

        assert told(await taken(znode, 2)) == [
            (1, ("NodeCreated /a",)),
            (6, ("NodeDeleted /a",)),
        ]
        assert told(await taken(children, 2)) == [
            (2, ("NodeCreated /a/b",)),
            (6, ("NodeDeleted /a/b",)),
        ]
        assert told(await taken(subtree, 5)) == [
            (1, ("NodeCreated /a",)),
            (2, ("NodeCreated /a/b",)),
            (3, ("NodeCreated /a/b/c",)),
            (4, ("NodeDataChanged /a/b",)),
            (6, ("NodeDeleted /a/b/c", "NodeDeleted /a/b", "NodeDeleted /a")),
        ]


async def test_the_root_can_be_watched() -> None:
    """Its children are the top level, its subtree is everything."""
    async with cluster(1) as world:
        children = watching(world, "/", "children")
        subtree = watching(world, "/", "subtree")

        await write(world, Create("/a"), Create("/a/b"))

        assert told(await taken(children, 1)) == [(1, ("NodeCreated /a",))]
        assert [zxid for zxid, _ in told(await taken(subtree, 2))] == [1, 2]


async def test_streams_that_are_told_the_same_share_it() -> None:
    """A change to many watchers is in memory once, also where it is only a part of one."""
    async with cluster(1) as world:
        whole = [watching(world, "/", "subtree"), watching(world, "/", "subtree")]
        part = [watching(world, "/a", "subtree"), watching(world, "/a", "subtree")]

        await write(world, Multi((Create("/a"), Create("/b"), Create("/a/c"))))

        both = [await soon(anext(stream)) for stream in (*whole, *part)]
        assert told(both[1:3]) == [
            (1, ("NodeCreated /a", "NodeCreated /b", "NodeCreated /a/c")),
            (1, ("NodeCreated /a", "NodeCreated /a/c")),
        ]
        assert both[0] is both[1]
        assert both[2] is both[3]


async def test_the_events_of_one_zxid_come_together_and_once() -> None:
    """Several selectors that match one event tell it once; a multi is never split."""
    async with cluster(1) as world:
        stream = world.leader.watches.watch(
            [WatchSelector("/a"), WatchSelector("/", "children"), WatchSelector("/", "subtree")]
        )

        await write(world, Multi((Create("/a"), Create("/b"), SetData("/a", b"x"))))

        (change,) = told(await taken(stream, 1))
        assert change == (1, ("NodeCreated /a", "NodeCreated /b", "NodeDataChanged /a"))


async def test_a_change_can_be_read_before_it_is_told() -> None:
    """Whoever is told of a change finds it, on the same member."""
    async with cluster(1) as world:
        stream = watching(world, "/a")
        await write(world, Create("/a", b"x"))
        (change,) = await taken(stream, 1)

        reply = await world.leader.get("/a", STALE, world.deadline())

        assert reply.zxid >= change.zxid


@pytest.mark.parametrize("from_zxid", range(7))
async def test_a_resumed_watch_has_no_gap_and_no_duplicate(from_zxid: int) -> None:
    """From any zxid that is kept: everything after it, through the history into what is live."""
    async with cluster(1) as world:
        await write(world, Create("/a"), OpenSession("s", 5_000))  # zxid 2 has no events
        await write(world, *(SetData("/a", b"%d" % number) for number in range(3)))
        stream = watching(world, "/a", from_zxid=from_zxid)
        reading = asyncio.create_task(taken(stream, len([n for n in (1, 3, 4, 5, 6, 7, 8)
                                                         if n > from_zxid])))  # fmt: skip
        await write(world, *(SetData("/a", b"later") for _ in range(3)))

        zxids = [zxid for zxid, _ in told(await soon(reading))]

        assert zxids == [n for n in (1, 3, 4, 5, 6, 7, 8) if n > from_zxid]


async def test_a_watch_from_the_future_starts_there() -> None:
    """A client that was told more by another member is not told it again by one that lags."""
    async with cluster(1) as world:
        stream = watching(world, "/a", from_zxid=2)
        await write(world, Create("/a"), SetData("/a", b"1"), SetData("/a", b"2"))

        assert [zxid for zxid, _ in told(await taken(stream, 1))] == [3]


async def test_a_long_history_is_read_in_portions_into_what_is_live() -> None:
    """Thousands of missed changes arrive in order, with those that happen meanwhile."""
    async with cluster(1) as world:
        await write(world, Create("/a"), Create("/b"))
        await write(world, *(SetData("/a" if n % 2 else "/b", b"") for n in range(4_000)))
        stream = watching(world, "/a", from_zxid=0)
        first = told(await taken(stream, 500))
        await write(world, SetData("/a", b"live"))

        rest = told(await taken(stream, 1_502))

        zxids = [zxid for zxid, _ in first + rest]
        assert zxids == sorted(set(zxids))
        assert (zxids[0], zxids[-1], len(zxids)) == (1, 4_003, 2_002)


async def test_what_is_no_longer_kept_is_refused() -> None:
    """CompactedError says from where one can watch; never a silent gap."""
    async with cluster(1, config=limited(watch_history_changes=3)) as world:
        await write(world, Create("/a"), *(SetData("/a", b"") for _ in range(5)))

        with pytest.raises(CompactedError) as caught:
            watching(world, "/a", from_zxid=2)
        assert caught.value.floor_zxid == 3
        assert [z for z, _ in told(await taken(watching(world, "/a", from_zxid=3), 3))] == [4, 5, 6]


async def test_the_history_is_bounded_in_bytes() -> None:
    """Long paths count."""
    async with cluster(1, config=limited(watch_history_bytes=4_096)) as world:
        path = "/" + "x" * 600
        await write(world, Create(path), *(SetData(path, b"") for _ in range(9)))

        assert world.leader.watches.floor_zxid == 6


async def test_a_reader_too_slow_for_replay_is_told_to_resync() -> None:
    """History that is overwritten before it was read ends the stream honestly."""
    async with cluster(1, config=limited(watch_history_changes=1_500)) as world:
        await write(world, Create("/a"), *(SetData("/a", b"") for _ in range(1_400)))
        stream = watching(world, "/a", from_zxid=0)
        await taken(stream, 1)
        await write(world, *(SetData("/a", b"") for _ in range(3_000)))

        items = [item async for item in stream]

        assert len(items) == 1_000
        assert items[-1] == Resync(4_401)


async def test_a_slow_reader_gets_what_was_buffered_and_then_a_resync() -> None:
    """The buffer is bounded; what follows cannot be told without a gap."""
    async with cluster(1, config=limited(watch_buffer_changes=3)) as world:
        stream = watching(world, "/a")
        await write(world, Create("/a"), *(SetData("/a", b"") for _ in range(5)))

        items = [item async for item in stream]

        assert [item.zxid for item in items] == [1, 2, 3, 4]
        assert isinstance(items[-1], Resync)
        assert world.leader.watches._streams == {}


async def test_a_change_larger_than_the_buffer_is_still_told_whole() -> None:
    """An empty buffer takes any one change: a zxid is never split."""
    async with cluster(1, config=limited(watch_buffer_changes=2)) as world:
        stream = watching(world, "/", "subtree")
        await write(world, Multi(tuple(Create(f"/{n}") for n in range(5))))

        ((zxid, events),) = told(await taken(stream, 1))

        assert (zxid, len(events)) == (1, 5)


@pytest.mark.parametrize("from_zxid", [None, 0])
async def test_a_one_shot_watch_ends_after_one_change(from_zxid: int | None) -> None:
    """Live or from the history: one change, then the end."""
    async with cluster(1) as world:
        if from_zxid is not None:
            await write(world, Create("/a"), SetData("/a", b"1"))
        stream = watching(world, "/a", from_zxid=from_zxid, is_one_shot=True)  # type: ignore[arg-type]
        if from_zxid is None:
            await write(world, Create("/a"), SetData("/a", b"1"))

        items = [item async for item in stream]

        assert told(items) == [(1, ("NodeCreated /a",))]
        assert world.leader.watches._streams == {}


async def test_an_idle_stream_is_told_how_far_it_is() -> None:
    """Bookmarks let an idle reader resume where it really is, not where it last read."""
    async with cluster(1, config=limited(bookmark_interval_ms=1_000)) as world:
        stream = watching(world, "/a")
        await write(world, Create("/b"))
        await world.advance(1_100)

        assert await taken(stream, 1) == [Bookmark(1)]


async def test_a_bookmark_never_goes_before_the_start_of_its_stream() -> None:
    """A member that lags does not tell a reader to resume earlier than it asked for."""
    async with cluster(1, config=limited(bookmark_interval_ms=1_000)) as world:
        stream = watching(world, "/a", from_zxid=2)
        await write(world, Create("/b"))
        await world.advance(1_100)
        await write(world, Create("/c"))
        await world.advance(1_000)

        assert await taken(stream, 1) == [Bookmark(2)]


async def test_a_snapshot_ends_live_streams_with_a_resync() -> None:
    """What happened between is not known here; waiting below its zxid is refused too."""
    async with cluster() as world:
        lagging = world.engines["3"]
        lagging.is_applying = False
        member = world.members["3"]
        stream = member.watches.watch([WatchSelector("/a")])
        await write(world, Create("/a"), SetData("/a", b"x"))
        leader_replica = world.engines["1"].replica
        assert leader_replica is not None

        lagging.install(leader_replica.snapshot(), index=2)

        assert [item async for item in stream] == [Resync(2)]
        with pytest.raises(CompactedError):
            member.watches.watch([WatchSelector("/a")], from_zxid=1)
        assert (await member.get("/a", STALE, world.deadline())).value[0] == b"x"


async def test_limits_and_mistakes_are_refused() -> None:
    """Too many streams, too many selectors, no selectors, a kind or a path that is none."""
    async with cluster(1, config=limited(watch_streams_max=1, watches_per_stream_max=2)) as world:
        member = world.leader
        for wrong in ([], [WatchSelector("/a", "tree")], [WatchSelector("a")]):
            with pytest.raises(BadArgumentsError):
                member.watches.watch(wrong)
        with pytest.raises(QuotaExceededError):
            member.watches.watch([WatchSelector(f"/{n}") for n in range(3)])
        stream = member.watches.watch([WatchSelector("/a")])
        with pytest.raises(ThrottledError):
            member.watches.watch([WatchSelector("/b")])

        stream.close()

        member.watches.watch([WatchSelector("/b")])


async def test_a_change_for_a_crowd_is_handed_out_in_pieces_in_order_and_once() -> None:
    """Who begins to watch between the pieces gets what it asked for, and nothing twice."""
    async with cluster(1) as world:
        await write(world, Create("/a"))
        early = [watching(world, "/a") for _ in range(HANDED_AT_ONCE)]
        hub, replica = world.leader.watches, world.leader._replica
        for number in range(3):
            command = encode_command(Command(SetData("/a", b"%d" % number), 1))
            replica.apply(len(world.log) + number + 1, 1, command)
        assert hub._due, "the crowd is too small to be handed out in pieces"
        later = [watching(world, "/a"), watching(world, "/a", from_zxid=2)]
        hub.bookmark(0)
        await settle()
        assert not hub._due
        replica.apply(len(world.log) + 4, 1, encode_command(Command(SetData("/a", b"3"), 1)))
        await settle()

        for stream, first in [(early[0], 2), (early[-1], 2), (later[0], 5), (later[1], 3)]:
            seen = [first - 1]
            while seen[-1] < 5:
                item = await soon(anext(stream))
                if isinstance(item, Bookmark):
                    assert item.zxid <= seen[-1] or first == 5, "it promises what was not told"
                else:
                    seen.append(item.zxid)
            assert seen[1:] == list(range(first, 6))


async def test_a_snapshot_ends_a_crowd_of_streams_in_turns_and_tells_them_nothing_later() -> None:
    """A stream whose turn has not come gets no later change and no bookmark: it missed some."""
    async with cluster(3) as world:
        world.engines["3"].is_applying = False
        lagging = world.members["3"]
        streams = [lagging.watches.watch([WatchSelector("/a")]) for _ in range(3 * AT_ONCE)]
        await write(world, Create("/a"), SetData("/a", b"missed"))
        leader_replica = world.engines["1"].replica
        assert leader_replica is not None

        world.engines["3"].install(leader_replica.snapshot(), index=len(world.log))
        hub = lagging.watches
        later = encode_command(Command(SetData("/a", b"later"), 1))
        lagging._replica.apply(len(world.log) + 1, 1, later)
        hub.bookmark(0)

        for stream in streams:
            assert [type(item) async for item in stream] == [Resync]


@pytest.mark.parametrize("ending", ["closed", "resync", "one shot"])
async def test_the_selectors_of_all_streams_together_are_bounded(ending: str) -> None:
    """They are given back when a stream ends, however it ends, and once."""
    async with cluster(1, config=limited(watch_selectors_max=4, watch_buffer_changes=1)) as world:
        member = world.leader
        three, two = ([WatchSelector(f"/{n}") for n in range(count)] for count in (3, 2))
        stream = member.watches.watch(three, is_one_shot=ending == "one shot")
        with pytest.raises(ThrottledError):
            member.watches.watch(two)
        member.watches.watch([WatchSelector("/a"), WatchSelector("/a")]).close()  # it is one

        if ending == "closed":
            stream.close()
        await write(world, Create("/0"))
        await write(world, Create("/1"))
        stream.close()

        member.watches.watch(two)
        member.watches.watch(two)
        with pytest.raises(ThrottledError):
            member.watches.watch([WatchSelector("/a")])


async def test_a_change_costs_only_those_who_watch_it() -> None:
    """Thousands of other watchers are not looked at."""
    async with cluster(1) as world:
        others = [watching(world, f"/other/{n}", "subtree") for n in range(2_000)]
        stream = watching(world, "/a")

        await write(world, Create("/a"))

        assert told(await taken(stream, 1)) == [(1, ("NodeCreated /a",))]
        assert counted(world.leader, "watch_changes_total") == 1
        assert counted(world.leader, "watch_streams") == len(others) + 1


async def test_when_the_member_stops_streams_end_so_that_readers_go_elsewhere() -> None:
    """The end without a Resync: resume by zxid at another member."""
    async with cluster(1) as world:
        stream = watching(world, "/a")
        reading = asyncio.create_task(taken_all(stream))
        await settle()
        await world.leader.stop()

        assert await soon(reading) == []


async def taken_all(stream: WatchStream) -> list[WatchItem]:
    return [item async for item in stream]


async def test_many_readers_are_woken_some_at_a_time() -> None:
    """Each is told everything in its order; between some of them the loop does other things."""
    async with cluster(1) as world:
        streams = [watching(world, "/a") for _ in range(3 * WOKEN_AT_ONCE + 1)]
        told_at: list[int] = []
        passes = 0

        async def read(stream: WatchStream) -> list[WatchItem]:
            first = await anext(stream)
            told_at.append(passes)
            return [first, await anext(stream)]

        readers = [asyncio.create_task(read(each)) for each in streams]
        await settle()
        world.commit(encode_command(Command(Create("/a"), 1)))
        world.commit(encode_command(Command(SetData("/a", b"x"), 1)))
        while len(told_at) < len(streams):
            await asyncio.sleep(0)
            passes += 1

        assert max(told_at.count(each) for each in set(told_at)) <= WOKEN_AT_ONCE
        found = [told(await soon(each)) for each in readers]
        expected = [(1, ("NodeCreated /a",)), (2, ("NodeDataChanged /a",))]
        assert found == [expected] * len(streams)


async def test_what_many_readers_take_is_handed_to_them_in_few_passes() -> None:
    """Hundreds who watch one znode have a change by the same pass, and thousands hold none."""
    async with cluster(1) as world:
        handed: list[WatchStream] = []

        def taker(stream: WatchStream) -> Callable[[WatchItem], bool]:
            return lambda item: handed.append(stream) is None

        streams = [watching(world, "/a") for _ in range(2_000)]
        for each in streams:
            each.hand_to(taker(each))
        readers = [asyncio.create_task(taken_all(each)) for each in streams]
        await settle()
        world.commit(encode_command(Command(Create("/a"), 1)))
        passes = [len(handed)]
        while len(handed) < len(streams):
            await asyncio.sleep(0)
            passes.append(len(handed) - sum(passes))

        assert 500 <= max(passes) <= HANDED_AT_ONCE // 3 + 1
        assert handed == streams
        for each in streams:
            each.close()
        assert [await soon(each) for each in readers] == [[]] * len(streams)


async def test_what_comes_is_handed_on_at_once_and_in_order_with_what_is_not_taken() -> None:
    """A reader is not woken for what is taken; what is refused, and the end, it reads itself."""
    async with cluster(1) as world:
        stream = watching(world, "/a")
        handed: list[WatchItem] = []
        is_open = True

        def take(item: WatchItem) -> bool:
            if is_open:
                handed.append(item)
            return is_open

        stream.hand_to(take)
        reading = asyncio.create_task(taken_all(stream))
        await settle()
        await write(world, Create("/a"))
        await write(world, SetData("/a", b"x"))
        assert told(handed) == [(1, ("NodeCreated /a",)), (2, ("NodeDataChanged /a",))]
        is_open = False
        await write(world, SetData("/a", b"y"))
        stream.close()

        assert told(await soon(reading)) == [(3, ("NodeDataChanged /a",))]
        assert len(handed) == 2
