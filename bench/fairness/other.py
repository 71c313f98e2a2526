"""The other client, a process of its own: a few programs with one session of three seconds.

It prints every tenth of a second how many rounds were done (a write, or a lock taken and given
back), how many came to an unknown outcome or were refused, and whether its session is lost.

    python -m bench.fairness.other '{"urls": [...], "ca_file": ..., "token": ...}'
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError, OutcomeUnknownError
from coordinator.recipes import Lock

SESSION_S = 3
_WRITERS = _LOCKERS = 2


async def work(said: dict[str, Any]) -> None:
    """Work until the process is killed."""
    counts: Counter[str] = Counter(done=0, unknown=0, refused=0)
    client = await connect(
        said["urls"], ca_file=said["ca_file"], token=said["token"], session_timeout=SESSION_S
    )
    if await client.exists("/other") is None:
        await client.create("/other")
    kept = await Lock(client, "other-kept").acquire()
    programs = [_writing(client, number) for number in range(_WRITERS)]
    programs += [_locking(client, number) for number in range(_LOCKERS)]
    tasks = [asyncio.create_task(_repeated(each, counts)) for each in programs]
    while True:
        print(json.dumps({"at": time.monotonic(), "lost": kept.is_lost, **counts}), flush=True)
        await asyncio.wait(tasks, timeout=0.1)


Round = Callable[[], Awaitable[object]]


async def _repeated(once: Round, counts: Counter[str]) -> None:
    while True:
        try:
            await once()
            counts["done"] += 1
        except OutcomeUnknownError:
            counts["unknown"] += 1
        except CoordinatorError:
            counts["refused"] += 1
            await asyncio.sleep(0.01)


def _writing(client: AsyncClient, number: int) -> Round:
    path = f"/other/w{number}"

    async def once() -> None:
        if await client.exists(path) is None:
            await client.create(path)
        await client.set(path, b"x" * 100)

    return once


def _locking(client: AsyncClient, number: int) -> Round:
    async def once() -> None:
        async with Lock(client, f"other-{number}"):
            pass

    return once


if __name__ == "__main__":
    asyncio.run(work(json.loads(sys.argv[1])))
