"""``kill -9`` of any member, and of all of them at once, while clients write, lock and watch."""

from __future__ import annotations

import asyncio
import random
import statistics
import time

import pytest

from tests.cluster.conftest import MakeCluster
from tests.cluster.load import Load, LoadOptions
from tests.cluster.processes import ProcessCluster
from tests.cluster.verdicts import judge, judge_end

pytestmark = pytest.mark.check

RECOVERY_S_MAX = 30.0
"""A bound for a machine that is busy with other things; what was measured is printed."""
SNAPSHOTS = {"snapshot_every_entries": 300, "keep_entries_after_snapshot": 100}


async def kill_and_restart(cluster: ProcessCluster, load: Load, *victims: str) -> float:
    """Kill, wait for a write where a quorum is left, start again; return how long writes paused."""
    has_quorum = 2 * len(victims) < len(cluster.ids)
    killed_at = time.monotonic()
    cluster.kill(*victims)
    if has_quorum:
        pause_s = await load.wait_write(killed_at, RECOVERY_S_MAX)
        cluster.start(*victims)
    else:
        cluster.start(*victims)
        pause_s = await load.wait_write(killed_at, RECOVERY_S_MAX)
    await cluster.wait_ready_async(*victims)
    return pause_s


async def run_kills(cluster: ProcessCluster, seed: int, rounds: int) -> None:
    source = random.Random(seed)
    load = Load(cluster.urls, seed=seed, options=LoadOptions())
    await load.start()
    pauses: dict[str, list[float]] = {"leader": [], "follower": [], "all": []}
    for number in range(rounds):
        await asyncio.sleep(source.uniform(0.3, 2.0))
        kind = ("leader", "all", "follower")[number % 3]
        leader = await asyncio.to_thread(cluster.leader)
        victims = {
            "leader": [leader],
            "follower": [source.choice([each for each in cluster.ids if each != leader])],
            "all": cluster.ids,
        }[kind]
        pauses[kind].append(await kill_and_restart(cluster, load, *victims))
    await load.stop()

    print(f"seed {seed}: {load.operation_count} operations, {dict(load.outcomes)}, "
          f"{len(load.held)} grants, {load.sessions_lost} sessions lost, errors of contenders "
          f"{dict(load.client_errors)}")  # fmt: skip
    for kind, seconds in pauses.items():
        print(f"{kind} killed: writes again after {statistics.median(seconds):.2f} s (median of "
              f"{len(seconds)}, worst {max(seconds):.2f} s)")  # fmt: skip
    found = judge(load) + await judge_end(cluster, load)
    assert not found, "\n".join([f"seed {seed}", *found])
    assert cluster.tracebacks() == []
    assert load.held, "locks were taken"


@pytest.mark.timeout(300)
async def test_kills_at_random_moments_lose_nothing(make_cluster: MakeCluster) -> None:
    """Leader, follower, all: nothing acknowledged is lost, no zxid or token falls."""
    await run_kills(make_cluster(raft=SNAPSHOTS), seed=random.randrange(10**6), rounds=6)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("members", [3, 5])
async def test_many_kills_lose_nothing(make_cluster: MakeCluster, members: int) -> None:
    """The same for longer, also with five members."""
    seed = random.randrange(10**6)
    await run_kills(make_cluster(members, raft=SNAPSHOTS), seed=seed, rounds=30)
