"""Real members that talk by TLS alone: kills, and certificates replaced while a lock is held."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator import connect
from coordinator.errors import UnavailableError
from recipes import Lock
from tests.certificates import Certificates
from tests.cluster.processes import ProcessCluster

pytestmark = pytest.mark.check


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    made = Certificates(tmp_path / "certs")
    cluster = ProcessCluster(tmp_path / "cluster", 3, certificates=made)
    cluster.start()
    cluster.wait_ready(deadline_s=60)
    yield cluster
    cluster.stop()


@pytest.mark.timeout(240)
async def test_a_lock_outlives_kills_and_another_ca(cluster: ProcessCluster) -> None:
    """No secret, only certificates: the leader is killed, the CA is replaced in three steps by
    files and SIGHUP, and every member is killed once more; the lock is held all the while."""
    made = cluster.certificates
    assert made is not None
    folder, old_ca = made.folder, await asyncio.to_thread(Path(made.ca_file).read_bytes)
    new = Certificates(folder, authority="new")
    new_ca = await asyncio.to_thread(Path(new.ca_file).read_bytes)

    def read_again() -> None:
        for member_id in cluster.ids:
            cluster.signal(member_id, signal.SIGHUP)

    async with connect(cluster.urls, ca_file=made.ca_file, timeout=20) as client:
        grant = await Lock(client, "kept", timeout=20).acquire()
        await restart(cluster, cluster.leader())
        for authorities in (old_ca + new_ca, new_ca):
            await asyncio.to_thread(Path(made.ca_file).write_bytes, authorities)
            read_again()
            if authorities != new_ca:
                for member_id in cluster.ids:
                    new.member(member_id)
                read_again()
        for member_id in cluster.ids:
            await restart(cluster, member_id)
        await grant.verify()
        await grant.release()

    wrong = Certificates(folder / "wrong", authority="wrong").ca_file
    async with connect(cluster.urls, ca_file=wrong, timeout=1) as stranger:
        with pytest.raises(UnavailableError, match="from no CA that this client trusts"):
            await stranger.exists("/")
    assert cluster.tracebacks() == []


async def restart(cluster: ProcessCluster, member_id: str) -> None:
    cluster.processes[member_id].kill()
    await asyncio.to_thread(cluster.processes[member_id].wait, 60)
    cluster.start(member_id)
    await cluster.wait_ready_async(member_id)
