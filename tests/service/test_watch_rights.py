"""Streams when access rights change: what is buffered is looked at again, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from coordinator.errors import NoAuthError
from coordinator.model.access import Caller, Rule, Verb
from coordinator.model.events import Change, Event, WatchKind, WatchSelector
from coordinator.service.watches import hub as watches
from coordinator.service.watches import watch_stream
from coordinator.service.watches.hub import WatchHub
from coordinator.service.watches.watch_stream import Wanted, WatchStream
from coordinator.state.commands import Create, Multi, SetData
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.rights import allowed, with_rights, write
from tests.service.test_watch_values import watching

PLAIN = Wanted()
WATCH = (Verb.WATCH,)
BOTH = (Rule("/a", WATCH), Rule("/b", WATCH))
ROUNDS, EVENTS = 30, 200


class Looks:
    """What a stream asks, which is the hub; counts the paths that the rights are asked about."""

    def __init__(self, hub: WatchHub) -> None:
        self.count = 0
        self._hub = hub

    def shown(self, caller: Caller, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return those that ``caller`` may watch now."""
        found = tuple(events)
        self.count += len(found)
        return self._hub.shown(caller, found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)


async def full(world: World, *rules: Rule) -> WatchStream:
    """Return a stream of which nothing was read, with ``ROUNDS`` changes of many events."""
    stream = watching(world.leader, wanted=PLAIN, caller=await with_rights(world, *rules))
    await write(world, Create("/a"), Create("/b"), Create("/b/c"))
    for _ in range(ROUNDS):
        every = [SetData("/a" if number % 2 else "/b", b"") for number in range(EVENTS)]
        await write(world, Multi(tuple(every)))
    await settle()
    return stream


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
        stream = await full(world, *BOTH)
        stream._source = looks = Looks(world.leader.watches)
        await allowed(world, BOTH[0])
        await write(world, Create("/a/last"))
        reading = asyncio.ensure_future(read_paths(stream, "/a/last"))
        most = 0
        while not reading.done():
            before = looks.count
            await asyncio.sleep(0)
            most = max(most, looks.count - before)

    paths = reading.result()
    assert "/b" not in paths
    assert paths.count("/a") == 1 + ROUNDS * EVENTS // 2
    assert looks.count >= ROUNDS * EVENTS
    assert most <= watch_stream.SIFTED_AT_ONCE + EVENTS * (watch_stream.HANDED_AT_ONCE + 1)


async def test_a_run_of_what_is_forbidden_is_passed_over_in_portions() -> None:
    """Handed out by a turn or to a reader: thousands of events that nobody gets hold no pass."""
    async with cluster(1) as world:
        stream = await full(world, Rule("/", WATCH))
        handed: list[Any] = []
        await allowed(world, Rule("/a/last", WATCH))
        stream._source = looks = Looks(world.leader.watches)
        stream.hand_to(lambda item: handed.append(item) is None)
        await write(world, Create("/a/last"))
        reading = asyncio.ensure_future(anext(stream))
        most = 0
        while not (handed or reading.done()):
            before = looks.count
            await asyncio.sleep(0)
            most = max(most, looks.count - before)
        reading.cancel()

    assert [each.path for item in handed for each in item.events] in ([], ["/a/last"])
    assert most <= watch_stream.SIFTED_AT_ONCE + EVENTS + 10
    assert stream._buffered_events <= 1


async def test_rights_that_change_twice_are_those_of_the_delivery() -> None:
    """A change that was looked at but not taken is looked at once more."""
    async with cluster(1) as world:
        stream = await full(world, *BOTH)
        await allowed(world, BOTH[0])
        stream.recheck()
        assert stream._sift()
        await allowed(world, BOTH[1])
        await write(world, Create("/b/last"))

        assert set(await read_paths(stream, "/b/last")) == {"/b", "/b/c", "/b/last"}


async def test_a_stream_waits_on_if_nothing_of_its_buffer_may_be_shown_any_more() -> None:
    """The caller may watch something else now, of which the next change is delivered."""
    async with cluster(1) as world:
        stream = watching(world.leader, wanted=PLAIN, caller=await with_rights(world, *BOTH))
        await write(world, Create("/a"), Create("/b"))
        await allowed(world, Rule("/c", WATCH))
        reading = asyncio.ensure_future(anext(stream))
        await settle()
        assert not reading.done()

        await write(world, Create("/c"))

        item = await soon(reading)
        assert isinstance(item, Change)
        assert [each.path for each in item.events] == ["/c"]


async def test_a_full_stream_of_a_caller_without_rights_ends_with_nothing() -> None:
    async with cluster(1) as world:
        stream = await full(world, *BOTH)
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
        streams = [world.leader.watches.watch(selectors, caller=caller) for _ in range(20)]
        is_open = world.leader.watches._streams  # who may not watch is not, once looked at
        changing = asyncio.ensure_future(allowed(world, Rule("/b", WATCH)))
        most = 0
        while is_open:
            before = len(is_open)
            await asyncio.sleep(0)
            most = max(most, before - len(is_open))
        await changing

    assert most <= watches.RECHECKED_AT_ONCE // count + 1
    for each in streams:
        with pytest.raises(NoAuthError):
            await soon(anext(each))
