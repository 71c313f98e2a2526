"""``max_hold`` ends a grant though its holder lives; ``lock_delay`` keeps the next one waiting."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import LockLostError, LockTimeoutError, OutcomeUnknownError
from coordinator.recipes import Lock, MultiLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.virtual_time import LoopClock
from tests.recipes.lock_kinds import now


@in_memory
async def test_a_bounded_hold_ends_and_its_holder_is_told_before_the_next_is_granted(
    world: MemoryCluster,
) -> None:
    """After 60 s, with a live session: the body is cancelled, then the next one holds."""
    stopped_at = granted_at = 0.0
    async with world.client() as client, world.client() as other:

        async def next_one() -> None:
            nonlocal granted_at
            await Lock(other, "daily", timeout=300).acquire()
            granted_at = now()

        began = now()
        with pytest.raises(LockLostError, match="max_hold"):  # noqa: PT012
            async with Lock(client, "daily", max_hold=60) as grant:
                assert grant.max_hold_ms == 60_000
                contender = asyncio.create_task(next_one())
                try:
                    await asyncio.sleep(600)
                finally:
                    stopped_at = now()
        await contender

        assert 59 < stopped_at - began <= granted_at - began
        assert granted_at - began == pytest.approx(60, abs=0.5)
        (await client.session()).check()  # it lives on


@in_memory
async def test_the_safe_time_is_the_least_of_lease_and_bound(world: MemoryCluster) -> None:
    """A bound beyond the lease does not show until it is nearer than that."""
    async with world.client(session_timeout=10) as client:
        short = await Lock(client, "short", max_hold=4).acquire()
        long = await Lock(client, "long", max_hold=100).acquire()

        assert 3_500 < short.remaining_safe_ms() <= 4_000
        assert 9_000 < long.remaining_safe_ms() <= 10_000
        assert short.max_hold_ms == 4_000
        await asyncio.sleep(3)
        assert short.remaining_safe_ms() < 1_000
        await asyncio.sleep(2)
        assert short.is_lost
        assert not long.is_lost


@pytest.mark.parametrize("rate", [0.99, 1.01])
@in_memory
async def test_a_clock_that_runs_one_percent_off_still_gives_up_first(
    world: MemoryCluster, rate: float
) -> None:
    """The margin covers it, as it does for leases."""
    clock = LoopClock(asyncio.get_running_loop(), rate)
    async with world.client(clock=clock) as client, world.client() as other:
        grant = await Lock(client, "daily", max_hold=600).acquire()
        gone_at: list[float] = []
        grant.on_lost(lambda: gone_at.append(now()))

        await Lock(other, "daily", timeout=3_000).acquire()

        assert gone_at
        assert gone_at[0] < now()


@in_memory
async def test_what_is_left_of_the_bound_is_known_before_the_grant_is(world: MemoryCluster) -> None:
    """No heartbeat, no grant: it is given back, and the caller does not hold it."""
    network = world.network()
    async with world.client(network, timeout=3) as client, world.client() as other:
        await client.session()
        network.loses_reply_of = lambda request: request.target.endswith("/heartbeat")

        with pytest.raises(OutcomeUnknownError, match="released"):
            await Lock(client, "daily", max_hold=60).acquire()
        await asyncio.sleep(3)

        assert await world.queue(other, "daily") == []


@in_memory
async def test_an_unbounded_lock_costs_no_heartbeat(world: MemoryCluster) -> None:
    """The extra round trip is only for who asks for a bound."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()
        before = network.count("POST", "/heartbeat")
        async with Lock(client, "daily"):
            assert network.count("POST", "/heartbeat") == before
        async with Lock(client, "weekly", max_hold=60):
            assert network.count("POST", "/heartbeat") == before + 1


@in_memory
async def test_several_locks_are_bounded_as_one(world: MemoryCluster) -> None:
    """All their grants end together."""
    async with world.client() as client:
        one, other = await MultiLock(client, "a", "b", max_hold=5).acquire()
        await asyncio.sleep(4)
        assert not one.is_lost
        await asyncio.sleep(2)

        assert one.is_lost
        assert other.is_lost
        assert await world.queue(client, "a") == await world.queue(client, "b") == []


@in_memory
async def test_after_an_unclean_loss_the_lock_stays_closed_for_its_delay(
    world: MemoryCluster,
) -> None:
    """What the dead holder had sent can still arrive; after a clean release nobody waits."""
    network = world.network()
    async with (
        world.client(network, session_timeout=2) as client,
        world.client() as other,
    ):
        await Lock(client, "daily", lock_delay=5).acquire()
        network.is_cut = True
        began = now()
        grant = await Lock(other, "daily", timeout=60).acquire()
        took = now() - began
        await grant.release()

        assert 7.0 <= took < 8.0  # the lease and the delay
        async with Lock(other, "daily", lock_delay=5):
            pass
        assert await Lock(other, "daily").try_acquire() is not None
        network.is_cut = False


@in_memory
async def test_a_closed_lock_says_that_it_is_closed(world: MemoryCluster) -> None:
    """Held and closed do not look alike (consul 4508)."""
    network = world.network()
    async with (
        world.client(network, session_timeout=2) as client,
        world.client() as other,
    ):
        await Lock(client, "daily", lock_delay=30).acquire()
        network.is_cut = True
        await asyncio.sleep(5)
        view = await other.lock("daily")
        with pytest.raises(LockTimeoutError):
            await Lock(other, "daily").acquire(timeout=1)

        assert view.holders == ()
        assert view.closed is not None
        assert view.closed.delay_ms == 30_000
        assert view.closed.remaining_ms is not None
        assert 20_000 < view.closed.remaining_ms <= 30_000
        network.is_cut = False
