"""A write that happens only while a grant holds, decided where it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from coordinator.client import AsyncClient, Create, IfHeld, SetData
from coordinator.errors import BadArgumentsError, LockLostError, NodeExistsError
from coordinator.recipes import Election, Lock, MultiLock
from tests.client.memory_cluster import MemoryCluster, in_memory

Write = Callable[[AsyncClient, Any], Awaitable[Any]]


async def update(client: AsyncClient, held: Any) -> Any:
    return await client.update("/a", lambda data: data + b"!", if_held=held)


WRITES: dict[str, Write] = {
    "create": lambda client, held: client.create("/a/new", b"x", if_held=held),
    "set": lambda client, held: client.set("/a", b"x", if_held=held),
    "delete": lambda client, held: client.delete("/a", if_held=held),
    "multi": lambda client, held: client.multi([SetData("/a", b"x")], if_held=held),
    "guarded": lambda client, held: client.guarded([], [Create("/b")], if_held=held),
    "update": update,
}


@pytest.mark.parametrize("write", list(WRITES.values()), ids=list(WRITES))
@in_memory
async def test_every_write_may_depend_on_a_grant(world: MemoryCluster, write: Write) -> None:
    """Held: done. Given back meanwhile: refused as a whole, naming the lock and who holds."""
    async with world.client() as client, world.client() as other:
        await client.create("/a", b"before")
        grant = await Lock(client, "importer").acquire()
        await write(client, grant)
        if await client.exists("/a") is None:
            await client.create("/a")
        before = await client.get("/a")
        await grant.release()
        next_grant = await Lock(other, "importer").acquire()

        with pytest.raises(LockLostError, match="importer") as raised:
            await write(client, grant)

        assert raised.value.definite
        assert str(next_grant.fencing_token) in str(to_text(raised.value))
        assert await client.get("/a") == before
        with suppress(NodeExistsError):  # so far does it come now
            await write(other, next_grant)


def to_text(error: LockLostError) -> str:
    return f"{error.message} {error.fields}"


@in_memory
async def test_several_grants_must_all_hold(world: MemoryCluster) -> None:
    """One that ended is enough to refuse the write."""
    async with world.client() as client, world.client() as other:
        await client.create("/a")
        mine = await Lock(client, "one").acquire()
        theirs = await Lock(other, "two").acquire()
        await client.set("/a", b"1", if_held=[mine, theirs])
        await theirs.release()

        with pytest.raises(LockLostError, match="two"):
            await client.set("/a", b"2", if_held=[mine, theirs])

        assert (await client.get("/a")).data == b"1"


@in_memory
async def test_the_grants_of_a_multi_lock_go_together(world: MemoryCluster) -> None:
    """The tuple that it returns is a condition as it stands."""
    async with world.client() as client:
        await client.create("/a")
        locks = MultiLock(client, "x", "y")
        async with locks as grants:
            await client.set("/a", b"1", if_held=grants)
        with pytest.raises(LockLostError):
            await client.set("/a", b"2", if_held=grants)


@in_memory
async def test_a_leadership_is_a_condition_too(world: MemoryCluster) -> None:
    """It is looked for among the elections, not among the locks of that name."""
    async with world.client() as client:
        await client.create("/a")
        async with Election(client, "report") as leadership:
            await client.set("/a", b"1", if_held=leadership)
            await client.delete("/a", if_held=leadership)
        with pytest.raises(LockLostError):
            await client.create("/a", if_held=leadership)


@in_memory
async def test_another_process_may_name_lock_and_token(world: MemoryCluster) -> None:
    """A worker that was handed the token writes under its master's grant; colons in names too."""
    async with world.client() as master, world.client() as worker:
        await worker.create("/a")
        grant = await Lock(master, "job:7:?&").acquire()
        held = IfHeld("job:7:?&", grant.fencing_token)

        await worker.set("/a", b"1", if_held=held)
        await worker.delete("/a", if_held=held)
        with pytest.raises(LockLostError):
            await worker.create("/a", if_held=IfHeld("job:7:?&", grant.fencing_token + 1))


@in_memory
async def test_what_is_no_grant_is_refused_before_anything_is_sent(world: MemoryCluster) -> None:
    """A name alone, None in a list, too many."""
    network = world.network()
    async with world.client(network) as client:
        for wrong in ("importer", [None], 7, [IfHeld("a", 1)] * 65):
            with pytest.raises(BadArgumentsError, match="if_held"):
                await client.set("/a", b"", if_held=wrong)  # type: ignore[arg-type]
        assert network.count("PUT") == 0
