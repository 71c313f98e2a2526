"""Partitions: one owner each, with one token; what moves when members come and go."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import defaultdict

import pytest

from coordinator.client import AsyncClient, Client, connect
from coordinator.errors import BadArgumentsError, CoordinatorError, NodeExistsError
from coordinator.recipes import Group, Owned, Partitioner
from coordinator.recipes.partitioner import owners_of
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.storm import Life, Storm, left_below, storm


def moved(partitions: int, before: list[str], after: list[str]) -> int:
    """Return how many partitions have another owner when the members have changed."""
    pairs = zip(owners_of(partitions, before), owners_of(partitions, after), strict=True)
    return sum(one != other for one, other in pairs)


def test_shares_are_even_whatever_the_names() -> None:
    """No two differ by more than one; the order in which members are listed says nothing."""
    draw = random.Random(10)
    for _ in range(300):
        partitions, count = draw.randint(1, 60), draw.randint(1, 12)
        names = [f"{draw.getrandbits(48):x}" for _ in range(count)]
        owners = owners_of(partitions, names)
        shares = sorted(owners.count(name) for name in names)
        assert sum(shares) == partitions
        assert shares[-1] - shares[0] <= 1
        assert owners_of(partitions, reversed(names)) == owners
    assert owners_of(7, []) == []


def test_little_moves_when_a_member_comes_or_goes() -> None:
    """Its own share, and some half of that beside it, on the average of many groups."""
    draw = random.Random(11)
    for partitions, count in ((12, 3), (12, 4), (64, 5), (100, 10), (1_000, 20)):
        least = most = 0
        for _ in range(100 if partitions <= 100 else 3):
            names = [f"{draw.getrandbits(48):x}" for _ in range(count)]
            least += owners_of(partitions, names).count(names[-1])
            most += moved(partitions, names, names[:-1])
            assert moved(partitions, names[:-1], names) == moved(partitions, names, names[:-1])
        assert least <= most <= 1.6 * least


async def forever(owned: Owned[AsyncClient]) -> None:
    await asyncio.Event().wait()


@in_memory
async def test_a_member_takes_its_share_and_gives_it_back(world: MemoryCluster) -> None:
    """A second one gets its part only after the first has stopped; tokens grow."""
    async with world.client() as one, world.client() as other:
        stopped: list[int] = []

        async def work(owned: Owned[AsyncClient]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(3)  # it takes a while to stop
                stopped.append(owned.number)

        first = Partitioner(one, "jobs", 8, member="a")
        second = Partitioner(other, "jobs", 8, member="b")
        running = asyncio.create_task(first.run(work))
        await asyncio.sleep(1)
        before = await first.owners()
        assert first.owned == tuple(range(8))
        joining = asyncio.create_task(second.run(forever))
        await asyncio.sleep(1)
        assert second.owned == ()
        await asyncio.sleep(5)
        after = await first.owners()

        assert after.keys() == before.keys() == set(range(8))
        owners = dict(enumerate(owners_of(8, ["a", "b"])))
        assert {number: name for number, (name, _) in after.items()} == owners
        assert sorted(stopped) == sorted(second.owned) != []
        for number in range(8):
            assert (after[number][1] > before[number][1]) == (number in second.owned)
        await second.stop()
        await joining
        await asyncio.sleep(1)
        assert first.owned == tuple(range(8))
        running.cancel()
        await asyncio.wait({running})
        assert await first.owners() == {}
        assert await left_below(one, "/groups") == []


@in_memory
async def test_who_drains_is_given_nothing(world: MemoryCluster) -> None:
    """It is still listed, and says that it is about to go."""
    async with world.client() as one, world.client() as other:
        members = [Partitioner(each, "jobs", 8, member=name) for each, name in
                   ((one, "a"), (other, "b"))]  # fmt: skip
        running = [asyncio.create_task(each.run(forever)) for each in members]
        await asyncio.sleep(2)
        assert 0 < len(members[0].owned) < 8
        async with await Group(one, "jobs").join("c") as third:
            await asyncio.sleep(2)
            shares = sum(len(each.owned) for each in members)
            assert shares < 8, "a part of them is c's, who takes none"
            assert await third.report("draining")
            await asyncio.sleep(2)

            assert sorted(members[0].owned + members[1].owned) == list(range(8))
        for each in members:
            await each.stop()
        await asyncio.gather(*running)


@in_memory
async def test_a_member_that_lost_its_session_stops_and_comes_back(world: MemoryCluster) -> None:
    """Others take over at the end of its lease; then it gets its share again."""
    network = world.network()
    async with world.client(network, session_timeout=3) as one, world.client() as other:
        at_work: set[int] = set()

        async def work(owned: Owned[AsyncClient]) -> None:
            at_work.add(owned.number)
            try:
                await asyncio.Event().wait()
            finally:
                at_work.discard(owned.number)

        members = [Partitioner(one, "jobs", 8, member="a")]
        members.append(Partitioner(other, "jobs", 8, member="b"))
        running = [
            asyncio.create_task(members[0].run(work)),
            asyncio.create_task(members[1].run(forever)),
        ]
        await asyncio.sleep(2)
        share = members[0].owned
        assert at_work == set(share)
        network.is_cut = True
        await asyncio.sleep(6)
        assert members[0].owned == ()
        assert at_work == set()
        assert members[1].owned == tuple(range(8))
        network.is_cut = False
        await asyncio.sleep(15)

        assert members[0].owned == share
        for each in members:
            await each.stop()
        await asyncio.gather(*running)


@in_memory
async def test_work_that_fails_ends_the_run_and_work_that_returns_keeps_its_partition(
    world: MemoryCluster,
) -> None:
    """The first failure is raised when all else has stopped and is released."""
    async with world.client() as client:
        ran: list[int] = []

        async def work(owned: Owned[AsyncClient]) -> None:
            ran.append(owned.number)
            if owned.number == 2:
                await asyncio.sleep(5)
                raise KeyError("mine")

        jobs = Partitioner(client, "jobs", 4)
        running = asyncio.create_task(jobs.run(work))
        await asyncio.sleep(3)
        assert jobs.owned == (0, 1, 2, 3)
        with pytest.raises(BadArgumentsError, match="expected one run"):
            await jobs.run(work)
        with pytest.raises(KeyError):
            await running
        assert sorted(ran) == [0, 1, 2, 3]
        assert await jobs.owners() == {}
        for count in (0, 1_001, True):
            with pytest.raises(BadArgumentsError, match="partitions: expected 1 to 1000"):
                Partitioner(client, "jobs", count)


def test_threads_work_until_they_are_asked_to_stop() -> None:
    """With a sync client; a failure of a thread comes through as well."""
    with serving() as url, connect(url) as client, connect(url) as other:
        tokens: dict[int, int] = {}
        all_run = threading.Event()

        def work(owned: Owned[Client]) -> None:
            tokens[owned.number] = owned.fencing_token
            if len(tokens) == 4:
                all_run.set()
            assert owned.stopping.wait(60)

        def fails(owned: Owned[Client]) -> None:
            raise KeyError(owned.number)

        jobs = Partitioner(client, "jobs", 4)
        running = threading.Thread(target=jobs.run, args=[work])
        running.start()
        assert all_run.wait(60)
        assert {number: token for number, (_, token) in jobs.owners().items()} == tokens
        jobs.stop()
        running.join(60)
        assert not running.is_alive()
        assert jobs.owners() == {}
        with pytest.raises(KeyError):
            Partitioner(other, "jobs", 4).run(fails)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_no_partition_has_two_owners_with_a_valid_token(seed: int) -> None:
    """In any weather: the next begins when the one before has stopped, died, or lost its grant."""
    spans: dict[int, list[list[float]]] = defaultdict(list)
    partitions, members = 6, 4
    calm_s: list[float] = []

    def now() -> float:
        return asyncio.get_running_loop().time()

    async def run(life: Life) -> bool:
        is_last = False

        async def work(owned: Owned[AsyncClient]) -> None:
            span = [owned.fencing_token, now(), float("inf")]
            spans[owned.number].append(span)

            def end() -> None:
                span[2] = min(span[2], now())

            owned.grant.on_lost(end)
            try:
                while not life.is_dead:
                    await asyncio.sleep(0.1)
                    if life.is_dead:
                        break
            finally:
                if not life.is_dead:
                    await asyncio.sleep(life.random.random())
                end()

        jobs = Partitioner(life.client, "jobs", partitions, member=f"m{life.number}")
        running = asyncio.create_task(jobs.run(work))
        try:
            until = now() + life.random.random() * 40
            while not running.done() and (life.storm.is_over or now() < until):
                if life.storm.is_over:
                    over = calm_s[0] if calm_s else now()
                    calm_s[:] = [over]
                    await asyncio.wait({running}, timeout=over + 60 - now())
                    if running.done():
                        break  # it could not register in the last gust
                    names = [f"m{each}" for each in range(members)]
                    owners = enumerate(owners_of(partitions, names))
                    mine = [number for number, name in owners if name == f"m{life.number}"]
                    assert jobs.owned == tuple(mine)
                    is_last = True
                    await asyncio.sleep(over + 80 - now())
                    break
                await asyncio.sleep(0.5)
            await jobs.stop()
            await running
        finally:
            running.cancel()
        return is_last

    async def work(life: Life) -> None:
        while True:
            try:
                if await run(life):
                    return
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        for number in range(partitions):
            owners = spans[number]
            blown.met["owners"] += len(owners)
            assert [each[0] for each in owners] == sorted({each[0] for each in owners})
            for (_, _, ended), (_, began, _) in itertools.pairwise(owners):
                assert ended <= began, (number, owners)
        assert await left_below(observer, "/groups") == []
        assert await left_below(observer, "/locks") == []

    storm(seed, work, judge=judge, clients=members).check(owners=30, kill=1, cut=1)


@in_memory
async def test_one_that_could_not_join_may_run_again(world: MemoryCluster) -> None:
    """Its name was taken: nothing runs, so a later run is the first."""
    async with world.client() as one, world.client() as other:
        taken = await Group(other, "jobs").join("a")
        mine = Partitioner(one, "jobs", 2, member="a")
        with pytest.raises(NodeExistsError):
            await mine.run(forever)
        joining = asyncio.create_task(mine.run(forever))
        await asyncio.sleep(1)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        await taken.leave()

        running = asyncio.create_task(mine.run(forever))
        await asyncio.sleep(1)

        assert mine.owned == (0, 1)
        await mine.stop()
        await running
