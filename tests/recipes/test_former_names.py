"""A name that was another kind before: what it is now is all that counts.

Every pair of kinds under one name, with the time to reap between them and without, and the former
holder gone in order or with its session. The later one must behave as under a name that is new, and
leave what it leaves there; only a semaphore leaves its size. And every pair of modes of a znode.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import LockTimeoutError, NoNodeError
from coordinator.recipes import (
    Lock,
    ManualLock,
    MultiLock,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
)
from tests.client.memory_cluster import MemoryCluster, cluster
from tests.client.virtual_time import run

NAME = "n"
REAPED_S = 30.0
SESSION_S = 5.0
Kind = Callable[[AsyncClient], Any]
KINDS: dict[str, Kind] = {
    "Lock": lambda client: Lock(client, NAME),
    "with a lock-delay": lambda client: Lock(client, NAME, lock_delay=2),
    "with a maximum hold": lambda client: Lock(client, NAME, max_hold=60),
    "Reader": lambda client: RWLock(client, NAME).read(),
    "Writer": lambda client: RWLock(client, NAME).write(),
    "Semaphore of 1": lambda client: Semaphore(client, NAME, 1),
    "Semaphore of 2": lambda client: Semaphore(client, NAME, 2),
    "ReentrantLock": lambda client: ReentrantLock(client, NAME, owner="me"),
    "MultiLock": lambda client: MultiLock(client, NAME, "other"),
    "TreeLock": lambda client: TreeLock(client, NAME),
}
SIZES = {"Semaphore of 1": 1, "Semaphore of 2": 2}


async def used(kind: Kind, one: AsyncClient, other: AsyncClient) -> list[str]:
    """Use it with two clients; return what each of them saw."""
    first, second, seen = kind(one), kind(other), []
    await first.acquire(timeout=10)
    try:
        await second.acquire(timeout=0)
        seen.append("two hold")
        await second.release()
    except LockTimeoutError:
        seen.append("one holds")
    waiting = asyncio.create_task(second.acquire(timeout=10))
    await asyncio.sleep(0.5)
    seen.append(f"the second holds at once: {waiting.done()}")
    await first.release()
    await waiting
    await second.release()
    return seen


def expected(name: str, size: int | None) -> list[str]:
    """Return what they see of a kind, under a name whose size is kept (None: none is)."""
    holders = {"Reader": 2, **SIZES}.get(name, 1)
    if name in SIZES and size is not None:
        holders = size
    what = "two hold" if holders > 1 else "one holds"
    return [what, f"the second holds at once: {holders > 1}"]


@asynccontextmanager
async def two_clients(world: MemoryCluster) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
    async with (
        world.client(session_timeout=SESSION_S) as one,
        world.client(session_timeout=SESSION_S) as other,
    ):
        yield one, other


async def dies_holding(world: MemoryCluster, kind: Kind) -> None:
    """A client holds it, is cut off, and its session ends."""
    network = world.network()
    async with world.client(network, session_timeout=SESSION_S) as client:
        await kind(client).acquire(timeout=10)
        network.is_cut = True
        await asyncio.sleep(2 * SESSION_S)


async def is_as_under_a_new_name(former: str, later: str, *, since: str, is_dead: bool) -> None:
    async with cluster() as world, two_clients(world) as (one, other):
        if is_dead:
            await dies_holding(world, KINDS[former])
        else:
            await used(KINDS[former], one, other)
        size = SIZES.get(former)
        if since == "deleted":
            await one.delete(f"/locks/{NAME}", recursive=True)
            size = None
        await asyncio.sleep(REAPED_S if since == "reaped" else 0.0)

        seen = await used(KINDS[later], one, other)

        assert seen == expected(later, size), (later, since, is_dead)
        await asyncio.sleep(REAPED_S)
        kept = size or SIZES.get(later)
        machine = world.member._replica.machine
        assert machine.locks.size(f"/locks/{NAME}") == kept, (later, since)
        assert (await one.exists(f"/locks/{NAME}") is not None) == (kept is not None)
        assert not list(machine.locks.directories()), "a queue is left"


PASTS = ("just now", "reaped", "deleted")
ALL = list(itertools.product(KINDS, PASTS, (False, True)))
"""What is there now, since when, and whether the former holder died."""
IN_TURN = {former: [ALL[7 * turn % len(ALL)]] for turn, former in enumerate(KINDS)}
"""Each former kind once, before another later one, in the fast suite."""


@pytest.mark.parametrize(
    ("former", "cases"),
    [
        *(pytest.param(each, cases, id=f"{each} once") for each, cases in IN_TURN.items()),
        *(pytest.param(each, ALL, id=each, marks=pytest.mark.check) for each in KINDS),
    ],
)
def test_a_name_is_what_it_is_now_and_not_what_it_was(
    former: str, cases: list[tuple[str, str, bool]]
) -> None:
    """Whatever its past, at once, after that was reaped, or after its znode was deleted."""
    for later, since, is_dead in cases:
        run(is_as_under_a_new_name(former, later, since=since, is_dead=is_dead))


@pytest.mark.parametrize("later", KINDS)
def test_a_lock_held_by_hand_leaves_nothing_in_the_way(later: str) -> None:
    """Neither while it is held, when nobody else holds, nor afterwards."""

    async def scenario() -> None:
        async with cluster() as world, two_clients(world) as (one, other):
            held = await ManualLock(one, NAME).acquire("to see", timeout=5)
            with pytest.raises(LockTimeoutError):
                await KINDS[later](other).acquire(timeout=0)
            await asyncio.sleep(REAPED_S)
            with pytest.raises(LockTimeoutError):
                await KINDS[later](other).acquire(timeout=0)
            await ManualLock(one, NAME).release(held.fencing_token)
            assert await used(KINDS[later], one, other) == expected(later, None)

    run(scenario())


MODES = ("persistent", "ephemeral", "container", "ttl")
TTL_S = 20.0
LOOK_S = 0.5


async def made(client: AsyncClient, mode: Any, path: str) -> None:
    """Make a znode, and, where it may have one, a child that goes again."""
    ttl_ms = int(TTL_S * 1000) if mode == "ttl" else None
    await client.create(path, b"", mode=mode, ttl_ms=ttl_ms)
    if mode != "ephemeral":
        await client.create(f"{path}/child")
        await client.delete(f"{path}/child")


async def life_s(client: AsyncClient, path: str) -> float | None:
    """Return for how many seconds a znode lives by itself, about; None: it stays."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() < began + REAPED_S:
        if await client.exists(path) is None:
            return loop.time() - began
        await asyncio.sleep(LOOK_S)
    return None


@pytest.mark.parametrize(
    "former",
    [
        each if each == "ephemeral" else pytest.param(each, marks=pytest.mark.check)
        for each in MODES
    ],
)
def test_a_znode_lives_as_its_mode_says_whatever_had_its_name(former: str) -> None:
    """Made when the one before is nearly due, has been reaped, or is deleted in the same moment;
    its sequence numbers go on."""

    async def scenario(later: str, gap_s: float) -> tuple[float | None, float | None]:
        async with cluster() as world, two_clients(world) as (one, other):
            await made(one, former, "/n")
            if former != "ephemeral":
                await one.create("/n/child-", mode="persistent_sequential")
                await one.delete("/n/child-0000000000")
            await asyncio.sleep(gap_s)
            try:
                await one.delete("/n")
            except NoNodeError:
                assert former in ("container", "ttl"), "it was reaped"
            await made(other, later, "/n")
            found = await life_s(one, "/n")
            if later != "ephemeral" and found is None:
                made_now = await one.create("/n/child-", mode="persistent_sequential")
                number = int(made_now.path.rpartition("-")[2])
                assert number > 0 or former == "ephemeral", "a number comes again"
            await made(other, later, "/m")
            return found, await life_s(one, "/m")

    for later, gap_s in itertools.product(MODES, (0.0, 9.5, 19.5, REAPED_S)):
        found, fresh = run(scenario(later, gap_s))
        assert (found is None) == (fresh is None), (later, gap_s)
        assert abs((found or 0) - (fresh or 0)) <= LOOK_S, (later, gap_s, found, fresh)
        assert (fresh is None) == (later in ("persistent", "ephemeral"))
