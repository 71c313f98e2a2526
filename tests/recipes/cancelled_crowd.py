"""Very many cancelled acquires, and what they leave: nothing.

    python -m tests.recipes.cancelled_crowd --count 100000            # a member in memory
    python -m tests.recipes.cancelled_crowd --count 5000 --real       # three real members, sockets

Prints a line for each tenth: how many are done, tasks alive, resident memory. Exits with 1 if
anything was left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from coordinator.client import AsyncClient
from coordinator.recipes import (
    Election,
    Lock,
    MultiLock,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
)
from coordinator.testing import local_cluster
from tests.client.memory_cluster import cluster
from tests.client.virtual_time import run
from tests.recipes.cancelling import standing

AT_ONCE = 20


@dataclass
class Tally:
    """What came of them; ``resident_kib`` at each tenth."""

    count: int = 0
    cancelled: int = 0
    granted: int = 0
    tasks_before: int = 0
    tasks_after: int = 0
    background_after: int = 0
    standing_after: dict[str, list[str]] = field(default_factory=dict)
    resident_kib: list[int] = field(default_factory=list)

    def left_overs(self) -> dict[str, Any]:
        """Return what should not be there; empty when all is well."""
        found = {
            "contenders": self.standing_after,
            "tasks": max(0, self.tasks_after - self.tasks_before),
            "background tasks": self.background_after,
        }
        return {what: left for what, left in found.items() if left}


async def crowd(
    client: AsyncClient,
    holder: AsyncClient,
    count: int,
    moment: Callable[[random.Random], Coroutine[Any, Any, None]],
    *,
    seed: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> Tally:
    """Let ``client`` begin ``count`` acquires, each cancelled after a ``moment``.

    Some stand in queues behind ``holder``, some are granted before they are cancelled.
    """
    source = random.Random(seed)
    tally = Tally()
    await client.session()
    async with Lock(holder, "held"), Election(holder, "held"):
        await _one_of_each(client)  # what a first time makes and keeps
        tally.tasks_before = len(tasks_alive())
        while tally.count < count:
            tasks = [asyncio.create_task(_hold(client, source)) for _ in range(AT_ONCE)]
            await moment(source)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            tally.count += len(tasks)
            tally.cancelled += sum(task.cancelled() for task in tasks)
            tally.granted += sum(not task.cancelled() for task in tasks)
            if tally.count * 10 // count > len(tally.resident_kib):
                tally.resident_kib.append(resident_kib())
                say(
                    f"{tally.count:>7} done, {tally.cancelled} cancelled, "
                    f"{len(tasks_alive())} tasks, {tally.resident_kib[-1]} KiB"
                )
        await asyncio.sleep(1)
        tally.tasks_after = len(tasks_alive())
        tally.background_after = len(client.background._tasks)
        standing_now = await standing(holder)
        tally.standing_after = {
            queue: names
            for queue, names in standing_now.items()
            if queue not in ("/locks/held", "/elections/held") or len(names) > 1
        }
    return tally


def _kinds(client: AsyncClient, name: str) -> list[AbstractAsyncContextManager[Any]]:
    return [
        Lock(client, name, timeout=3_000),
        TreeLock(client, name, timeout=3_000),
        MultiLock(client, name, f"{name}-too", timeout=3_000),
        Election(client, name, timeout=3_000),
        ReentrantLock(client, name, timeout=3_000),
        RWLock(client, name, timeout=3_000).read(),
        Semaphore(client, name, 2, timeout=3_000),
    ]


async def _hold(client: AsyncClient, source: random.Random) -> None:
    name = source.choice(["held", "held", "a", "b"])
    async with source.choice(_kinds(client, name)):
        await asyncio.sleep(0)


async def _one_of_each(client: AsyncClient) -> None:
    for each in _kinds(client, "first"):
        async with each:
            pass


def tasks_alive() -> list[asyncio.Task[Any]]:
    """All but the members' tasks for connections, which are kept for the next request."""
    return [
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") != "RequestHandler.start"
    ]


def resident_kib() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4


async def in_some_steps(source: random.Random) -> None:
    for _ in range(source.randrange(60)):
        await asyncio.sleep(0)


async def in_some_milliseconds(source: random.Random) -> None:
    await asyncio.sleep(source.random() * 0.06)


def in_memory(count: int, say: Callable[[str], None] = lambda line: None) -> Tally:
    async def main() -> Tally:
        async with cluster() as world:
            network = world.network()

            async def moment(source: random.Random) -> None:
                network.sent.clear()  # the network's own record of all requests is no leak
                await in_some_steps(source)

            async with world.client(network) as client, world.client() as holder:
                return await crowd(client, holder, count, moment, say=say)

    return run(main())


def against_real_members(count: int, say: Callable[[str], None] = lambda line: None) -> Tally:
    async def main() -> Tally:
        async with (
            local_cluster() as members,
            members.connect(session_timeout=60) as client,  # a starved machine is no failure
            members.connect(session_timeout=60) as holder,
        ):
            return await crowd(client, holder, count, in_some_milliseconds, say=say)

    return asyncio.run(main())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--real", action="store_true", help="three members, over sockets")
    options = parser.parse_args()
    began = time.monotonic()
    tally = (against_real_members if options.real else in_memory)(
        options.count, lambda line: print(line, flush=True)
    )
    print(
        f"{tally.cancelled} of {tally.count} cancelled, {tally.granted} had come to their end; "
        f"{time.monotonic() - began:.0f} s; left: {tally.left_overs() or 'nothing'}"
    )
    return 1 if tally.left_overs() else 0


if __name__ == "__main__":
    sys.exit(main())
