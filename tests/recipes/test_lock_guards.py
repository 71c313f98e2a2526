"""A lock raises its guards to its token before anybody gets the grant."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from coordinator import connect
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    OutcomeUnknownError,
    StaleTokenError,
)
from coordinator.recipes import Election, Lock, RWLock, Semaphore
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving


class Awaited:
    """A guard of an asyncio store; ``hangs`` until for ever, or fails with ``error``."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.tokens: list[int] = []
        self.error, self.hangs = error, hangs

    async def raise_to(self, token: int) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.tokens.append(token)


class Plain:
    """A guard of a store without asyncio; remembers in which thread it was raised."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.thread = threading.current_thread()

    def raise_to(self, token: int) -> None:
        self.thread = threading.current_thread()
        self.tokens.append(token)


@in_memory
async def test_every_guard_is_raised_to_the_token_before_the_body_runs(
    world: MemoryCluster,
) -> None:
    """The holder before is refused from then on, whether or not the new one has written."""
    guards = [Awaited(), Awaited()]
    async with world.client() as client, Lock(client, "daily", guards=guards) as grant:
        assert [guard.tokens for guard in guards] == [[grant.fencing_token]] * 2


@in_memory
async def test_an_election_raises_its_guards_to_the_epoch(world: MemoryCluster) -> None:
    """And who can not raise them does not lead."""
    guard = Awaited()
    async with world.client() as client:
        async with Election(client, "service", guards=[guard]) as leadership:
            assert guard.tokens == [leadership.epoch]

        failing = Election(client, "service", guards=[Awaited(ConnectionError("down"))])
        with pytest.raises(ConnectionError):
            await failing.campaign()

        assert failing.leadership is None
        assert (await failing.who()).elected is None


@in_memory
async def test_raising_can_be_left_to_the_holder(world: MemoryCluster) -> None:
    """``raise_on_acquire=False``: the guards learn the token with the first write."""
    guard = Awaited()
    async with (
        world.client() as client,
        Lock(client, "daily", guards=[guard], raise_on_acquire=False),
    ):
        assert guard.tokens == []


@in_memory
async def test_a_guard_that_can_not_be_raised_costs_the_grant(world: MemoryCluster) -> None:
    """The store's own error comes through, the body does not run, the lock is free."""
    async with world.client() as client:
        lock = Lock(client, "daily", guards=[Awaited(ConnectionError("the store is down"))])

        with pytest.raises(ConnectionError, match="the store is down"):
            await lock.acquire()

        assert lock.grant is None
        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_guard_that_has_seen_a_higher_token_costs_the_grant(world: MemoryCluster) -> None:
    """Somebody was granted the lock after us: StaleTokenError, and no body."""
    async with world.client() as client:
        with pytest.raises(StaleTokenError):
            async with Lock(client, "daily", guards=[Awaited(StaleTokenError("9 after 8"))]):
                pytest.fail("the body ran")

        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_guard_that_hangs_holds_the_lock_for_the_clients_deadline_at_most(
    world: MemoryCluster,
) -> None:
    """Then the grant is given back, and it is said that the raise may still happen."""
    async with world.client() as client:
        began = asyncio.get_running_loop().time()

        with pytest.raises(OutcomeUnknownError, match="was not raised"):
            await Lock(client, "daily", guards=[Awaited(hangs=True)]).acquire()

        took = asyncio.get_running_loop().time() - began
        assert took <= client.settings.timeout_ms / 1000 + 1
        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_grant_lost_while_a_guard_is_raised_is_not_handed_out(
    world: MemoryCluster,
) -> None:
    """A slow store outlasts the lease, or the bound: the body never runs."""
    network = world.network()

    class Slow(Awaited):
        async def raise_to(self, token: int) -> None:
            await asyncio.sleep(4)
            await super().raise_to(token)

    async with world.client(network, session_timeout=2) as client, world.client() as other:
        with pytest.raises(LockLostError, match="max_hold"):
            await Lock(client, "bounded", guards=[Slow()], max_hold=1).acquire()
        assert await Lock(other, "bounded").try_acquire(timeout=1) is not None

        lock = Lock(client, "daily", guards=[Slow()])
        acquiring = asyncio.create_task(lock.acquire())
        await asyncio.sleep(1)
        network.is_cut = True
        with pytest.raises(LockLostError):
            await acquiring
        assert lock.grant is None
        assert await Lock(other, "daily").try_acquire(timeout=5) is not None
        network.is_cut = False


@in_memory
async def test_cancelled_while_a_guard_is_raised_the_grant_is_given_back(
    world: MemoryCluster,
) -> None:
    """As at every other await of acquire: nothing of the attempt is left."""
    async with world.client() as client:
        attempt = asyncio.create_task(Lock(client, "daily", guards=[Awaited(hangs=True)]).acquire())
        await asyncio.sleep(1)
        attempt.cancel()

        with pytest.raises(asyncio.CancelledError):
            await attempt

        await asyncio.sleep(1)
        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_reader_is_granted_though_another_one_raised_the_guard_higher(
    world: MemoryCluster,
) -> None:
    """Readers hold together and raise in any order; being second does not mean being replaced."""
    seen_higher = [Awaited(StaleTokenError("a reader with 9 was here before this one with 8"))]
    async with world.client() as client:
        lock = RWLock(client, "daily", guards=seen_higher)

        async with lock.read() as grant:
            assert not grant.is_lost
        with pytest.raises(StaleTokenError):
            await lock.write().acquire()


@in_memory
async def test_a_slot_of_a_semaphore_has_no_guard(world: MemoryCluster) -> None:
    """A guard knows one rightful holder; it would refuse all but the last of them."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match="expected no guards"):
            Semaphore(client, "daily", 2, guards=[Awaited()])


def test_a_plain_guard_is_raised_beside_the_clients_event_loop() -> None:
    """A slow store does not stop the heartbeats: neither thread of the client waits in it."""
    guard = Plain()
    with (
        serving() as url,
        connect(url) as client,
        Lock(client, "daily", guards=[guard]) as grant,
    ):
        assert guard.tokens == [grant.fencing_token]
        assert guard.thread.name == "coordinator guard"


def test_a_guard_that_is_awaited_needs_an_asyncio_client() -> None:
    """Said when the lock is made, not when it is held."""
    with serving() as url, connect(url) as client:
        with pytest.raises(BadArgumentsError, match="without await"):
            Lock(client, "daily", guards=[Awaited()])
        with pytest.raises(BadArgumentsError, match="raise_to"):
            Lock(client, "daily", guards=[object()])  # type: ignore[list-item]


class Yields(Plain):
    """A guard that raises nothing when it is called."""

    def raise_to(self, token: int) -> Any:
        yield super().raise_to(token)


class Returns(Plain):
    """A guard whose call returns what would have to be awaited."""

    def raise_to(self, token: int) -> Any:
        return Awaited().raise_to(token)


def test_a_guard_that_is_not_raised_by_its_call_protects_nothing() -> None:
    """A generator function is refused with the lock; what returns a coroutine costs the grant."""
    with serving() as url, connect(url) as client:
        with pytest.raises(BadArgumentsError, match="of which a call runs nothing"):
            Lock(client, "daily", guards=[Yields()])
        with pytest.raises(BadArgumentsError, match="returned a coroutine, of which nothing has"):
            Lock(client, "daily", guards=[Returns()]).acquire()
        assert client.lock("daily").holder is None
