"""Elections: one elected, the others stand by, and everybody can see who it is."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import LockLostError, LockTimeoutError, NotOwnerError
from coordinator.recipes import Election
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.lock_kinds import now


@in_memory
async def test_exactly_one_is_elected_and_the_others_follow_in_turn(world: MemoryCluster) -> None:
    """Three replicas: one runs, two stand by; epochs grow."""
    running: list[str] = []
    epochs: list[int] = []

    async def replica(name: str) -> None:
        async with (
            world.client() as client,
            Election(client, "service", value=name.encode(), label=name) as leadership,
        ):
            running.append(name)
            assert len(running) == 1
            epochs.append(leadership.epoch)
            await asyncio.sleep(5)
            running.remove(name)

    await asyncio.gather(*(replica(name) for name in "abc"))

    assert epochs == sorted(set(epochs))
    assert len(epochs) == 3


@in_memory
async def test_who_proclaim_and_resign(world: MemoryCluster) -> None:
    """The elected publishes a value that all can read; resigning ends it."""
    async with world.client() as one, world.client() as two, world.client() as observer:
        first, second = Election(one, "service", value=b"one"), Election(two, "service")
        leadership = await first.campaign()
        standing_by = asyncio.create_task(second.campaign(b"two"))
        await asyncio.sleep(0.5)

        view = await Election(observer, "service").who()
        assert view.elected is not None
        assert (view.elected.value, view.elected.fencing_token) == (b"one", leadership.epoch)
        assert len(view.candidates) >= 1
        await first.proclaim(b"still one")
        view = await Election(observer, "service").who()
        assert view.elected is not None
        assert view.elected.value == b"still one"
        with pytest.raises(NotOwnerError):
            await second.proclaim(b"me")
        assert await leadership.verify() > 0

        assert await first.resign() is True
        assert (await standing_by).epoch > leadership.epoch
        with pytest.raises(NotOwnerError):
            await first.proclaim(b"late")
        assert await first.resign() is False


@in_memory
async def test_observers_hear_of_each_change_although_a_member_dies(world: MemoryCluster) -> None:
    """The present first, then each change of elected or value, over reconnects."""
    network = world.network()
    received: list[bytes | None] = []
    async with world.client() as client, world.client(network) as observer:

        async def listen() -> None:
            async with Election(observer, "service").observe() as stream:
                async for elected in stream:
                    received.append(elected.elected.value if elected.elected else None)

        listening = asyncio.create_task(listen())
        await asyncio.sleep(1)
        election = Election(client, "service", value=b"1")
        await election.campaign()
        await asyncio.sleep(1)
        network.kill(observer._delivery.endpoints.current)
        await asyncio.sleep(5)
        await election.proclaim(b"2")
        await asyncio.sleep(1)
        await election.resign()
        await asyncio.sleep(1)
        listening.cancel()
        await asyncio.wait({listening})

    assert received == [None, b"1", b"2", None]


@in_memory
async def test_the_elected_that_is_cut_off_stops_before_the_next_one_starts(
    world: MemoryCluster,
) -> None:
    """Loss of leadership cancels the work, in time."""
    network = world.network()
    stopped_at = started_at = 0.0

    async def next_one(client: AsyncClient) -> None:
        nonlocal started_at
        async with Election(client, "service"):
            started_at = now()

    async with world.client(network, session_timeout=3) as client, world.client() as other:
        with pytest.raises(LockLostError):  # noqa: PT012
            async with Election(client, "service"):
                standing_by = asyncio.create_task(next_one(other))
                await asyncio.sleep(1)
                network.is_cut = True
                try:
                    await asyncio.sleep(60)
                finally:
                    stopped_at = now()
        await standing_by

    assert 0 < stopped_at < started_at < stopped_at + 3


@in_memory
async def test_a_campaign_can_have_a_deadline(world: MemoryCluster) -> None:
    """Standing by is without end by default; a timeout makes it finite."""
    async with world.client() as one, world.client() as two, Election(one, "service"):
        with pytest.raises(LockTimeoutError):
            await Election(two, "service").campaign(timeout=2)
        patient = asyncio.create_task(Election(two, "service").campaign())
        await asyncio.sleep(120)
        assert not patient.done()
        patient.cancel()
        await asyncio.wait({patient})
        assert [each.label for each in (await one.election("service")).candidates] in ([], [""])
