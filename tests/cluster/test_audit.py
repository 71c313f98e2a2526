"""The audit logs of a cluster: every member has each change once, also one that was killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import connect
from coordinator.recipes import Lock
from tests.audit.audited import lines, verdict
from tests.cluster.processes import ProcessCluster

pytestmark = pytest.mark.check


class AuditedCluster(ProcessCluster):
    """Members that each keep an audit log."""

    def audit_path(self, member_id: str) -> Path:
        return self.directory / f"audit-{member_id}.jsonl"

    def _write_config(self, member_id: str) -> None:
        super()._write_config(member_id)
        config = self.directory / f"member-{member_id}.toml"
        said = f'[audit]\ntarget = "file"\nfile = {json.dumps(str(self.audit_path(member_id)))}\n'
        config.write_text(said + config.read_text())

    def noted(self, member_id: str, event: str) -> list[Any]:
        path = self.audit_path(member_id)
        return [each for each in lines(path) if each["event"] == event] if path.exists() else []


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[AuditedCluster]:
    members = AuditedCluster(tmp_path / "cluster")
    members.start()
    await members.wait_ready_async()
    yield members
    members.stop()


async def revoked_at(cluster: AuditedCluster, member_id: str, name: str) -> None:
    async with (
        connect(cluster.endpoints) as holder,
        connect(cluster.url(member_id)) as operator,
    ):
        lock = Lock(holder, name)
        await lock.acquire()
        await operator.revoke(name, by="ann", reason="tried")


async def until_noted(cluster: AuditedCluster, count: int) -> None:
    for _ in range(300):
        if all(len(cluster.noted(each, "grant.revoked")) >= count for each in cluster.ids):
            return
        await asyncio.sleep(0.1)
    raise AssertionError({each: cluster.noted(each, "grant.revoked") for each in cluster.ids})


async def test_no_member_takes_a_line_with_it(cluster: AuditedCluster) -> None:
    """Killed members have what they missed, once, when they are back; the chains are whole."""
    await revoked_at(cluster, "2", "before")
    await until_noted(cluster, 1)
    leader = await asyncio.to_thread(cluster.leader)
    cluster.kill(leader)
    alive = next(each for each in cluster.ids if each != leader)
    await revoked_at(cluster, alive, "meanwhile")
    cluster.start(leader)
    await cluster.wait_ready_async()
    await revoked_at(cluster, leader, "after")
    await until_noted(cluster, 3)
    cluster.kill()
    cluster.start()
    await cluster.wait_ready_async()
    cluster.stop()

    changes = {}
    for member_id in cluster.ids:
        noted = cluster.noted(member_id, "grant.revoked")
        changes[member_id] = [(each["index"], each["zxid"], each["detail"]) for each in noted]
        assert len(noted) == 3, noted
        assert verdict(cluster.audit_path(member_id)).broken == ""
    assert changes["1"] == changes["2"] == changes["3"]
    asked = [
        each for member_id in cluster.ids for each in cluster.noted(member_id, "request.revoke")
    ]
    assert len(asked) == 3
    assert {each["address"] for each in asked} == {"127.0.0.1"}
    requests = {each["request"] for each in cluster.noted("1", "grant.revoked")}
    assert {each["request"] for each in asked} == requests
