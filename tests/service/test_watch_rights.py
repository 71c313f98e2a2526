"""Streams when access rights change: what is buffered is looked at again, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from coordinator.errors import NoAuthError
from coordinator.model.access import Caller, Rule, Verb
from coordinator.model.events import Change, Event, WatchKind, WatchSelector
from coordinator.service import watch_stream, watches
from coordinator.service.watch_stream import Wanted, WatchStream
from coordinator.service.watches import WatchHub
from coordinator.state.commands import Create, Multi, SetData
from tests.service.contexts import context_of
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.test_watch_values import allowed, with_rights, write

PLAIN = Wanted()
WATCH = (Verb.WATCH,)
BOTH = (Rule("/a", WATCH), Rule("/b", WATCH))
ROUNDS, EVENTS = 30, 200


class CountingHub(WatchHub):
    """Counts what is looked at: the events by the rights, and the streams after a change."""

    def __init__(self, world: World) -> None:
        replica = world.leader._replica
        super().__init__(context_of(world.clock, replica))
        replica.add_listener(self)
        self.events = 0
        self.streams: list[WatchStream] = []

    def shown(self, caller: Caller, events: Iterable[Event]) -> tuple[Event, ...]:
        asked = tuple(events)
        self.events += len(asked)
        return super().shown(caller, asked)

    def check_stream(self, stream: WatchStream, seen: int) -> None:
        self.streams.append(stream)
        super().check_stream(stream, seen)


async def full(world: World, *rules: Rule) -> tuple[CountingHub, WatchStream]:
    """Return a stream of which nothing was read, with ``ROUNDS`` changes of many events."""
    caller, hub = await with_rights(world, *rules), CountingHub(world)
    selector = WatchSelector("/", WatchKind.SUBTREE)
    stream = hub.watch([selector], wanted=PLAIN, caller=caller)
    await write(world, Create("/a"), Create("/b"), Create("/b/c"))
    for _ in range(ROUNDS):
        every = [SetData("/a" if number % 2 else "/b", b"") for number in range(EVENTS)]
        await write(world, Multi(tuple(every)))
    await settle()
    return hub, stream


async def read_paths(stream: WatchStream, until: str) -> list[str]:
    """Return the paths of all events up to one of ``until``."""
    paths: list[str] = []
    while until not in paths:
        item = await soon(anext(stream))
        if isinstance(item, Change):
            paths += [each.path for each in item.events]
    return paths


async def test_a_full_stream_is_looked_at_again_in_portions() -> None:
    """And nothing is delivered that the new rights forbid."""
    async with cluster(1) as world:
        hub, stream = await full(world, *BOTH)
        await allowed(world, BOTH[0])
        await write(world, Create("/a/last"))
        reading = asyncio.ensure_future(read_paths(stream, "/a/last"))
        most = 0
        while not reading.done():
            before = hub.events
            await asyncio.sleep(0)
            most = max(most, hub.events - before)

    paths = reading.result()
    assert hub.events >= ROUNDS * EVENTS
    assert "/b" not in paths
    assert paths.count("/a") == 1 + ROUNDS * EVENTS // 2
    assert most <= watch_stream.SIFTED_AT_ONCE + EVENTS * (watch_stream.HANDED_AT_ONCE + 1)


async def test_a_run_of_what_is_forbidden_is_passed_over_in_portions() -> None:
    """Handed out by a turn or to a reader: thousands of events that nobody gets hold no pass."""
    async with cluster(1) as world:
        hub, stream = await full(world, Rule("/", WATCH))
        handed: list[Any] = []

        def hand(item: Any) -> bool:
            handed.append(item)
            return True

        await allowed(world, Rule("/a/last", WATCH))
        stream.hand_to(hand)
        await write(world, Create("/a/last"))
        reading = asyncio.ensure_future(anext(stream))
        most = 0
        while not (handed or reading.done()):
            before = hub.events
            await asyncio.sleep(0)
            most = max(most, hub.events - before)
        reading.cancel()

    assert [each.path for item in handed for each in item.events] in ([], ["/a/last"])
    assert most <= watch_stream.SIFTED_AT_ONCE + EVENTS + 10
    assert stream._buffered_events <= 1


async def test_rights_that_change_twice_are_those_of_the_delivery() -> None:
    """A change that was looked at but not taken is looked at once more."""
    async with cluster(1) as world:
        _, stream = await full(world, *BOTH)
        await allowed(world, BOTH[0])
        stream.recheck()
        assert stream._sift()
        await allowed(world, BOTH[1])
        await write(world, Create("/b/last"))

        assert set(await read_paths(stream, "/b/last")) == {"/b", "/b/c", "/b/last"}


async def test_a_full_stream_of_a_caller_without_rights_ends_with_nothing() -> None:
    async with cluster(1) as world:
        _, stream = await full(world, *BOTH)
        await allowed(world)
        with pytest.raises(NoAuthError):
            await soon(anext(stream))
        assert not stream._buffer


async def test_streams_are_looked_at_in_portions_of_selectors() -> None:
    """Also those whose readers wait for nothing: a hundred with a thousand selectors each."""
    async with cluster(1) as world:
        caller = await with_rights(world, Rule("/a", WATCH))
        count = 1_000
        selectors = [WatchSelector(f"/a/{n}", WatchKind.ZNODE) for n in range(count)]
        hub = CountingHub(world)
        streams = [hub.watch(selectors, caller=caller) for _ in range(20)]
        changing = asyncio.ensure_future(allowed(world, Rule("/b", WATCH)))
        most = 0
        while len(hub.streams) < len(streams):
            before = len(hub.streams)
            await asyncio.sleep(0)
            most = max(most, len(hub.streams) - before)
        await changing

    assert most <= watches.RECHECKED_AT_ONCE // count + 1
    for each in streams:
        with pytest.raises(NoAuthError):
            await soon(anext(each))
