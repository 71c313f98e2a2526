"""An attempt whose client id the exactly-once table has forgotten: what is said, what is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from coordinator.errors import OutcomeUnknownError
from coordinator.recipes import Election, Lock, MultiLock, RWLock, Semaphore
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.cancelling import standing


async def forget_all_clients(world: MemoryCluster) -> None:
    """Let so many others write that the table has no room for who wrote before."""
    table = world.member._replica.machine._requests
    table.limits = replace(table.limits, clients_max=3)
    for number in range(8):
        async with world.client() as other:
            await other.create(f"/x{number}")


@in_memory
async def test_a_cancellation_stays_one_when_the_attempt_was_forgotten(
    world: MemoryCluster,
) -> None:
    """That it can not be withdrawn by its number is no error of the caller's."""
    async with world.client() as holder, world.client() as waiter:
        await Lock(holder, "daily").acquire()
        waiting = asyncio.create_task(Lock(waiter, "daily", timeout=600).acquire())
        await asyncio.sleep(1)
        await forget_all_clients(world)

        waiting.cancel()
        await asyncio.wait({waiting})

        assert waiting.cancelled()


@in_memory
async def test_a_timeout_is_unknown_when_the_attempt_was_forgotten(world: MemoryCluster) -> None:
    """Not "nothing is left", as long as nobody knows."""
    network = world.network()
    async with world.client() as holder, world.client(network) as waiter:
        await Lock(holder, "daily").acquire()
        waiting = asyncio.create_task(Lock(waiter, "daily", timeout=30).acquire())
        await asyncio.sleep(1)
        await forget_all_clients(world)
        network.loses_reply_of = lambda request: "locks" in request.target

        with pytest.raises(OutcomeUnknownError, match="may be queued"):
            await waiting


@in_memory
async def test_a_forgotten_attempt_is_withdrawn_by_looking_for_it(world: MemoryCluster) -> None:
    """It is granted to nobody, and what its client holds or waits for there stays."""
    async with world.client(label="h") as holder, world.client(label="w") as client:
        first = await Semaphore(holder, "slots", 2, label="first", owner="first").acquire()
        mine = await Semaphore(client, "slots", 2, label="mine", owner="me").acquire()
        waiting = asyncio.create_task(
            Semaphore(client, "slots", 2, label="gives up", owner="me", timeout=600).acquire()
        )
        await asyncio.sleep(1)
        staying = asyncio.create_task(
            Semaphore(client, "slots", 2, label="stays", owner="other", timeout=600).acquire()
        )
        await asyncio.sleep(1)
        assert await world.queue(holder, "slots") == ["first", "gives up", "stays"]
        await forget_all_clients(world)

        waiting.cancel()
        await asyncio.wait({waiting})

        assert await world.queue(holder, "slots") == ["first", "stays"]
        await first.release()
        assert (await staying).fencing_token > mine.fencing_token
        mine.check()
        assert (await mine.is_held()).is_held


@in_memory
async def test_while_its_owner_tries_again_nothing_is_taken_for_forgotten(
    world: MemoryCluster,
) -> None:
    """What stands there may be the other attempt's: it is looked at again when that has ended."""
    async with world.client(label="h") as holder, world.client(label="w") as client:
        held = await RWLock(holder, "daily", label="first").write().acquire()
        giving_up, staying = [
            asyncio.create_task(
                RWLock(client, "daily", label=label, owner="me", timeout=600).read().acquire()
            )
            for label in ("gives up", "stays")
        ]
        await asyncio.sleep(1)
        await forget_all_clients(world)

        giving_up.cancel()
        await asyncio.wait({giving_up})
        await asyncio.sleep(10)
        assert await world.queue(holder, "daily") == ["first", "gives up", "stays"]
        await held.release()
        grant = await staying
        await asyncio.sleep(10)

        assert await world.queue(holder, "daily") == ["stays"]
        grant.check()


@pytest.mark.parametrize("kind", ["election", "several"])
@in_memory
async def test_forgotten_candidates_and_multi_locks_are_found_too(
    world: MemoryCluster, kind: str
) -> None:
    """An election has no owners; several locks go as one."""
    async with world.client() as holder, world.client() as client:
        await Lock(holder, "b").acquire()
        await Election(holder, "e").campaign()
        contender = Election(client, "e") if kind == "election" else MultiLock(client, "a", "b")

        async def stand_by() -> None:
            async with contender:  # type: ignore[attr-defined]
                pass

        waiting = asyncio.create_task(stand_by())
        await asyncio.sleep(1)
        assert sum(map(len, (await standing(holder)).values())) == 3 + (kind == "several")
        await forget_all_clients(world)

        waiting.cancel()
        await asyncio.wait({waiting})

        assert sum(map(len, (await standing(holder)).values())) == 2


@in_memory
async def test_a_forgotten_attempt_of_no_named_owner_goes_with_its_session(
    world: MemoryCluster,
) -> None:
    """Nobody can tell it from another one of that session, so it is not touched."""
    async with world.client() as holder:
        async with world.client() as client:
            await Lock(holder, "daily", label="h").acquire()
            waiting = asyncio.create_task(
                Lock(client, "daily", owner="", label="w", timeout=600).acquire()
            )
            await asyncio.sleep(1)
            await forget_all_clients(world)
            waiting.cancel()
            await asyncio.wait({waiting})
            assert await world.queue(holder, "daily") == ["h", "w"]

        assert await world.queue(holder, "daily") == ["h"]
