"""Fair turns, in simulated time: members that do one thing after the other, and who waits there.

The model: each member is a processor with a queue. A write costs the leader, then both followers,
of which the faster one is waited for; a follower passes it on to the leader first. What counts is
how many operations of a modest client are done in a second beside one that rages, and without it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from coordinator.service.base import turns
from coordinator.service.base.turns import Turns
from tests.raft.simulated_loop import run

ROUND_TRIP_S = 0.0003
EXCHANGE_S = 0.1
VALUE_COST = turns.cost_of(1_000_000)


class Member:
    """A processor that does what it is given in order, and its turns."""

    def __init__(self, *followers: Member) -> None:
        self.turns = Turns()
        self.followers = followers
        self.free_s = 0.0

    async def work(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.free_s = max(self.free_s, loop.time()) + seconds
        await asyncio.sleep(self.free_s - loop.time())

    async def quorum(self, here_s: float, there_s: float) -> None:
        await self.work(here_s)
        acknowledged = [asyncio.ensure_future(each.work(there_s)) for each in self.followers]
        await asyncio.wait(acknowledged, return_when=asyncio.FIRST_COMPLETED)
        await self.work(5e-6)


async def write(at: Member, leader: Member, key: str) -> None:
    if at is not leader:
        await at.work(30e-6)
        mark = await leader.turns.turn(key, 10.0)
        await leader.quorum(50e-6, 30e-6)
        leader.turns.end(key, mark)
        await at.work(10e-6)
    else:
        await leader.quorum(50e-6, 30e-6)


async def read(at: Member, leader: Member, key: str) -> None:
    await at.work(30e-6)
    await leader.quorum(5e-6, 5e-6)
    await at.work(30e-6)


async def listing(at: Member, leader: Member, key: str) -> None:
    await read(at, leader, key)
    await at.work(1e-3)


async def value(at: Member, leader: Member, key: str) -> None:
    """Write a megabyte: all members handle it, and the disk of each syncs it."""
    if at is not leader:
        await at.work(3e-3)
    mark = await leader.turns.turn(key, 10.0, VALUE_COST) if at is not leader else 0
    await leader.quorum(9e-3, 6e-3)
    leader.turns.end(key, mark, VALUE_COST)


async def spaced(at: Member, leader: Member, key: str) -> None:
    """Write, and then nothing for a while, as a client that asks now and then."""
    await write(at, leader, key)


Operation = Callable[[Member, Member, str], Awaitable[None]]


async def client(
    key: str, operation: Operation, at: Member, leader: Member, done: Counter[str], cost: int
) -> None:
    """Ask again and again, as the door lets it."""
    while True:
        mark = await at.turns.turn(key, 10.0, cost)
        await operation(at, leader, key)
        at.turns.end(key, mark, cost)
        done[key] += 1
        await asyncio.sleep(0.05 if operation is spaced else ROUND_TRIP_S)


async def exchange(members: list[Member], leader: Member) -> None:
    """What ``asking`` does."""
    while True:
        await asyncio.sleep(EXCHANGE_S)
        for each in members:
            if each is not leader and (asking := each.turns.asking()):
                count, is_modest = leader.turns.note_elsewhere(asking)
                each.turns.note_cluster(count, is_one_modest=is_modest)


def done_in(seconds: float, *clients: tuple[str, Operation, int, bool]) -> Counter[str]:
    """Return what was done a second by clients of a name, an operation, so many requests under way
    at once, and at the leader alone or at all members."""

    async def scenario() -> Counter[str]:
        followers = [Member(), Member()]
        leader = Member(*followers)
        members, done = [leader, *followers], Counter[str]()
        tasks = [asyncio.ensure_future(exchange(members, leader))]
        for key, operation, depth, is_everywhere in clients:
            costs: dict[Operation, int] = {listing: turns.LONG_COST, value: VALUE_COST}
            cost = costs.get(operation, 1)
            for number in range(depth):
                at = members[number % 3] if is_everywhere else leader
                asking = client(key, operation, at, leader, done, cost)
                tasks.append(asyncio.ensure_future(asking))
        await asyncio.sleep(0.7)
        done.clear()
        await asyncio.sleep(seconds)
        for each in tasks:
            each.cancel()
        return Counter({key: round(count / seconds) for key, count in done.items()})

    return run(scenario())


@pytest.mark.parametrize(
    ("modest", "rage"),
    [
        pytest.param(write, write, marks=pytest.mark.check, id="write beside writes"),
        pytest.param(write, read, marks=pytest.mark.check, id="write beside reads"),
        pytest.param(write, listing, id="write beside lists"),
        pytest.param(write, value, id="write beside values"),
        pytest.param(read, write, id="read beside writes"),
        pytest.param(read, read, marks=pytest.mark.check, id="read beside reads"),
        pytest.param(read, listing, marks=pytest.mark.check, id="read beside lists"),
    ],
)
def test_one_at_full_rage_costs_another_at_most_a_third(modest: Operation, rage: Operation) -> None:
    alone = done_in(0.3, ("modest", modest, 4, False))["modest"]
    beside = done_in(0.3, ("modest", modest, 4, False), ("rage", rage, 600, True))

    assert beside["modest"] >= alone * 2 / 3, (beside, alone)
    assert beside["rage"] > 0, "it is slowed, not shut out"


def test_who_is_alone_never_waits() -> None:
    """However much it asks, on all members; and the others' heartbeats do not change that."""

    async def scenario() -> int:
        alone = Turns()
        marks = [alone.begin("one") for _ in range(turns.ALONE_MAX)]
        for _ in range(100):
            alone.begin("two", is_urgent=True)
            await asyncio.sleep(0.01)
            alone.end("one", marks.pop())
            assert alone.begin("one")
        return alone.waits_total

    assert run(scenario()) == 0


@pytest.mark.check
def test_a_client_that_asks_now_and_then_hardly_slows_another() -> None:
    """The other one rests only while it has something under way."""
    alone = done_in(0.5, ("busy", write, 64, False))["busy"]
    beside = done_in(0.5, ("busy", write, 64, False), ("seldom", spaced, 1, False))["busy"]
    assert beside >= alone / 2, (beside, alone)


def test_who_has_waited_too_long_is_told_so() -> None:
    async def scenario() -> list[int]:
        asked = Turns()
        asked.note_cluster(2, is_one_modest=True)
        held = [asked.begin("one") for _ in range(turns.MODEST_MAX)]
        assert all(held)
        waiting = [asyncio.ensure_future(asked.turn("one", 0.05)) for _ in range(3)]
        given_up = asyncio.ensure_future(asked.turn("one", 60.0))
        await asyncio.sleep(0)
        given_up.cancel()
        return await asyncio.gather(*waiting)

    assert run(scenario()) == [0, 0, 0]


def test_heartbeats_go_first_in_the_line_of_their_client() -> None:
    async def scenario() -> list[str]:
        asked, begun = Turns(), list[str]()
        asked.note_cluster(2, is_one_modest=True)
        marks = [asked.begin("one") for _ in range(turns.MODEST_MAX)]
        assert not asked.begin("one")
        for name, is_urgent in (("write", False), ("heartbeat", True)):

            def begin(_mark: int, name: str = name) -> bool:
                begun.append(name)
                return True

            asked.wait("one", begin, 10.0, is_urgent=is_urgent)
        for mark in marks:
            asked.end("one", mark)
        return begun

    assert run(scenario()) == ["heartbeat", "write"]


def asked_in_periods(*clients: tuple[str, int, int]) -> list[str]:
    """Have clients ask for a second, each for so many requests and kibibytes of long answers in a
    tenth of it; return who is heavy then."""

    async def scenario() -> list[str]:
        asked = Turns()
        for _ in range(10 * 10):
            await asyncio.sleep(0.01)
            for key, requests, kibibytes in clients:
                for _ in range(requests // 10):
                    mark = asked.begin(key)
                    asked.note_work(key, kibibytes // requests)
                    asked.end(key, mark)
        return [key for key, is_heavy in asked.asking() if is_heavy]

    return run(scenario())


def test_who_has_few_long_answers_under_way_is_heavy_by_their_work() -> None:
    """One list at once takes most of a member from reads: who does much more than another rests."""
    assert asked_in_periods(("reads", 300, 0), ("lists", 100, 1_000)) == ["lists"]


def test_a_heavy_client_with_one_request_at_a_time_rests_too() -> None:
    """Its line is empty while it works, which is when the others' requests end."""

    async def scenario() -> Counter[str]:
        asked, done = Turns(), Counter[str]()
        await asyncio.sleep(1.0)
        asked.note_elsewhere([("lists", True)])

        async def repeat(key: str, cost: int, took_s: float) -> None:
            while True:
                mark = await asked.turn(key, 10.0, cost)
                await asyncio.sleep(took_s)
                asked.end(key, mark, cost)
                done[key] += 1

        tasks = [asyncio.ensure_future(repeat("reads", 1, 0.000731)) for _ in range(4)]
        tasks.append(asyncio.ensure_future(repeat("lists", turns.LONG_COST, 0.001)))
        await asyncio.sleep(0.2)
        for each in tasks:
            each.cancel()
        return done

    done = run(scenario())
    assert 0 < done["lists"] <= 25, "one in ten milliseconds"
    assert done["reads"] > 900


def test_who_writes_megabytes_one_at_a_time_is_heavy_by_their_bytes() -> None:
    """Twenty a second beside small writes: never two under way, and most of what a member does."""

    async def scenario() -> list[str]:
        asked = Turns()
        for at in range(100):
            await asyncio.sleep(0.01)
            for key, cost, every in (("small", 1, 1), ("large", VALUE_COST, 5)):
                if at % every == 0 and (mark := asked.begin(key, cost)):
                    asked.end(key, mark, cost)
        return [key for key, is_heavy in asked.asking() if is_heavy]

    assert run(scenario()) == ["large"]


def test_what_is_answered_late_counts_as_long_as_it_takes() -> None:
    """A flood that makes commits slow does not drop out of its own account; nor does who waits for
    an answer become one that asks nothing."""

    async def scenario() -> tuple[int, int]:
        asked = Turns()
        modest = asked.begin("modest")
        heavy = sum(asked.begin("heavy") > 0 for _ in range(100))
        line = [asyncio.ensure_future(asked.turn("heavy", 10.0)) for _ in range(100)]
        await asyncio.sleep(1.0)
        begun = heavy + sum(each.done() for each in line)
        asked.end("modest", modest)
        for each in line:
            each.cancel()
        await asyncio.gather(*line, return_exceptions=True)
        return heavy, begun

    heavy, begun = run(scenario())
    assert heavy == begun <= turns.MODEST_MAX + 1


def test_a_turn_that_is_given_to_who_has_just_gone_is_given_back() -> None:
    """Or its client would be heavy for ever."""

    async def scenario() -> int:
        asked = Turns()
        marks = [asked.begin("one") for _ in range(turns.ALONE_MAX)]
        late = asyncio.ensure_future(asked.turn("one", 10.0))
        await asyncio.sleep(0)
        asked.end("one", marks.pop())
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        for mark in marks:
            asked.end("one", mark)
        return sum(asked.begin("one") > 0 for _ in range(2 * turns.ALONE_MAX))

    assert run(scenario()) == turns.ALONE_MAX


def test_two_that_do_as_much_are_not_heavy() -> None:
    assert not asked_in_periods(("one", 100, 1_000), ("other", 100, 1_200))


def test_a_list_now_and_then_makes_nobody_heavy() -> None:
    """Nor does what a client does alone, or many short requests."""
    assert not asked_in_periods(("reads", 10, 0), ("lists", 10, 80))
    assert not asked_in_periods(("lists", 100, 5_000))
    assert not asked_in_periods(("reads", 10, 0), ("more reads", 400, 0))


def test_who_has_just_come_is_no_measure_of_others() -> None:
    """It has done less than any other by then."""

    async def scenario() -> list[str]:
        asked, heavy = Turns(), list[str]()
        for at in range(30):
            await asyncio.sleep(0.01)
            for key, is_there in (("old", True), ("new", at >= 25)):
                if is_there:
                    mark = asked.begin(key)
                    asked.note_work(key, 50)
                    asked.end(key, mark)
            heavy += [key for key, is_heavy in asked.asking() if is_heavy]
        return heavy

    assert run(scenario()) == []
