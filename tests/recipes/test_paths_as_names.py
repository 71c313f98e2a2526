"""A name that begins with a slash is refused by every recipe, with the name to write.

Users of ZooKeeper write ``/daily-report``. It would be another lock than ``daily-report``, and both
would be held at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from coordinator import recipes
from coordinator.errors import BadArgumentsError
from coordinator.recipes import (
    Barrier,
    CachedValue,
    CommitLog,
    CommitSite,
    Condition,
    Configuration,
    Counter,
    DoubleBarrier,
    Election,
    Flag,
    Group,
    Job,
    Jobs,
    Latch,
    Lock,
    ManualLock,
    MultiLock,
    Once,
    Partitioner,
    Pool,
    ReentrantLock,
    Revoker,
    RWLock,
    Semaphore,
    TokenBucket,
    TreeLock,
    WorkQueue,
    exclusive,
    execute_exclusive,
    once_per,
)
from tests.client.memory_cluster import MemoryCluster, in_memory


async def _nothing(*_: object) -> None:
    raise AssertionError("it ran without its lock")


ENTRANCES: dict[str, Callable[[Any, str], Any]] = {
    "Lock": Lock,
    "ReentrantLock": ReentrantLock,
    "RWLock": RWLock,
    "Semaphore": lambda client, name: Semaphore(client, name, 2),
    "MultiLock": lambda client, name: MultiLock(client, "a", name),
    "TreeLock": TreeLock,
    "ManualLock": ManualLock,
    "Revoker": Revoker,
    "Election": Election,
    "exclusive": lambda client, name: exclusive(name, client=client)(_nothing)(),
    "execute_exclusive": lambda client, name: execute_exclusive(client, name, _nothing),
    "Once": lambda client, name: Once(client).run(name, _nothing),
    "Once.look": lambda client, name: Once(client).look(name),
    "Once.settle": lambda client, name: Once(client).settle(name),
    "Once.forget": lambda client, name: Once(client).forget(name),
    "Job": lambda client, name: Job(client, name, every="1h"),
    "Jobs.look": lambda client, name: Jobs(client).look(name),
    "Jobs.forget": lambda client, name: Jobs(client).forget(name),
    "once_per": lambda client, name: once_per(name, client=client, every="1h")(_nothing)(),
    "TokenBucket": lambda client, name: TokenBucket(client, name, rate=1, burst=1),
    "Counter": Counter,
    "Flag": Flag,
    "Barrier": Barrier,
    "DoubleBarrier": lambda client, name: DoubleBarrier(client, name, 2),
    "Latch": lambda client, name: Latch(client, name, 2),
    "Condition": Condition,
    "Group": Group,
    "Partitioner": lambda client, name: Partitioner(client, name, 2),
    "WorkQueue": WorkQueue,
    "Pool": lambda client, name: Pool(client, name, ["a"]),
    "CachedValue": CachedValue,
    "Configuration": Configuration,
    "CommitLog": CommitLog,
    "CommitLog, key": lambda client, name: CommitLog(client, "log").look(name),
    "CommitSite": lambda client, name: CommitSite(client, name, "site"),
    "CommitSite, site": lambda client, name: CommitSite(client, "log", name),
}
_NAMED = {"name", "names", "key"}
_MADE_BY_OTHERS = {"run_exclusive", "GroupMember", "JobView", "Transaction"}
"""With a client of its own; and values that recipes return."""


async def _enter(entrance: str, client: Any) -> None:
    await ENTRANCES[entrance](client, "/daily-report")


def test_every_recipe_is_in_the_table() -> None:
    """A new recipe with a name is asked, too."""
    named = {
        each
        for each in recipes.__all__
        if callable(recipe := getattr(recipes, each))
        and _NAMED & set(inspect.signature(recipe).parameters)
    }
    assert named - _MADE_BY_OTHERS <= set(ENTRANCES)


@pytest.mark.parametrize("entrance", ENTRANCES)
@in_memory
async def test_a_path_is_no_name(world: MemoryCluster, entrance: str) -> None:
    """The error says what to write, and nothing was asked of the members."""
    async with world.client() as client:
        before = world.proposals
        with pytest.raises(BadArgumentsError, match="write 'daily-report'"):
            await _enter(entrance, client)
        assert world.proposals == before


@in_memory
async def test_a_slash_within_a_name_and_names_of_things_stay(world: MemoryCluster) -> None:
    """What is lent or who takes part is not a name by which programs meet: ``/dev/sda`` is one."""
    async with world.client() as client:
        async with Lock(client, "accounts/17"):
            pass
        async with await Pool(client, "devices", ["/dev/sda"]).borrow() as device:
            assert device.resource == "/dev/sda"
        async with await Group(client, "web").join("/node/1"):
            assert [each.name for each in await Group(client, "web").members()] == ["/node/1"]
