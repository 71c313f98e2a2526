"""Names are opaque: whatever text one is, every kind of lock and every question takes it."""

from __future__ import annotations

import random

import pytest

from coordinator.cli.why import story_of
from coordinator.client import IfHeld
from coordinator.errors import RequestError
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
from coordinator.recipes.tree_lock import segment_of
from coordinator.service.locks.contenders import LOCKS
from tests.client.memory_cluster import MemoryCluster, in_memory

NAMES = (
    "a:b", "a/b", "a b", " led", "a%2Fb", "%zz", "...", "~x", "ключ", "🙂", "a+b?c#d&e=f", '"',
    "back\\slash", "lock-0000000009", "delay-0000000003", "0", "x" * 149,
)  # fmt: skip


@in_memory
async def test_a_held_lock_of_any_name_is_found_by_all_who_ask(world: MemoryCluster) -> None:
    """By the server-run and the client-made lock, by conditions, looks, histories and force."""
    async with world.client() as client, world.client() as other:
        await client.create("/work", b"")
        for name in NAMES:
            grant = await Lock(client, name).acquire()
            assert grant.lock == name
            for rival in (Lock(other, name), TreeLock(other, name)):
                assert await rival.try_acquire() is None
            await client.set("/work", b"", if_held=[grant, IfHeld(name, grant.fencing_token)])
            await client.delete("/work", if_held=grant)  # in the query, not in a body
            await client.create("/work", b"", if_held=grant)
            await grant.note(b"row 7")
            await grant.verify()
            assert (await other.why(name)).holders[0].grant_id == grant.grant_id
            assert [each.lock for each in (await other.diagnosis(name)).locks] == [name]
            assert name in [each.lock async for each in other.locks()]
            await other.revoke(name, by="ops", reason="to see")
            assert (await story_of(other, name, None)).grant.grant_id == grant.grant_id


@in_memory
async def test_every_recipe_of_any_name_is_had_and_given_back(world: MemoryCluster) -> None:
    """Whatever the order of the names, encoded or not; nothing stands at the end."""
    async with world.client() as client, world.client() as other:
        for name in NAMES:
            async with ReentrantLock(client, name), ReentrantLock(client, name):
                pass
            async with RWLock(client, name).write() as grant:
                await grant.downgrade()
            for contender in (
                MultiLock(client, name, "zz/1", "zz-1"),
                TreeLock(client, name),
                Semaphore(client, f"slots {name}", 2),
            ):
                await contender.acquire()
                assert await contender.release(), (contender, name)
            async with Election(client, name, value=b"1") as leadership:
                assert (await Election(other, name).who()).elected is not None
                await client.create("/elected", if_held=leadership)
                await client.delete("/elected", if_held=leadership)
            once = Once(client)
            await once.settle(name, 7)
            assert (await Once(other).look(name)) is not None
            assert await TokenBucket(client, name, rate=1, burst=1).take()
            for each in (name, f"slots {name}", "zz/1", "zz-1"):
                assert (await other.lock(each)).holders == (), name


@in_memory
async def test_what_is_no_name_is_refused_by_all_kinds(world: MemoryCluster) -> None:
    """Nothing, dots that mean something in paths, control characters, no text, too much of it."""
    async with world.client() as client:
        for name in ("", ".", "..", "a\x00b", "\n", "\ud800", "x" * 201):
            for kind in (
                lambda name=name: Lock(client, name),
                lambda name=name: TreeLock(client, name),
                lambda name=name: MultiLock(client, "a", name),
                lambda name=name: Semaphore(client, name, 2),
            ):
                with pytest.raises(RequestError) as refused:
                    await kind().acquire()
                assert refused.value.definite
        assert await world.queue(client, "a") == []


def test_the_client_made_lock_names_its_queue_as_the_members_do() -> None:
    """Else the two would not exclude each other."""
    source = random.Random(1)
    for _ in range(5_000):
        codes = [
            source.choice([source.randrange(48, 127), source.randrange(160, 12_000)])
            for _ in range(source.randrange(1, 6))
        ]
        name = "".join(map(chr, codes))
        assert segment_of(name) == LOCKS.segment(name)
