"""The raging client, a process of its own: it prints its counts every tenth of a second.

    python -m bench.fairness.raging '{"rage": "ends", "urls": [...], "ca_file": ..., "token": ...}'
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import sys
from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from bench.fairness.rages import LISTED, RAGES, SESSION, Junk, Rage, repeating
from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.errors import NodeExistsError
from coordinator.recipes import Lock
from tests.members.closed_loop import Connected

_AGAIN_S = 0.05


async def rage_on(said: dict[str, Any]) -> None:
    """Rage until the process is killed."""
    rage, counts = RAGES[said["rage"]], Counter[str]()
    client = await connect(said["urls"], ca_file=said["ca_file"], token=said["token"])
    await _fill(client, listed=said["rage"] == "lists", values=said["rage"] == "values")
    if rage.needs:
        SESSION[0] = (await client.session()).session_id
        await Lock(client, "raging").acquire()
    context = ssl.create_default_context(cafile=said["ca_file"])
    tasks = [
        asyncio.create_task(_connected(said, rage, number, counts, context))
        for number in range(rage.connections)
    ]
    while True:
        print(json.dumps(counts), flush=True)
        await asyncio.wait(tasks, timeout=0.1)


async def _fill(client: AsyncClient, *, listed: bool, values: bool) -> None:
    paths = ["/raging", "/raging/listed"]
    paths += [f"/raging/listed/{number}" for number in range(LISTED if listed else 0)]
    paths += [f"/raging/value-{number}" for number in range(40 if values else 0)]
    for path in paths:
        with suppress(NodeExistsError):
            await client.create(path)


async def _connected(
    said: dict[str, Any], rage: Rage, number: int, counts: Counter[str], context: ssl.SSLContext
) -> None:
    """Keep one connection, and begin another when it is lost."""
    parts = urlsplit(said["urls"][number % len(said["urls"])])

    def made() -> Connected | Junk:
        if not rage.depth:
            return Junk(counts)
        first = number * rage.depth
        programs = [repeating(rage, first + each, counts) for each in range(rage.depth)]
        name = f"raging-{secrets.token_hex(8)}"
        return Connected(name, programs, f"Bearer {said['token']}")

    loop = asyncio.get_running_loop()
    while True:
        try:
            _, protocol = await loop.create_connection(
                made, parts.hostname, parts.port, ssl=context
            )
        except OSError:
            counts["no connection"] += 1
            await asyncio.sleep(_AGAIN_S)
            continue
        await protocol.lost
        counts["lost"] += 1


if __name__ == "__main__":
    asyncio.run(rage_on(json.loads(sys.argv[1])))
