"""What a lock leaves behind when it is cancelled, cut off or closed: nothing."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Request
from coordinator.errors import OutcomeUnknownError
from coordinator.recipes import Lock
from tests.client.memory_cluster import LEFT, RIGHT, MemoryCluster, in_memory
from tests.client.virtual_time import LoopClock
from tests.recipes.lock_kinds import Kind, each_kind, now


@each_kind
@pytest.mark.parametrize("is_contended", [False, True])
@in_memory
async def test_cancelled_at_any_await_it_leaves_nothing(
    world: MemoryCluster, kind: Kind, is_contended: bool
) -> None:
    """A cancelled acquire or body leaves no waiter and no grant a second later."""
    async with world.client() as client, world.client() as other:
        await client.session()
        holder = Lock(other, "daily", label="holder")

        async def body() -> None:
            async with kind(client, "daily"):
                pass

        for steps in range(100):
            if is_contended:
                await holder.acquire()
            task = asyncio.create_task(body())
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                break  # there are no further awaits to cancel at
            task.cancel()
            await asyncio.wait({task})
            await asyncio.sleep(1)
            assert await world.queue(other, "daily") == (["holder"] if is_contended else []), steps
            await holder.release()


@each_kind
@in_memory
async def test_an_attempt_whose_request_is_lost_is_withdrawn_within_a_second(
    world: MemoryCluster, kind: Kind
) -> None:
    """A cancelled acquire whose answers never came leaves no contender."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        await client.session()
        network.loses_reply_of = lambda request: request.method == "POST"
        acquiring = asyncio.create_task(kind(client, "daily").acquire())
        await asyncio.sleep(2)
        assert len(await world.queue(other, "daily")) == 1
        network.loses_reply_of = lambda request: False
        acquiring.cancel()
        began = now()
        await asyncio.wait({acquiring})
        assert now() - began <= 1.0
        await asyncio.sleep(1 - (now() - began))

        assert await world.queue(other, "daily") == []


@in_memory
async def test_who_wakes_after_deadline_and_lease_is_not_told_that_nothing_is_left(
    world: MemoryCluster,
) -> None:
    """A timeout says "nothing is left"; who lost its session can not know that (simulation, 19)."""
    network = world.network()
    own_clock = LoopClock(asyncio.get_running_loop())
    async with (
        world.client(network, clock=own_clock) as client,
        world.client() as other,
        Lock(other, "daily", label="first") as first,
    ):
        await client.session()
        second = asyncio.create_task(Lock(other, "daily", label="second", timeout=30).acquire())
        await asyncio.sleep(0.5)
        third = Lock(client, "daily", label="third", timeout=5)
        waiting = asyncio.create_task(third.acquire(on_position=lambda position: None))
        await asyncio.sleep(0.5)

        def wake_late(request: Request) -> bool:
            if "locks" not in request.target:
                return False
            own_clock.paused_ms += 30_000  # the process was stopped, and its streams are cut
            network.is_refusing = True
            return True

        network.loses_reply_of = wake_late
        await first.release()
        await second
        with pytest.raises(OutcomeUnknownError, match="may be queued"):
            await waiting

        assert await world.queue(other, "daily") == ["second", "third"]


@each_kind
@in_memory
async def test_a_lost_reply_to_an_acquire_does_not_make_a_second_contender(
    world: MemoryCluster, kind: Kind
) -> None:
    """Same grant, same token, same place."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()
        network.lose_one_reply("POST", "locks" if kind is Lock else "multi")
        proposals = world.proposals

        grant = await kind(client, "daily").acquire()

        view = await client.lock("daily")
        assert view.holder is not None
        assert view.holder.fencing_token == grant.fencing_token
        assert view.queue == ()
        assert world.proposals - proposals == 2  # the second found the first's outcome


@each_kind
@in_memory
async def test_a_member_that_dies_while_we_wait_costs_no_place(
    world: MemoryCluster, kind: Kind
) -> None:
    """The wait goes on at another member, at the same place in the queue."""
    async with world.client() as holder, world.client() as late:
        network = world.network()
        async with world.client(network) as client:
            async with kind(holder, "daily", label="holder"):
                waiting = asyncio.create_task(
                    kind(client, "daily", label="first", timeout=30).acquire()
                )
                await asyncio.sleep(1)
                later = asyncio.create_task(
                    kind(late, "daily", label="second", timeout=30).acquire()
                )
                await asyncio.sleep(1)
                network.kill(client._delivery.endpoints.current)
                await asyncio.sleep(2)
                assert await world.queue(holder, "daily") == ["holder", "first", "second"]
            await waiting
            assert not later.done()
            later.cancel()
            await asyncio.wait({later})
            assert {LEFT, RIGHT} >= {client._delivery.endpoints.current}


@each_kind
@in_memory
async def test_closing_the_client_releases_everything(world: MemoryCluster, kind: Kind) -> None:
    """What was held, and what was waited for, is gone at once."""
    async with world.client() as client, world.client() as other:
        await kind(other, "b").acquire()
        async with world.client() as closing:
            await kind(closing, "a").acquire()
            waiting = asyncio.create_task(kind(closing, "b").acquire())
            await asyncio.sleep(0.5)
            waiting.cancel()

        assert await world.queue(client, "a") == []
        assert await world.queue(client, "b") == [""]
