"""One client writes megabytes to all members at full rage; another one keeps its session."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from urllib.parse import urlsplit

import pytest

from coordinator import connect
from coordinator.errors import CoordinatorError, OutcomeUnknownError
from coordinator.recipes import Lock
from tests.cluster.conftest import MakeCluster
from tests.cluster.processes import ProcessCluster
from tests.members.closed_loop import Connected, Program

pytestmark = pytest.mark.check

STREAMS = 24
ZNODES = 10
VALUE = os.urandom(1_000_000)
RAGE_S = 10.0
MIB = 2**20
PATIENT = {"election_timeout_ms_min": 1_000, "election_timeout_ms_max": 2_000}
"""So that no other work on the machine deposes a leader; megabytes delayed votes by seconds."""
RAGING = "127.0.0.3"


def writer(number: int, counts: Counter[str]) -> Program:
    """Write to one of a few znodes for ever."""
    path = f"/v1/tree/large-{number % ZNODES}"
    while True:
        status, _ = yield "PUT", f"{path}?create", {"data": VALUE}
        counts["done" if status < 300 else str(status)] += 1


def resident_bytes(cluster: ProcessCluster) -> int:
    """Return the memory of the member that takes most."""
    pages = []
    for process in cluster.processes.values():
        with open(f"/proc/{process.pid}/statm", encoding="ascii") as statm:
            pages.append(int(statm.read().split()[1]))
    return max(pages) * os.sysconf("SC_PAGE_SIZE")


def terms(cluster: ProcessCluster) -> set[int]:
    return {status["term"] for each in cluster.ids if (status := cluster.status(each))}


@pytest.mark.timeout(240)
async def test_megabytes_depose_no_leader_and_cost_no_session(make_cluster: MakeCluster) -> None:
    """The other client loses nothing and is answered; memory stays near what is stored."""
    cluster = make_cluster(raft=PATIENT)
    before = await asyncio.to_thread(terms, cluster)
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()
    raging = []
    async with (
        await connect(cluster.endpoints, session_timeout=5, timeout=10) as client,
        Lock(client, "kept") as kept,
    ):
        for number in range(STREAMS):
            parts = urlsplit(cluster.urls[number % len(cluster.urls)])
            _, line = await loop.create_connection(
                lambda number=number: Connected(  # type: ignore[misc]
                    f"rage-{number}-{time.monotonic_ns()}", [writer(number, counts)]
                ),
                str(parts.hostname), parts.port or 0, local_addr=(RAGING, 0),
            )  # fmt: skip
            raging.append(line)
        rounds, most, unknown = 0, 0, []
        end_s = loop.time() + RAGE_S
        while loop.time() < end_s:
            try:
                async with Lock(client, "modest"):
                    rounds += 1
            except OutcomeUnknownError as error:
                unknown.append(error)
            except CoordinatorError:
                await asyncio.sleep(0.01)
            most = max(most, resident_bytes(cluster))
        for line in raging:
            line.close()
        assert not kept.is_lost
    after = await asyncio.to_thread(terms, cluster)

    assert after == before, cluster.logs()
    assert not unknown
    assert rounds > 0
    assert counts["done"] > 0, "it is slowed, not shut out"
    assert most < 3 * ZNODES * len(VALUE) + 150 * MIB, f"{most / MIB:.0f} MiB"
    assert not cluster.tracebacks()
