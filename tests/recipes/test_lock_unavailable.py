"""Locks while the service is away: never entered, never claimed to be certain."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from coordinator.client import Client, RetryPolicy
from coordinator.client.calling.deadline import MARGIN_MS
from coordinator.errors import (
    LockTimeoutError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes import Lock, TreeLock
from coordinator.testing import LocalCluster
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.lock_kinds import Kind, each_kind, now


@each_kind
@in_memory
async def test_without_the_service_an_acquire_fails_in_time_and_the_body_is_not_entered(
    world: MemoryCluster, kind: Kind
) -> None:
    """An error within the deadline, of a kind of its own."""
    for is_refusing in (True, False):
        network = world.network()
        network.is_refusing, network.is_cut = is_refusing, not is_refusing
        async with world.client(network, timeout=3) as client:
            began = now()
            with pytest.raises((UnavailableError, OutcomeUnknownError)) as raised:
                async with kind(client, "daily", timeout=3):
                    pytest.fail("the body ran without the lock")
            assert now() - began <= 4.1
            assert not isinstance(raised.value, LockTimeoutError)
    async with world.client() as observer:
        assert await world.queue(observer, "daily") == []


@in_memory
async def test_one_try_at_members_that_took_it_and_say_nothing_tells_what_may_be_left(
    world: MemoryCluster,
) -> None:
    """As by members that are frozen: it may be queued when they go on, so it is not called
    refused; the words say that it was not acquired, and what ends the doubt."""
    network = world.network()
    async with world.client(network) as client:
        async with Lock(client, "daily"):
            pass
        network.is_cut = True
        for owner, act in (
            ("a", lambda lock: lock.try_acquire()),
            ("b", lambda lock: lock.acquire(timeout=0)),
        ):
            with pytest.raises(OutcomeUnknownError) as raised:
                await act(Lock(client, "daily", owner=owner))
            message = raised.value.message
            assert message.startswith("daily: not acquired, no member said more: "), message
            assert "may be queued until its withdrawal arrives or session" in message
        network.is_cut = False


@in_memory
async def test_a_waiter_cut_off_at_its_deadline_does_not_claim_to_have_left_nothing(
    world: MemoryCluster,
) -> None:
    """Not granted, but maybe still queued, is an unknown outcome; it clears itself up later."""
    network = world.network()
    async with (
        world.client() as holder,
        world.client(network, session_timeout=60) as client,
        Lock(holder, "daily", label="holder"),
    ):
        waiting = asyncio.create_task(Lock(client, "daily", timeout=5, label="cut").acquire())
        await asyncio.sleep(1)
        network.is_cut = True
        network.kill(client._delivery.endpoints.current)
        with pytest.raises(OutcomeUnknownError):
            await waiting
        assert await world.queue(holder, "daily") == ["holder", "cut"]
        network.is_cut = False
        await asyncio.sleep(8)
        assert await world.queue(holder, "daily") == ["holder"]


@in_memory
async def test_a_wait_that_is_out_of_tries_is_not_called_out_of_time(world: MemoryCluster) -> None:
    """The connection broke after a second of a minute: nobody knows who would have been next."""
    async with world.client() as holder, Lock(holder, "daily"):
        for act in (Lock.acquire, Lock.try_acquire):
            network = world.network()
            async with world.client(network, retry=RetryPolicy(tries=1)) as client:
                await client.session()
                waiting = asyncio.create_task(act(Lock(client, "daily"), timeout=60))
                await asyncio.sleep(1)
                network.kill(client.delivery.endpoints.current)

                with pytest.raises(UnavailableError, match="withdrawn"):
                    await waiting
                assert await world.queue(holder, "daily") == [""]


@in_memory
async def test_a_short_wait_ends_in_time_and_so_does_its_client(world: MemoryCluster) -> None:
    """What opens a session in vain holds up nobody who has given up, and the error says why."""
    for is_refusing in (True, False):
        network = world.network()
        network.is_refusing, network.is_cut = is_refusing, not is_refusing
        async with world.client(network, timeout=10) as client:
            with pytest.raises(UnavailableError, match=r"within 0\.3 s") as raised:
                await client.session(0.3)
            ended = now()
            assert ("refused" in raised.value.message) == is_refusing
        assert now() - ended <= 0.3


@in_memory
async def test_an_attempt_that_opens_the_session_ends_in_time_and_so_does_its_client(
    world: MemoryCluster,
) -> None:
    """Refused, it certainly did nothing; without an answer, nobody knows, as with any attempt."""
    for is_refusing in (True, False):
        network = world.network()
        network.is_refusing, network.is_cut = is_refusing, not is_refusing
        async with world.client(network, timeout=10) as client:
            began = now()
            with pytest.raises(UnavailableError if is_refusing else OutcomeUnknownError):
                await Lock(client, "daily").acquire(timeout=0.3)
            ended = now()
            assert ended - began <= 0.31 + MARGIN_MS / 1000
        assert now() - ended <= 2.1  # it tries to withdraw, as with any attempt


@in_memory
async def test_what_an_acquire_waits_for_one_after_the_other_shares_its_one_deadline(
    world: MemoryCluster,
) -> None:
    """Its owner's clean-up, then an attempt in a new session: each gets what is left of the time,
    and the withdrawal its moment after it."""
    network = world.network()
    network.is_cut = True
    async with world.client(network, timeout=30) as client:
        client.clean_ups.add("me", asyncio.create_task(asyncio.sleep(4.5)))
        began = now()

        with pytest.raises(OutcomeUnknownError):
            await Lock(client, "daily", owner="me", timeout=5).acquire()

        assert now() - began <= 5.1 + MARGIN_MS / 1000


@in_memory
async def test_a_cluster_without_an_answer_never_looks_like_an_expired_session(
    world: MemoryCluster,
) -> None:
    """A session is lost by our own clock then; what is said is that the service is away."""
    for is_refusing in (True, False):
        network = world.network()
        async with world.client(network, session_timeout=2) as client:
            await client.session()
            network.is_refusing, network.is_cut = is_refusing, not is_refusing
            began = now()

            with pytest.raises((UnavailableError, OutcomeUnknownError), match="no heartbeat"):
                await Lock(client, "daily", timeout=30).acquire()

            assert now() - began <= 3.1


@pytest.mark.parametrize("recipe", [Lock, TreeLock])
@pytest.mark.parametrize("has_session", [True, False])
@in_memory
async def test_one_try_is_one_election_long_when_nobody_can_decide(
    world: MemoryCluster, has_session: bool, recipe: type[Any]
) -> None:
    """``try_acquire`` and ``timeout=0`` do not wait for the client's whole time."""
    for is_refusing in (True, False):
        network = world.network()
        async with world.client(network, timeout=20) as client:
            if has_session:
                await client.session()
            network.is_refusing, network.is_cut = is_refusing, not is_refusing
            began = now()

            with pytest.raises((UnavailableError, OutcomeUnknownError)):
                await recipe(client, "daily").try_acquire()
            with pytest.raises((UnavailableError, OutcomeUnknownError)):
                await recipe(client, "daily").acquire(timeout=0)

            assert now() - began <= 6.2  # two seconds, and one to take back what may be left


@pytest.mark.parametrize("recipe", [Lock, TreeLock])
def test_one_try_without_a_quorum_says_that_it_is_unavailable(
    coordinator_cluster: LocalCluster, recipe: type[Any]
) -> None:
    """Of three members two are gone: definite, and the same class with a session and without."""
    cluster = coordinator_cluster
    with cluster.connect() as client, cluster.connect() as fresh:
        client.session()
        cluster.kill()
        cluster.kill(cluster.running[0])

        def is_told(by: Client) -> None:
            with pytest.raises(UnavailableError):
                recipe(by, "daily", timeout=0).acquire()
            with pytest.raises(UnavailableError):
                recipe(by, "daily").try_acquire()

        with ThreadPoolExecutor() as threads:
            list(threads.map(is_told, (client, fresh)))
