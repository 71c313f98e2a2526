"""Values in watches: with every change the data after and before it, or a plain refusal."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from coordinator.errors import (
    BadArgumentsError,
    CompactedError,
)
from coordinator.model.access import Caller, Rule, Verb
from coordinator.model.events import Bookmark, Change, Event, EventType, WatchKind, WatchSelector
from coordinator.node.config import Config, MemberLimits
from coordinator.service.member import Member
from coordinator.service.watches.hub import HANDED_AT_ONCE
from coordinator.service.watches.kept_change import KeptChange
from coordinator.service.watches.watch_history import CHANGE_BYTES_MAX, ValuesHistory, kept_events
from coordinator.service.watches.watch_stream import Wanted, WatchStream
from coordinator.state.commands import (
    Create,
    Delete,
    Multi,
    PutIdentity,
    PutRole,
    SetData,
)
from coordinator.waiting import AT_ONCE
from tests.service.fake_cluster import cluster, settle, soon
from tests.service.rights import allowed, with_rights, write

VALUES = Wanted(has_values=True)


def limited(**limits: int) -> Config:
    return Config(limits=replace(MemberLimits(), **limits))


def watching(
    member: Member,
    path: str = "/",
    *,
    from_zxid: int | None = None,
    wanted: Wanted = VALUES,
    bookmark_ms: int | None = None,
    caller: Caller | None = None,
) -> WatchStream:
    return member.watches.watch(
        [WatchSelector(path, WatchKind.SUBTREE)],
        from_zxid=from_zxid,
        wanted=wanted,
        bookmark_ms=bookmark_ms,
        **({} if caller is None else {"caller": caller}),
    )


def values(items: Iterable[object]) -> list[tuple[int, str, bytes | None, bytes | None]]:
    """Return (zxid, path, data, previous data) of each event."""
    found = []
    for item in items:
        assert isinstance(item, Change)
        for each in item.events:
            found.append((item.zxid, each.path, each.data, each.previous_data))
    return found


async def taken(stream: WatchStream, count: int) -> list[object]:
    return [await soon(anext(stream)) for _ in range(count)]


WRITES = (
    Create("/a", b"1"),
    SetData("/a", b"2"),
    Multi((Create("/a/b", b"x"), SetData("/a", b"3"), SetData("/a", b"4"))),
    Delete("/a", is_recursive=True),
)


EXPECTED = [
    (1, "/a", b"1", None),
    (2, "/a", b"2", b"1"),
    (3, "/a/b", b"x", None),
    (3, "/a", b"3", b"2"),
    (3, "/a", b"4", b"3"),
    (4, "/a/b", None, b"x"),
    (4, "/a", None, b"4"),
]


async def test_each_change_has_the_data_after_and_before_it() -> None:
    """Live and from the history, on every member: the same. Without asking there is none."""
    async with cluster(3) as world:
        live = watching(world.leader)
        plain = watching(world.leader, wanted=Wanted())
        await write(world, *WRITES)
        await settle()

        assert values(await taken(live, 4)) == EXPECTED
        assert {each[2:] for each in values(await taken(plain, 4))} == {(None, None)}
        for member in world.members.values():
            assert values(await taken(watching(member, from_zxid=0), 4)) == EXPECTED
            assert values(await taken(watching(member, from_zxid=2), 2)) == EXPECTED[2:]


async def test_only_what_is_wanted_is_delivered() -> None:
    """By type, by the beginning of the path, and both; live and from the history."""
    created = frozenset({EventType.CREATED})
    rows = [
        (Wanted(only=created), [(1, "/a"), (3, "/a/b")]),
        (Wanted(only=frozenset({EventType.DELETED}), prefix="/a/"), [(4, "/a/b")]),
        (Wanted(prefix="/a/"), [(3, "/a/b"), (4, "/a/b")]),
        (Wanted(True, frozenset({EventType.DATA_CHANGED})), [(2, "/a"), (3, "/a"), (3, "/a")]),
    ]
    async with cluster(1) as world:
        live = [watching(world.leader, wanted=wanted) for wanted, _ in rows]
        await write(world, *WRITES)
        past = [watching(world.leader, from_zxid=0, wanted=wanted) for wanted, _ in rows]

        for stream, (_, expected) in zip([*live, *past], [*rows, *rows], strict=True):
            found: list[tuple[int, str]] = []
            while len(found) < len(expected):
                found += [each[:2] for each in values(await taken(stream, 1))]
            assert found == expected
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(live[0])


async def test_forgotten_values_are_refused_while_events_are_kept() -> None:
    """A watch without values resumes from where one with values no longer can."""
    async with cluster(1, config=limited(watch_values_bytes=5_000)) as world:
        for number in range(20):
            await write(world, Create(f"/n{number}", bytes(1_000)))

        with pytest.raises(CompactedError) as refused:
            watching(world.leader, from_zxid=0)
        floor_zxid = refused.value.fields["floor_zxid"]

        assert 10 < floor_zxid < 20
        assert values(await taken(watching(world.leader, from_zxid=floor_zxid), 1))
        plain = await taken(watching(world.leader, from_zxid=0, wanted=Wanted()), 20)
        assert [each[0] for each in values(plain)] == list(range(1, 21))


async def test_a_slow_reader_never_gets_a_change_without_its_values() -> None:
    """What waits for it has no values of its own: once they are forgotten the watch ends."""
    async with cluster(1, config=limited(watch_values_bytes=5_000)) as world:
        slow = watching(world.leader)
        await write(world, Create("/a", b"1"))
        assert values(await taken(slow, 1)) == [(1, "/a", b"1", None)]
        for number in range(20):
            await write(world, SetData("/a", b"%d" % number + bytes(1_000)))

        with pytest.raises(CompactedError):
            await taken(slow, 1)
        with pytest.raises(CompactedError):
            await taken(slow, 1)


async def test_a_change_too_large_for_a_line_ends_watches_with_values() -> None:
    """Whoever reads without them goes on; a watch from behind it does, too."""
    most = bytes(1024 * 1024)
    assert 2 * len(most) < CHANGE_BYTES_MAX < 3 * len(most), "two fit, three do not"
    async with cluster(1) as world:
        await write(world, Create("/a", most))
        large = watching(world.leader)
        plain = watching(world.leader, wanted=Wanted())
        await write(world, Multi((SetData("/a", b""), Create("/b", most))), Create("/c", most))
        await write(world, Multi((SetData("/b", most), Delete("/b"))), Create("/d", b"d"))

        with pytest.raises(CompactedError):
            await taken(large, 1)
        assert len(await taken(plain, 3)) == 3
        assert values(await taken(watching(world.leader, from_zxid=4), 1)) == [
            (5, "/d", b"d", None)
        ]


def test_the_history_of_values_is_bounded() -> None:
    """By bytes, at every moment; the floor is the newest zxid that was forgotten."""
    history, draw = ValuesHistory(20_000), random.Random(3)
    history.restart(0)
    event = EventType.DATA_CHANGED
    for zxid in range(1, 400):
        count = draw.randrange(1, 4)
        values = (bytes(draw.randrange(4_000)), bytes(draw.randrange(4_000))) * count
        events = (Event(event, path="/a", version=1, czxid=1),) * count
        history.append(KeptChange(zxid, kept_events(zxid, events), wall_ms=5, values=values))

        assert history.bytes_count <= 20_000
        for known in range(1, zxid + 1):
            kept = history._kept.get(known)
            assert (kept is not None) == (known > history.floor_zxid)
        all_kept = [history._kept.at(place) for place in range(len(history._kept))]
        real = sum(len(value or b"") for kept in all_kept for value in kept.values)
        assert real < history.bytes_count or not all_kept


async def test_a_restored_snapshot_forgets_values() -> None:
    """What happened between is not known: a watch from before it is refused."""
    async with cluster(1) as world:
        await write(world, Create("/a", b"1"))
        replica = world.leader._replica
        replica.restore(list(replica.snapshot()))

        assert world.leader.watches._values.bytes_count == 0

        with pytest.raises(CompactedError):
            watching(world.leader, from_zxid=0)


async def test_bookmarks_come_as_often_as_asked_for() -> None:
    """At once when the watch has caught up, then at the asked pace, though nothing changes."""
    async with cluster(1) as world:
        await write(world, Create("/a"), Create("/other"))
        stream = watching(world.leader, "/a", from_zxid=0, bookmark_ms=300)

        assert values(await taken(stream, 1)) == [(1, "/a", b"", None)]
        assert await taken(stream, 1) == [Bookmark(2)]
        await write(world, Create("/another"))
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(stream))
            await settle()
            assert not waiting.done()
            await world.advance(310)
            assert await soon(waiting) == Bookmark(3)


async def test_what_may_not_be_read_has_no_value() -> None:
    """Neither the new one nor the old one; that is said, and what may not be watched is not."""
    async with cluster(1) as world:
        caller = await with_rights(
            world, Rule("/a", (Verb.READ, Verb.WATCH)), Rule("/b", (Verb.WATCH,))
        )
        stream = watching(world.leader, caller=caller)
        await write(world, Multi((Create("/a", b"1"), Create("/b", b"s"), Create("/c", b"t"))))
        await write(world, SetData("/b", b"secret"), Delete("/b"))

        change, changed, deleted = await taken(stream, 3)
        assert isinstance(change, Change)
        assert isinstance(changed, Change)
        assert isinstance(deleted, Change)
        assert [(each.path, each.data, each.is_withheld) for each in change.events] == [
            ("/a", b"1", False),
            ("/b", None, True),
        ]
        assert [each[2:] for each in values([changed, deleted])] == [(None, None)] * 2


async def test_who_may_read_shares_no_value_with_who_may_not() -> None:
    """Two that watch the same are handed the same change, each with what it may read."""
    async with cluster(1) as world:
        caller = await with_rights(world, Rule("/b", (Verb.WATCH,)))
        streams = [watching(world.leader), watching(world.leader, caller=caller)]
        await write(world, Create("/b", b"secret"))

        found = [(await taken(stream, 1))[0] for stream in streams]
        assert [values([each])[0][2] for each in found] == [b"secret", None]


@pytest.mark.parametrize("gone", [Verb.READ, Verb.WATCH])
async def test_other_rights_end_a_watch_with_values(gone: Verb) -> None:
    """A copy made of it would no longer be what its owner may see: it must be made again."""
    rules = (Rule("/a", (Verb.READ, Verb.WATCH)), Rule("/b", (Verb.READ, Verb.WATCH)))
    async with cluster(1) as world:
        caller = await with_rights(world, *rules)
        stream = watching(world.leader, caller=caller)
        plain = watching(world.leader, caller=caller, wanted=Wanted())
        zxid = world.leader._replica.machine.zxid
        await write(world, PutRole("other", rules))
        await write(world, Create("/a", b"1"))
        assert [each[1] for each in values(await taken(stream, 1))] == ["/a"]

        await write(world, Create("/b", b"2"))
        left = tuple(verb for verb in (Verb.READ, Verb.WATCH) if verb is not gone)
        await allowed(world, rules[0], Rule("/b", left))
        await settle()

        with pytest.raises(CompactedError):
            await taken(stream, 1)
        assert await taken(plain, 1)
        with pytest.raises(CompactedError):
            watching(world.leader, caller=caller, from_zxid=zxid)
        assert watching(world.leader, caller=caller)


async def test_rights_that_come_back_at_once_end_a_watch_with_values() -> None:
    """Many streams are looked at in turns: one whose turn comes when its rights are as before has
    missed what they left out meanwhile."""
    both = (Verb.READ, Verb.WATCH)
    rules = (Rule("/a", both), Rule("/b", both))
    async with cluster(1) as world:
        caller = await with_rights(world, *rules)
        streams = [watching(world.leader, caller=caller) for _ in range(AT_ONCE + 2)]
        await asyncio.gather(
            allowed(world, rules[0]), write(world, Create("/b", b"secret")), allowed(world, *rules)
        )
        await write(world, Create("/a", b"1"))

        for stream in streams:
            with pytest.raises(CompactedError, match="access rights have changed"):
                await soon(anext(stream))


async def test_a_prefix_is_no_longer_than_a_path() -> None:
    """Each of thousands of streams keeps its own."""
    async with cluster(1) as world:
        longest = world.leader._replica.machine.limits.path_bytes_max
        watching(world.leader, wanted=Wanted(prefix="/" * longest)).close()
        with pytest.raises(BadArgumentsError, match="prefix: expected at most"):
            watching(world.leader, wanted=Wanted(prefix="\N{EURO SIGN}" * (longest // 2)))


async def test_bookmarks_of_many_watches_come_less_often() -> None:
    """All of a member together are bounded: who asks for more makes each wait longer."""
    async with cluster(1) as world:
        streams = [watching(world.leader, bookmark_ms=100) for _ in range(500)]
        found: list[object] = []
        for each in streams:
            each.hand_to(lambda item: found.append(item) is None)
        waiting = [asyncio.ensure_future(anext(each)) for each in streams]
        await settle()
        await world.advance(2_000)
        assert 1_500 <= len(found) <= 2_500

        for each in streams[1:]:
            each.close()
        await world.advance(600)
        found.clear()
        await world.advance(1_000)
        assert len(found) == 10
        streams[0].close()
        await asyncio.wait(waiting)
        assert world.leader.watches._bookmarked == 0


async def test_what_is_handed_out_is_bounded_in_each_pass_of_the_loop() -> None:
    """Each caller with rights of its own costs a look at each event, and a line of its own."""
    looks = events = 0
    passes: list[tuple[int, int]] = []

    class Looking(Wanted):
        """Asked about an event directly before the rights of its stream's caller are."""

        def passes(self, event: Event) -> bool:
            nonlocal looks
            looks += 1
            return super().passes(event)

    def take(item: object) -> bool:
        nonlocal events
        assert isinstance(item, Change)
        events += len(item.events)
        return True

    async with cluster(1) as world:
        await with_rights(world)
        for number in range(60):
            await write(
                world, PutIdentity(f"c{number}", roles=("all",), subjects=(f"cert:c{number}",))
            )
        table = world.leader._replica.machine.access
        callers = [table.by_subject(f"cert:c{number}") for number in range(60)]
        streams = [watching(world.leader, wanted=Looking(), caller=each) for each in callers]
        for each in streams:
            each.hand_to(take)
        waiting = [asyncio.ensure_future(anext(each)) for each in streams]
        await settle()
        looks = 0
        writing = asyncio.ensure_future(
            write(world, Multi(tuple([Create(f"/n{number}") for number in range(500)])))
        )
        while events < 60 * 500:
            before = looks, events
            await asyncio.sleep(0)
            passes.append((looks - before[0], events - before[1]))
        await soon(writing)
        for future in waiting:
            future.cancel()

    assert max(each[0] for each in passes) <= HANDED_AT_ONCE
    assert max(each[1] for each in passes) <= 2_000


async def test_rights_that_go_while_a_change_is_handed_out_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams of one caller share what they are handed, and some get it in a later pass."""
    monkeypatch.setattr("coordinator.service.watches.hub.HANDED_AT_ONCE", 3)
    rules = (Rule("/a", (Verb.WATCH,)), Rule("/b", (Verb.WATCH,)))
    async with cluster(1) as world:
        caller = await with_rights(world, *rules)
        streams = [watching(world.leader, wanted=Wanted(), caller=caller) for _ in range(90)]
        await write(world, Create("/a"))
        for each in streams:
            await taken(each, 1)
        writing = asyncio.ensure_future(write(world, Multi((SetData("/a", b""), Create("/b")))))
        for _ in range(1_000):
            if streams[9]._buffer:
                break
            await asyncio.sleep(0)
        await allowed(world, rules[0])
        assert not streams[-1]._buffer
        await writing

        for each in streams:
            (change,) = await taken(each, 1)
            assert isinstance(change, Change)
            assert [event.path for event in change.events] == ["/a"]


async def test_a_long_history_is_read_in_portions_of_events() -> None:
    """A thousand changes may have a million events; each is delivered once, in order."""
    async with cluster(1) as world:
        for at in range(9):
            await write(
                world, Multi(tuple([Create(f"/n{at}-{number:03}") for number in range(600)]))
            )
        stream = watching(world.leader, from_zxid=0, wanted=Wanted())
        stream._catch_up()
        first = len(stream._buffer)
        await write(world, Create("/last"))

        items = await taken(stream, 10)

    assert first == 4
    assert [item.zxid for item in items if isinstance(item, Change)] == list(range(1, 11))
