"""A real member whose memory is not what the others hold is found, and answers nothing more."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator import connect
from coordinator.errors import CoordinatorError
from tests.cluster.conftest import MakeCluster
from tests.cluster.processes import ProcessCluster
from tests.cluster.rotting_member import PATH, ROTTEN
from tests.patience import patient

pytestmark = pytest.mark.check

FOUND_WITHIN_S = 10
ENTRY = Path(__file__).with_name("rotting_member.py")
ENDED_WITHIN_S = 60.0


@pytest.fixture
def cluster(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> ProcessCluster:
    """Three members that can be told to rot."""

    def command(self: ProcessCluster, member_id: str) -> list[str]:
        config = str(self.directory / f"member-{member_id}.toml")
        return [sys.executable, str(ENTRY), "serve", "--config", config]

    monkeypatch.setattr(ProcessCluster, "command", command)
    return make_cluster()


def answers(cluster: ProcessCluster, member_id: str) -> list[Any]:
    """Return what it says to each way of reading the znode, and whether it is ready."""
    asked = (f"/v1/tree{PATH}", f"/v1/tree{PATH}?stale", "/health/ready")
    return [cluster.get(member_id, each) for each in asked]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ["follower", "leader"])
async def test_planted_difference_is_found(cluster: ProcessCluster, role: str) -> None:
    """In ten seconds. It gives neither the value that is wrong nor any other, takes no write and
    does not start again from its data; the others go on with what is right."""
    async with connect(cluster.urls, timeout=30) as client:
        await client.create(PATH, b"right")
        leader_id = await asyncio.to_thread(cluster.leader)
        chosen = leader_id if role == "leader" else next(e for e in cluster.ids if e != leader_id)
        others = [each for each in cluster.ids if each != chosen]
        for each in cluster.ids:
            assert answers(cluster, each)[0][0] == 200, "the route is right"
        planted = time.monotonic()

        cluster.signal(chosen, signal.SIGUSR1)
        differs = f"member {chosen} has stopped answering: its state differs from that of members"
        while differs not in cluster.log_path(chosen).read_text():
            assert time.monotonic() - planted < patient(FOUND_WITHIN_S), cluster.logs()
            await asyncio.sleep(0.05)

        assert f"members {', '.join(others)}" in cluster.log_path(chosen).read_text()
        assert [code for code, _ in answers(cluster, chosen) if code == 200] == []
        assert ROTTEN.decode() not in str(answers(cluster, chosen))
        async with connect([cluster.url(chosen)], timeout=2) as alone:
            with pytest.raises(CoordinatorError):
                await alone.set(PATH, b"wrong")
        async with connect([cluster.url(each) for each in others], timeout=30) as rest:
            assert (await rest.get(PATH)).data == b"right"
            await rest.set(PATH, b"later")

    status = cluster.status(chosen)
    assert status is not None, "it runs, to say why it answers nothing"
    assert differs in status["summary"]
    cluster.signal(chosen, signal.SIGTERM)
    cluster.processes[chosen].wait(patient(ENDED_WITHIN_S))
    cluster.start(chosen)
    assert cluster.processes[chosen].wait(patient(ENDED_WITHIN_S)) != 0, "not from these data"
    cluster.wipe(chosen)
    cluster.start(chosen)
    await cluster.wait_ready_async(chosen)
    async with connect([cluster.url(chosen)], timeout=30) as again:
        assert (await again.get(PATH)).data == b"later"
