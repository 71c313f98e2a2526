"""Pools: each resource is one borrower's at a time, with a token of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict

import pytest

from coordinator.client import AsyncClient, connect
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    LockLostError,
    LockTimeoutError,
    NodeExistsError,
    SessionExpiredError,
)
from coordinator.recipes import Pool
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.client.virtual_time import LoopClock
from tests.recipes.storm import Life, Storm, left_below, storm


def test_threads_borrow_and_give_back() -> None:
    """With a sync client; who comes to an empty pool waits for its turn."""
    with serving() as url, connect(url) as client, connect(url) as other:
        pool = Pool(client, "gpus", ["a/0", "a/1"])
        with pool.borrow() as one, pool.borrow() as two:
            assert sorted([one.resource, two.resource]) == ["a/0", "a/1"]
            assert pool.borrowed() == {
                one.resource: one.fencing_token,
                two.resource: two.fencing_token,
            }
            with pytest.raises(LockTimeoutError):
                Pool(other, "gpus", ["a/0", "a/1"]).borrow(timeout=0)
            token = one.fencing_token
        with Pool(other, "gpus", ["a/0", "a/1"]).borrow(timeout=0) as again:
            assert again.fencing_token > token
            again.check()
        assert pool.borrowed() == {}


@in_memory
async def test_a_borrower_that_lost_its_session_is_told(world: MemoryCluster) -> None:
    """The next gets the resource, with a higher token."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        one = await Pool(client, "p", ["x"]).borrow()
        network.is_cut = True
        two = await Pool(other, "p", ["x"]).borrow(timeout=20)

        assert one.is_lost
        with pytest.raises(SessionExpiredError):
            one.check()
        assert two.fencing_token > one.fencing_token
        network.is_cut = False
        assert not await one.give_back()
        assert await other.exists("/pools/p/x") is not None
        assert await two.give_back()


@in_memory
async def test_a_resource_is_free_before_its_slot_is(world: MemoryCluster) -> None:
    """Given back, the claim goes first: who gets the slot finds a resource."""
    network = world.network()
    async with world.client(network) as client:
        borrowed = await Pool(client, "p", ["x"]).borrow()
        before = len(network.sent)
        await borrowed.give_back()

        claim, slot = network.sent[before:]
        assert claim == "POST /v1/multi"
        assert slot.startswith("DELETE /v1/locks/pool%3Ap/grants/")


@in_memory
async def test_a_claim_that_was_on_its_way_during_a_pause_is_not_relied_upon(
    world: MemoryCluster,
) -> None:
    """Slot and session may have ended since, and the resource be another's."""
    network, clock = world.network(), LoopClock(asyncio.get_running_loop())
    async with world.client(network, clock=clock) as client:
        network.delays_s = lambda request: 0.3 * ("multi" in request.target)
        borrowing = asyncio.create_task(Pool(client, "p", ["x"]).borrow())
        await asyncio.sleep(0.15)
        clock.paused_ms += 60_000

        with pytest.raises((LockLostError, SessionExpiredError)):
            await borrowing


@in_memory
async def test_clients_that_name_other_resources_do_not_wait_for_ever(
    world: MemoryCluster,
) -> None:
    """The semaphore is as large as the first client says; the second finds no resource."""
    async with world.client() as client:
        async with await Pool(client, "p", ["x", "y"]).borrow() as one:
            assert one.resource == "x"
            with pytest.raises(LockTimeoutError, match="other clients may name other resources"):
                await Pool(client, "p", ["x"]).borrow(timeout=2)
        async with await Pool(client, "p", ["x"]).borrow(timeout=2):
            pass
        for resources in ("", "abc", [], ["x", "x"], ["x"] * 10_001):
            with pytest.raises(BadArgumentsError, match="resources: expected 1 to"):
                Pool(client, "p", resources)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_no_resource_has_two_borrowers(seed: int) -> None:
    """In any weather; and nothing is left borrowed."""
    spans: dict[str, list[list[float]]] = defaultdict(list)
    resources = ["r0", "r1"]

    def now() -> float:
        return asyncio.get_running_loop().time()

    async def work(life: Life) -> None:
        while not life.storm.is_over:
            try:
                async with await Pool(life.client, "p", resources).borrow(timeout=20) as one:
                    span = [one.fencing_token, now(), float("inf")]
                    spans[one.resource].append(span)
                    ends = now() + life.random.random() * 2
                    try:
                        while now() < ends and not one.is_lost and not life.is_dead:
                            span[2] = now() + 0.05
                            await asyncio.sleep(0.05)
                    finally:
                        span[2] = min(span[2], now())
            except NodeExistsError:
                raise  # another was first: that is not the borrower's business
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.2)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        for each in spans.values():
            blown.met["borrowed"] += len(each)
            assert [span[0] for span in each] == sorted({span[0] for span in each})
            for (_, _, ended), (_, began, _) in itertools.pairwise(each):
                assert ended <= began + 0.001
        assert await left_below(observer, "/pools") == []
        assert await left_below(observer, "/locks") == []

    storm(seed, work, judge=judge, clients=4).check(borrowed=30, kill=1, cut=1)
