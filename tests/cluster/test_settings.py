"""Real members that come back with other limits in their files, or as another release."""

from __future__ import annotations

import asyncio
import sys

import pytest

from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.errors import DataTooLargeError, QuotaExceededError
from coordinator.recipes import Lock
from tests.cluster.conftest import MakeCluster
from tests.cluster.processes import ProcessCluster

pytestmark = pytest.mark.check

ANOTHER_RELEASE = """
import sys
import coordinator.state.locks.operations
coordinator.state.locks.operations.GROUP_MAX = 63
from coordinator.cli.main import main
main()
"""


def limits(data_bytes_max: int, znodes_max: int) -> dict[str, str]:
    return {
        "COORDINATOR_LIMITS_DATA_BYTES_MAX": str(data_bytes_max),
        "COORDINATOR_LIMITS_ZNODES_MAX": str(znodes_max),
    }


async def fill(client: AsyncClient, first: int) -> int:
    """Create children until one is refused; return how many there were."""
    for number in range(first, 100):
        try:
            await client.create(f"/n{number}")
        except QuotaExceededError:
            return number - first
    raise AssertionError("no limit holds")


def znodes(cluster: ProcessCluster) -> set[int]:
    found = {each: cluster.status(each) for each in cluster.ids}
    return {-1 if status is None else status["znodes"] for status in found.values()}


@pytest.mark.timeout(240)
async def test_a_changed_limit_rewrites_no_history(make_cluster: MakeCluster) -> None:
    """What was refused never happened, what was acknowledged stays, tokens grow."""
    cluster = make_cluster(limits={"data_bytes_max": 300, "znodes_max": 8})
    token, zxid = 0, 0
    for env in ({}, limits(1_048_576, 1_000), limits(200, 3), {}):
        if zxid:
            cluster.kill()
            cluster.start(env=env)
            await cluster.wait_ready_async()
        async with connect(cluster.urls, timeout=20) as client:
            if zxid:
                assert (await client.get("/")).data == b"y" * 300
            with pytest.raises(DataTooLargeError):
                await client.set("/", b"x" * 301)
            written = await client.set("/", b"y" * 300)
            assert written.stat.mzxid > zxid
            grant = await Lock(client, "kept", timeout=20).acquire()
            assert grant.fencing_token > token
            token = grant.fencing_token
            await grant.release()
            zxid = written.stat.mzxid
            shown = await client.limits()
            assert (shown.version, shown.limits["znodes_max"]) == (1, 8)
        status = cluster.status("1")
        assert status is not None
        assert ("data_bytes_max is" in status["limits_differ"]) == bool(env)
    assert cluster.tracebacks() == []


@pytest.mark.timeout(240)
async def test_a_limit_raised_while_a_member_was_away_holds_for_it(
    make_cluster: MakeCluster,
) -> None:
    """All have the same znodes afterwards, whatever the file of one says (8, 8 and 20)."""
    cluster = make_cluster(limits={"znodes_max": 8})
    async with connect(cluster.urls, timeout=20) as client:
        few = await fill(client, 0)
        cluster.kill("3")
        await client.set_limits({"znodes_max": 20}, by="a test", expected_version=1)
        many = await fill(client, few)
        cluster.start("3", env=limits(1_048_576, 1_000))
        await cluster.wait_ready_async("3")
        here = connect(cluster.url("3"), timeout=20)
        async with here as third:
            assert len((await third.children("/")).names) >= few + many
    assert znodes(cluster) == {19}, "the last of twenty is kept for who frees room"
    assert few < 8 <= many
    assert cluster.tracebacks() == []


@pytest.mark.timeout(240)
async def test_another_release_takes_no_part(make_cluster: MakeCluster) -> None:
    """One constant differs: the others refuse it, and nothing is decided by it."""
    cluster = make_cluster()
    async with connect(cluster.urls[:2], timeout=20) as client:
        await client.create("/before")
        cluster.kill("3")
        right = cluster.command
        config = str(cluster.directory / "member-3.toml")
        cluster.command = lambda _: [  # type: ignore[method-assign]
            sys.executable, "-c", ANOTHER_RELEASE, "serve", "--config", config,
        ]  # fmt: skip
        cluster.start("3")
        differ = "differ in the rules of level 1"
        while differ not in cluster.log_path("3").read_text():
            assert cluster.is_running("3"), cluster.logs()
            await asyncio.sleep(0.1)
        assert cluster.get("3", "/health/ready")[0] != 200
        await client.create("/meanwhile")
        cluster.kill("3")
        cluster.command = right  # type: ignore[method-assign]
        cluster.start("3")
        await cluster.wait_ready_async("3")
        await client.create("/after")
    assert cluster.tracebacks() == []
