"""``extend_by`` and ``renew_to`` move the end of a hold that has a ``max_hold``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import connect
from coordinator.errors import BadArgumentsError, LockLostError, OutcomeUnknownError
from coordinator.recipes import Election, Lock, MultiLock, ReentrantLock, TreeLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.lock_kinds import now


@in_memory
async def test_extend_by_adds_and_renew_to_counts_from_now(world: MemoryCluster) -> None:
    """Twice by five is ten; to ten, said twice, is ten from the second time on."""
    async with world.client(session_timeout=60) as client:
        grant = await Lock(client, "a", max_hold=4).acquire()
        assert 8_000 < await grant.extend_by(5) <= 9_000
        assert 13_000 < await grant.extend_by(5) <= 14_000
        assert grant.max_hold_ms == 14_000

        await asyncio.sleep(10)
        assert 9_000 < await grant.renew_to(10) <= 10_000
        assert 9_000 < await grant.renew_to(2) <= 10_000, "a later end stays"
        await asyncio.sleep(9)
        assert not grant.is_lost
        await asyncio.sleep(2)
        assert grant.is_lost
        assert await world.queue(client, "a") == []


@in_memory
async def test_a_loop_that_renews_holds_for_longer_than_the_bound(world: MemoryCluster) -> None:
    """The bound is what it lasts without a sign of progress; the next one waits all the time."""
    async with world.client() as client, world.client() as other:
        began = now()
        waiting = asyncio.create_task(Lock(other, "a", timeout=300).acquire())
        async with Lock(client, "a", max_hold=5) as grant:
            for _ in range(20):
                await asyncio.sleep(4)
                await grant.renew_to(5)
            assert not waiting.done()
        await waiting

        assert now() - began == pytest.approx(80, abs=2)
        assert grant.max_hold_ms == 5_000, "each leader after this one gives it five seconds"


@in_memory
async def test_what_is_not_held_is_not_extended(world: MemoryCluster) -> None:
    """Lost here, lost there, or released: LockLostError, and nothing is left."""
    async with world.client() as client, world.client() as other:
        grant = await Lock(client, "a", max_hold=60).acquire()
        await other.revoke("a", by="a test", reason="to see")
        with pytest.raises(LockLostError):
            await grant.extend_by(5)
        assert grant.is_lost
        later = await Lock(client, "a", max_hold=60).acquire()
        await later.release()
        with pytest.raises(LockLostError):
            await later.renew_to(5)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e9, "1", None, True])
@in_memory
async def test_times_out_of_range_are_refused(world: MemoryCluster, seconds: Any) -> None:
    """Before anything is sent."""
    async with world.client() as client:
        grant = await Lock(client, "a", max_hold=60).acquire()
        for verb in (grant.extend_by, grant.renew_to):
            with pytest.raises(BadArgumentsError, match="expected seconds"):
                await verb(seconds)


@in_memory
async def test_only_a_lock_with_a_bound_is_extended(world: MemoryCluster) -> None:
    """Each other grant says why not."""
    async with world.client() as client:
        plain = await Lock(client, "a").acquire()
        with pytest.raises(BadArgumentsError, match="without"):
            await plain.extend_by(5)
        by_znodes = await TreeLock(client, "b").acquire()
        with pytest.raises(BadArgumentsError, match="TreeLock"):
            await by_znodes.renew_to(5)
        async with Election(client, "c") as leading:
            with pytest.raises(BadArgumentsError, match="election"):
                await leading.extend_by(5)


@in_memory
async def test_several_locks_and_nested_ones_are_extended_as_one(world: MemoryCluster) -> None:
    """Whichever of their grants says so."""
    async with world.client() as client:
        one, other = await MultiLock(client, "a", "b", max_hold=5).acquire()
        await other.extend_by(5)
        assert one.remaining_safe_ms() == other.remaining_safe_ms() > 9_000
        lock = ReentrantLock(client, "c", max_hold=5)
        async with lock as outer, lock as inner:
            await inner.extend_by(5)
            assert outer.remaining_safe_ms() > 9_000


@in_memory
async def test_an_extension_whose_answers_are_lost_adds_once(world: MemoryCluster) -> None:
    """The request is repeated under its number."""
    network = world.network()
    async with world.client(network) as client:
        grant = await Lock(client, "a", max_hold=5).acquire()
        network.lose_one_reply("POST", "/extend")
        assert 9_000 < await grant.extend_by(5) <= 10_000
        assert network.count("POST", "/extend") == 2


@in_memory
async def test_without_a_heartbeat_it_is_as_safe_as_it_was(world: MemoryCluster) -> None:
    """Done, and not known here for how long: the next heartbeat says so."""
    network = world.network()
    async with world.client(network, timeout=2, session_timeout=60) as client:
        grant = await Lock(client, "a", max_hold=8).acquire()
        network.loses_reply_of = lambda request: request.target.endswith("/heartbeat")
        assert 0 < await grant.extend_by(60) < 8_000
        network.loses_reply_of = lambda _: False
        await asyncio.sleep(1)
        assert await grant.extend() > 30_000


@in_memory
async def test_one_without_any_answer_is_unknown(world: MemoryCluster) -> None:
    """It may have been extended; the grant is held on as far as it is known."""
    network = world.network()
    async with world.client(network, timeout=1, session_timeout=60) as client:
        grant = await Lock(client, "a", max_hold=30).acquire()
        network.loses_reply_of = lambda request: request.target.endswith("/extend")
        with pytest.raises(OutcomeUnknownError):
            await grant.extend_by(30)
        assert not grant.is_lost


def test_sync_clients_extend_too() -> None:
    """The same verbs without await, over a real connection."""
    with serving() as url, connect(url) as client, Lock(client, "a", max_hold=60) as grant:
        before = grant.remaining_safe_ms()
        grant.extend_by(60)
        assert grant.renew_to(90) > before - 1_000  # a moment has passed
        assert (client.lock("a").holder or grant).max_hold_ms == 120_000
