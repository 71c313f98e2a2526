"""What a lock may be made with, and what is said about it to others."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coordinator.errors import BadArgumentsError
from coordinator.recipes import (
    Election,
    Lock,
    MultiLock,
    Once,
    ReentrantLock,
    RWLock,
    Semaphore,
    TokenBucket,
    TreeLock,
)
from coordinator.recipes.locks.options import Options
from tests.client.memory_cluster import MemoryCluster, in_memory


class Store:
    """A guard that says what it guards."""

    resource = "accounts/17"

    def raise_to(self, token: int, /) -> None:
        """Accept everything."""


@pytest.mark.parametrize(
    "options",
    [
        {"when_unsure": "pray"},
        {"owner": 7},
        {"owner": "x" * 129},
        {"lock_delay": -1},
        {"lock_delay": 61},
        {"lock_delay": float("nan")},
        {"max_hold": 0},
        {"max_hold": 0.4},
        {"max_hold": 31 * 24 * 3_600},
        {"max_hold": True},
        {"purpose": "fun"},
        {"waiver": "who cares"},
        {"timeout": -1},
    ],
    ids=str,
)
@in_memory
async def test_what_is_out_of_range_is_refused_when_the_lock_is_made(
    world: MemoryCluster, options: dict[str, Any]
) -> None:
    """Said at once, naming the argument, what was expected and what was found."""
    async with world.client() as client:
        for make in (Lock, ReentrantLock):
            with pytest.raises(BadArgumentsError, match=next(iter(options))):
                make(client, "daily", **options)


@pytest.mark.parametrize("name", [None, True, 4.5, b"daily", ("daily",)], ids=repr)
@in_memory
async def test_what_is_no_name_is_refused_and_not_made_one(world: MemoryCluster, name: Any) -> None:
    """A forgotten order number must not make all orders share the lock "None"."""
    async with world.client() as client:
        for make in (
            *(Lock, ReentrantLock, TreeLock, Election, RWLock, MultiLock),
            partial(Semaphore, size=3),
            partial(TokenBucket, rate=1.0, burst=1),
        ):
            with pytest.raises(BadArgumentsError, match="name: expected text or an integer"):
                make(client, name)
        with pytest.raises(BadArgumentsError, match="key: expected 1 to 150 characters of text"):
            await Once(client).run(name, pytest.fail)

        assert [each async for each in client.locks()] == []


@in_memory
async def test_an_integer_is_a_name_of_every_recipe(world: MemoryCluster) -> None:
    """As ``pg_advisory_lock`` and ``GET_LOCK`` have it: 42 and "42" are one lock."""
    async with world.client() as client:
        for lock in (Lock(client, 42), ReentrantLock(client, 42), TreeLock(client, 42)):
            grant = await lock.acquire()

            assert grant.lock == "42"
            assert await Lock(client, "42", owner="another").try_acquire() is None
            await lock.release()
        assert (await Election(client, 42).campaign()).lock == "42"


@in_memory
async def test_for_correctness_a_lock_insists_on_a_guard_or_a_waiver(world: MemoryCluster) -> None:
    """Without either no object is handed out; for efficiency nothing is asked."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match="guards"):
            Lock(client, "daily", purpose="correctness")
        with pytest.raises(BadArgumentsError, match="waiver"):
            Lock(client, "daily", purpose="correctness", waiver="   ")

        Lock(client, "daily", purpose="correctness", guards=[Store()])
        Lock(client, "daily", purpose="correctness", waiver="the job is idempotent")
        Lock(client, "daily", purpose="efficiency")


@in_memory
async def test_what_guards_the_writes_is_told_to_everybody_who_looks(world: MemoryCluster) -> None:
    """Guards by their kind and resource, a waiver by its words, never more than 200 characters."""
    async with world.client() as client:
        guarded = Options.of(client, purpose="correctness", guards=[Store()]).request("me")
        waived = Options.of(client, purpose="correctness", waiver="idempotent " * 50).request("me")

        assert guarded.guard == "Store accounts/17"
        assert (guarded.purpose, guarded.owner) == ("correctness", "me")
        assert waived.guard.startswith("waived: idempotent")
        assert len(waived.guard) <= 200


@in_memory
async def test_times_are_told_in_milliseconds(world: MemoryCluster) -> None:
    """Seconds in the arguments, milliseconds on the wire."""
    async with world.client() as client:
        options = Options.of(client, lock_delay=1.5, max_hold=60, when_unsure="continue")
        request = options.request("")

        assert (request.lock_delay_ms, request.max_hold_ms) == (1_500, 60_000)
        assert request.when_unsure == "continue"


@in_memory
async def test_every_recipe_refuses_an_unknown_policy(world: MemoryCluster) -> None:
    """Also those that are not made from Lock."""
    async with world.client() as client:
        for make in (TreeLock, Election, MultiLock):
            with pytest.raises(BadArgumentsError, match="when_unsure"):
                make(client, "daily", when_unsure="pray")  # type: ignore[arg-type]
