"""Rolling all members one by one under load."""

from __future__ import annotations

import asyncio

import pytest

from coordinator import connect
from coordinator.recipes import Lock
from tests.cluster.conftest import MakeCluster
from tests.cluster.load import Load, LoadOptions
from tests.cluster.verdicts import judge, judge_end
from tests.ports import free_ports

pytestmark = pytest.mark.check


@pytest.mark.timeout(240)
async def test_a_rolling_restart_loses_no_lock_and_fails_no_call(make_cluster: MakeCluster) -> None:
    """SIGTERM, wait, start, wait ready, one after the other: nobody notices for good."""
    cluster = make_cluster()
    load = Load(cluster.urls, seed=2, options=LoadOptions(session_s=10.0))
    await load.start()
    async with connect(cluster.urls, session_timeout=10, timeout=15) as client:
        grant = await Lock(client, "kept", timeout=20).acquire()
        for member_id in cluster.ids:
            await asyncio.sleep(0.5)
            cluster.processes[member_id].terminate()
            code = await asyncio.to_thread(cluster.processes[member_id].wait, 60)
            assert code == 0, f"member {member_id} ended with {code}\n{cluster.logs()}"
            cluster.start(member_id)
            await cluster.wait_ready_async(member_id)
        await asyncio.sleep(0.5)
        grant.check()
        await grant.verify()
        await grant.release()
    await load.stop()

    print(f"{load.operation_count} operations {dict(load.outcomes)}, {len(load.held)} grants, "
          f"errors of contenders {dict(load.client_errors)}")  # fmt: skip
    assert judge(load) + await judge_end(cluster, load) == []
    assert load.sessions_lost == 0
    assert load.client_errors == {}, "the product's client hides every restart"
    assert cluster.tracebacks() == []


@pytest.mark.timeout(240)
async def test_a_member_moves_to_another_address_without_a_stop_of_all(
    make_cluster: MakeCluster,
) -> None:
    """As docs/recovery.md says: it first, then the others, one after the other."""
    cluster = make_cluster()
    load = Load(cluster.urls, seed=3, options=LoadOptions(session_s=20.0))
    await load.start()
    moved, *others = cluster.ids
    (cluster.member_ports[moved],) = free_ports(1)
    for member_id in cluster.ids:
        cluster._write_config(member_id)

    for member_id in (moved, *others):
        cluster.processes[member_id].terminate()
        await asyncio.to_thread(cluster.processes[member_id].wait, 60)
        cluster.start(member_id)
        if member_id != moved:
            await cluster.wait_ready_async(member_id)
    await cluster.wait_ready_async()
    await asyncio.sleep(0.5)
    await load.stop()

    assert judge(load) + await judge_end(cluster, load) == []
    assert load.sessions_lost == 0
    assert cluster.tracebacks() == []
