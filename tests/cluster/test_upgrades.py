"""Upgrades of real members: this release and the next one, in one cluster, there and back."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import connect
from coordinator.recipes import Lock
from tests.cluster.conftest import MakeCluster
from tests.cluster.load import Load, LoadOptions
from tests.cluster.next_release import RELEASE, make_next_release
from tests.cluster.processes import ProcessCluster
from tests.cluster.verdicts import judge, judge_end
from tests.docs.pages import FENCE, ROOT
from tests.patience import patient

pytestmark = pytest.mark.check

SNAPSHOTS = {"snapshot_every_entries": 100, "keep_entries_after_snapshot": 20}
THIS: dict[str, str] = {}
PAGE = textwrap.dedent((ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8"))
BLOCKS = [each["body"] for each in FENCE.finditer(PAGE.replace("\n   ", "\n"))]
"""The commands of the page, before and after the members were exchanged."""


async def exchange(
    cluster: ProcessCluster, member_id: str, release: dict[str, str], *, wiped: bool = False
) -> None:
    """Start a member with another release, and wait until it is ready."""
    process = cluster.processes[member_id]
    process.terminate()
    code = await asyncio.to_thread(process.wait, 60)
    assert code == 0, f"member {member_id} ended with {code}\n{cluster.logs()}"
    if wiped:
        cluster.wipe(member_id)
    cluster.start(member_id, env=release)
    await cluster.wait_ready_async(member_id)


def run(cluster: ProcessCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line against the cluster."""
    environment = {**os.environ, "COORDINATOR_ENDPOINTS": cluster.endpoints}
    command = [sys.executable, "-m", "coordinator", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def follow(cluster: ProcessCluster, block: str) -> subprocess.CompletedProcess[str]:
    """Run a block of the page."""
    environment = {**os.environ, "COORDINATOR_ENDPOINTS": cluster.endpoints}
    script = f'set -e\ncoordinator() {{ "{sys.executable}" -m coordinator "$@"; }}\n{block}'
    done = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    return done


def upgrade(cluster: ProcessCluster) -> dict[str, Any]:
    """Return what the first member says of the upgrade."""
    code, view = cluster.get("1", "/v1/upgrade", timeout_s=5.0)
    assert code == 200, view
    found: dict[str, Any] = view
    return found


def append(cluster: ProcessCluster, member_id: str) -> tuple[int, dict[str, Any]]:
    """Ask a member of the next release for its operation."""
    url = cluster.url(member_id) + "/v1/append?path=/appended&data=x"
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=b"{}", headers=kind, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def said(code: int, answer: dict[str, Any]) -> str:
    return f"{code} {answer.get('detail', '')}"


async def held_throughout(cluster: ProcessCluster, doing: Callable[[], Awaitable[None]]) -> None:
    """Do this under load while a lock is held; whatever clients saw must be as it is promised."""
    load = Load(cluster.urls, seed=5, options=LoadOptions(session_s=20.0, per_second=60))
    await load.start()
    async with connect(cluster.urls, session_timeout=20, timeout=60) as client:
        if not await client.exists("/appended"):
            await client.create("/appended", b"")
        grant = await Lock(client, "kept", timeout=30).acquire()
        await doing()
        grant.check()
        await grant.verify()
        await grant.release()
    await load.stop()
    assert judge(load) + await judge_end(cluster, load) == []
    assert load.sessions_lost == 0
    assert cluster.tracebacks() == []


@pytest.mark.timeout(900)
async def test_members_are_upgraded_in_every_order_and_back(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Under load, with a lock held throughout: nobody notices, and no digest differs."""
    following = make_next_release(tmp_path / "next")
    cluster = make_cluster(raft=SNAPSHOTS)

    async def there_and_back() -> None:
        for order in itertools.permutations(cluster.ids):
            for member_id in order:
                await exchange(cluster, member_id, following)
                answer = await asyncio.to_thread(append, cluster, member_id)
                assert "finish the upgrade first" in said(*answer), answer
            view = await asyncio.to_thread(upgrade, cluster)
            assert (view["level"], view["can_finish"]) == (1, True)
            assert {each["release"] for each in view["members"]} == {RELEASE}
            for member_id in reversed(order):
                await exchange(cluster, member_id, THIS)

    await held_throughout(cluster, there_and_back)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_leader_first", [True, False])
async def test_an_upgrade_is_finished_and_then_there_is_no_way_back(
    make_cluster: MakeCluster, tmp_path: Path, is_leader_first: bool
) -> None:
    """As docs/upgrading.md says. A new member's disk is filled by an old leader, an old one's by a
    new leader; once the level is raised the former release is refused in words, with its data and
    without."""
    following = make_next_release(tmp_path / "next")
    cluster = make_cluster(raft=SNAPSHOTS)
    leader = cluster.leader()
    others = [each for each in cluster.ids if each != leader]
    first, second, third = (leader, *others) if is_leader_first else (*others, leader)

    async def upgraded() -> None:
        before, after = BLOCKS
        early = await asyncio.to_thread(follow, cluster, before)
        assert "at level 1, the newest that its members read" in early.stdout
        await exchange(cluster, first, following, wiped=True)  # old to new
        refused = await asyncio.to_thread(run, cluster, "upgrade", "finish")
        assert refused.returncode != 0
        assert "with the new release" in refused.stderr, refused
        await exchange(cluster, second, following)
        await exchange(cluster, third, THIS, wiped=True)  # mostly new to old
        await exchange(cluster, third, following)
        finished = await asyncio.to_thread(follow, cluster, after)
        assert "Each member can still be started with its former release." in finished.stdout
        assert "at level 2, the newest that its members read" in finished.stdout
        for member_id in cluster.ids:
            code, answer = await asyncio.to_thread(append, cluster, member_id)
            assert code == 200, answer
        assert (await asyncio.to_thread(cluster.get, first, "/v1/tree/appended"))[0] == 200
        await exchange(cluster, second, following, wiped=True)  # a snapshot of level 2

    await held_throughout(cluster, upgraded)

    for is_wiped in (False, True):
        cluster.processes[first].terminate()
        cluster.processes[first].wait(60)
        if is_wiped:
            cluster.wipe(first)
        since = cluster.log_path(first).stat().st_size
        cluster.start(first, env=THIS)
        await asyncio.to_thread(logged, cluster, first, since, "level")
        assert cluster.get(first, "/health/ready")[0] != 200
    cluster.processes[first].terminate()
    cluster.processes[first].wait(60)
    cluster.start(first, env=following)
    await cluster.wait_ready_async(first)


@pytest.mark.timeout(300)
async def test_a_new_cluster_of_the_next_release_is_read_by_this_one(tmp_path: Path) -> None:
    """It begins at level 1, so its members can be started with the release before."""
    following = make_next_release(tmp_path / "next")
    cluster = ProcessCluster(tmp_path / "cluster", 3, {"raft": SNAPSHOTS})
    try:
        cluster.start(env=following)
        cluster.wait_ready(deadline_s=60)
        for member_id in cluster.ids:
            await exchange(cluster, member_id, THIS)
        async with connect(cluster.urls, timeout=30) as client:
            await client.create("/written", b"by the former release")
        for member_id in cluster.ids:
            await exchange(cluster, member_id, following)
        assert (await asyncio.to_thread(upgrade, cluster))["can_finish"]
    finally:
        cluster.stop()
    assert cluster.tracebacks() == []


def logged(cluster: ProcessCluster, member_id: str, since: int, words: str) -> str:
    """Wait until a member's log says that it reads no such level; return the line."""
    end = time.monotonic() + patient(60.0)
    while time.monotonic() < end:
        lines = cluster.log_path(member_id).read_bytes()[since:].decode().splitlines()
        found = [each for each in lines if "reads levels 1 to 1" in each and words in each]
        if found:
            return found[0]
        time.sleep(0.05)
    raise TimeoutError(cluster.logs())
