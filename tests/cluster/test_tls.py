"""Real members that talk by TLS alone: kills, and certificates replaced while a lock is held."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.errors import UnavailableError
from coordinator.recipes import Lock
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


@pytest.mark.timeout(240)
async def test_a_cluster_with_a_secret_gets_tls_member_by_member(tmp_path: Path) -> None:
    """Each restarts twice, with and then without ``tls = "accepted"``: a lock is held and writes
    go on all the while. In between the status warns, and afterwards no member talks in the clear.
    """
    cluster = ProcessCluster(tmp_path / "cluster", 3)
    made = Certificates(tmp_path / "certs")
    done, ends = 0, asyncio.Event()

    def shown(member_id: str, tls: str) -> dict[str, str]:
        certificate, key = made.member(member_id)
        return {
            "COORDINATOR_MEMBER_TLS": tls, "COORDINATOR_MEMBER_TLS_CERT_FILE": certificate,
            "COORDINATOR_MEMBER_TLS_KEY_FILE": key,
            "COORDINATOR_CLUSTER_TLS_CA_FILE": made.ca_file,
        }  # fmt: skip

    async def write(client: AsyncClient) -> None:
        nonlocal done
        await client.create("/written", b"0")
        while not ends.is_set():
            await client.set("/written", b"%d" % (done + 1))
            done += 1
            await asyncio.sleep(0.02)

    try:
        cluster.start()
        await cluster.wait_ready_async()
        async with connect(cluster.urls, timeout=30) as client:
            grant = await Lock(client, "kept", timeout=20).acquire()
            writing = asyncio.create_task(write(client))
            warned = []
            for tls in ("accepted", "required"):
                for member_id in cluster.ids:
                    before = done
                    await restart(cluster, member_id, signal.SIGTERM, shown(member_id, tls))
                    while done < before + 5:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                status = await asyncio.to_thread(cluster.status, "1")
                assert status is not None
                warned.append([each for each in status["off"] if "member.tls" in each])
            ends.set()
            await writing
            assert (await client.get("/written")).data == b"%d" % done
            await grant.verify()
            await grant.release()
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.member_ports["1"])
        writer.write(b"\0\0\0\x10" + bytes(16))
        answer = await asyncio.wait_for(reader.read(100), 10)
        writer.close()
    finally:
        cluster.stop()

    assert [len(each) for each in warned] == [1, 0], warned
    assert answer[:1] in (b"", b"\x15"), "the alert of TLS at most"
    assert cluster.tracebacks() == []


async def restart(
    cluster: ProcessCluster,
    member_id: str,
    by: int = signal.SIGKILL,
    env: Mapping[str, str] | None = None,
) -> None:
    cluster.signal(member_id, by)
    await asyncio.to_thread(cluster.processes[member_id].wait, 60)
    cluster.start(member_id, env=env)
    await cluster.wait_ready_async(member_id)
