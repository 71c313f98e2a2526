"""All kinds of locks at once, on real members that are killed, stopped and cut off meanwhile."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import AsyncClient, GrantRecord
from coordinator.errors import CoordinatorError, NoNodeError
from tests.cluster import lock_verdicts as verdicts
from tests.cluster.conftest import MakeCluster, StartScript
from tests.cluster.lock_worker import BURST, DELAY_S, RATE, SLOTS
from tests.cluster.processes import ProcessCluster
from tests.cluster.proxy import Proxy
from tests.cluster.scripts import Script

pytestmark = pytest.mark.check

SESSION_S = 1.5

class Crowd:
    """Worker processes at a cluster, a person who resizes and revokes, and what comes of it."""

    def __init__(self, cluster: ProcessCluster, seed: int, seconds: float) -> None:
        self.cluster = cluster
        self.seed = seed
        self.seconds = seconds
        self.workers: dict[str, Script] = {}
        self.proxies: list[Proxy] = []
        self.sizes = [(0, SLOTS)]
        self.perhaps_sizes: list[int] = []
        """Sizes that were asked for, and nobody knows whether they came to be."""
        self.revoked = 0
        self._random = random.Random(seed)

    async def start(self, client: AsyncClient, start_script: StartScript) -> None:
        """Start the proxies and the workers, the last of which is there to be killed."""
        await client.create("/work", b"")
        for member_id in self.cluster.ids:
            proxy = Proxy(self.cluster.client_ports[member_id])
            await proxy.start()
            self.proxies.append(proxy)
        endpoints = ",".join(proxy.url for proxy in self.proxies)
        for name, face in (("a", "async"), ("b", "async"), ("s", "sync"), ("v", "async")):
            self.workers[name] = start_script(
                "-m", "tests.cluster.lock_worker", endpoints, name, f"{self.seed}/{name}",
                str(self.seconds), str(SESSION_S), face,
            )  # fmt: skip
        for worker in self.workers.values():
            await asyncio.to_thread(worker.wait_for, "ready")

    async def meddle(self, client: AsyncClient) -> None:
        """Resize the semaphore and force holders out, again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 0.5))
            try:
                if self._random.random() < 0.5:
                    await self._resize(client, self._random.randint(1, 5))
                else:
                    await self._revoke(client, self._random.choice(["a", "b", "rw", "slots", "m"]))
            except CoordinatorError:
                pass  # a refusal (nobody holds it), or no leader just now

    async def _resize(self, client: AsyncClient, size: int) -> None:
        try:
            reply = await client.resize("slots", size)
        except CoordinatorError as error:
            if not error.definite:
                self.perhaps_sizes.append(size)
            raise
        self.sizes.append((reply.zxid, size))

    async def _revoke(self, client: AsyncClient, name: str) -> None:
        view = await client.lock(name)
        standing = [*view.holders, *view.queue[:1]]
        if standing:
            chosen = self._random.choice(standing)
            await client.revoke(name, by="test", reason="to see", grant_id=chosen.grant_id)
            self.revoked += 1

    async def ended(self) -> None:
        """Wait until every worker that lives has come to its end."""
        for name, worker in self.workers.items():
            if name != "v":
                await asyncio.to_thread(worker.wait_for, "end", 60)
        for proxy in self.proxies:
            await proxy.stop()

    def lines(self, event: str) -> list[dict[str, Any]]:
        found = []
        for worker in self.workers.values():
            worker.drain()
            found += [line for line in worker.lines if line["event"] == event]
        return found


async def kill_leader(crowd: Crowd) -> None:
    leader = await asyncio.to_thread(crowd.cluster.leader)
    crowd.cluster.kill(leader)
    await asyncio.sleep(0.3)
    crowd.cluster.start(leader)
    await asyncio.to_thread(crowd.cluster.wait_ready, leader, deadline_s=120)


async def stop_leader(crowd: Crowd) -> None:
    leader = await asyncio.to_thread(crowd.cluster.leader)
    crowd.cluster.signal(leader, signal.SIGSTOP)
    await asyncio.sleep(SESSION_S)
    crowd.cluster.signal(leader, signal.SIGCONT)


async def cut_leader_off_from_clients(crowd: Crowd) -> None:
    leader = await asyncio.to_thread(crowd.cluster.leader)
    proxy = crowd.proxies[crowd.cluster.ids.index(leader)]
    proxy.cut()
    await asyncio.sleep(0.5)
    proxy.heal()


async def cut_everybody_off(crowd: Crowd) -> None:
    """Until all sessions are lost, and all who held know it first."""
    for proxy in crowd.proxies:
        proxy.cut()
    await asyncio.sleep(SESSION_S + 0.3)
    for proxy in crowd.proxies:
        proxy.heal()


async def stop_a_worker(crowd: Crowd) -> None:
    """Beyond its lease, and beyond the bounds of its holds."""
    crowd.workers["b"].signal(signal.SIGSTOP)
    await asyncio.sleep(SESSION_S + 0.8)
    crowd.workers["b"].signal(signal.SIGCONT)


async def kill_a_worker(crowd: Crowd) -> None:
    """There is one to be killed; after that this does nothing."""
    crowd.workers["v"].end()


FAULTS = (
    kill_leader,
    stop_a_worker,
    kill_a_worker,
    stop_leader,
    cut_everybody_off,
    cut_leader_off_from_clients,
)


async def run(
    cluster: ProcessCluster, start_script: StartScript, seconds: float, rounds: int
) -> None:
    seed = random.randrange(10**6)
    crowd = Crowd(cluster, seed, seconds)
    async with connect(cluster.endpoints, timeout=8.0, session_timeout=20) as client:
        await crowd.start(client, start_script)
        meddling = asyncio.create_task(crowd.meddle(client))
        end = time.monotonic() + seconds
        for _ in range(rounds):
            if time.monotonic() > end:
                break
            for fault in FAULTS:
                await asyncio.sleep(0.2)
                await fault(crowd)
        await crowd.ended()
        meddling.cancel()
        await asyncio.wait({meddling})
        found = await left_over(client)
        grants = [grant async for grant in client.grants()]
    await judge(crowd, grants, found)


async def children_of(client: AsyncClient, path: str) -> list[str]:
    """Return the paths of the children; none of what is not there (any more)."""
    try:
        return [f"{path}/{name}" for name in (await client.children(path)).names]
    except NoNodeError:
        return []


async def left_over(client: AsyncClient) -> list[str]:
    """Return who still stands in a queue, and which sessions are open, when all should be gone."""
    end = time.monotonic() + 3 * SESSION_S + 10.0
    while True:
        standing = [
            each
            for root in ("/locks", "/elections")
            for queue in await children_of(client, root)
            for each in await children_of(client, queue)
        ]
        sessions = [each.label for each in await client.sessions() if each.label]
        if not standing and not sessions:
            return []
        if time.monotonic() > end:
            return [f"left: {standing[:5]}, sessions of {sessions}"]
        await asyncio.sleep(0.1)


async def judge(crowd: Crowd, grants: list[GrantRecord], found: list[str]) -> None:
    held = crowd.lines("held")
    story = verdicts.Story(grants, held, {"slots": crowd.sizes}, crowd.perhaps_sizes)
    found += verdicts.judge(story)
    found += verdicts.delays_kept(story, {"/locks/c": round(DELAY_S * 1000)})
    found += verdicts.once(crowd.lines("once"))
    found += verdicts.rate_kept([each["at_ms"] for each in crowd.lines("took")], RATE, BURST)
    found += [f"overdue: {each}" for each in crowd.lines("overdue")]
    done, errors = Counter[str](), Counter[str]()
    for line in crowd.lines("end"):
        done += Counter(line["done"])
        errors += Counter(line["errors"])
    print(f"seed {crowd.seed}: {len(grants)} grants, {Counter(each.how for each in grants)}; "
          f"{sum(len(each['writes']) for each in held)} writes under them, {crowd.revoked} forced "
          f"out, {len(crowd.sizes)} sizes; {dict(done)}; {dict(errors)}")  # fmt: skip
    assert not found, "\n".join([f"seed {crowd.seed}", *found])
    assert crowd.cluster.tracebacks() == []
    assert {"exclusive", "shared", "slot"} <= {each.kind for each in grants}
    assert any(each.group for each in grants), "several locks were had at once"


@pytest.mark.timeout(180)
async def test_all_kinds_of_locks_keep_their_promises_under_faults(
    make_cluster: MakeCluster, start_script: StartScript
) -> None:
    """Leader killed, stopped, cut off; a worker stopped, one killed: nobody is told an untruth."""
    await run(make_cluster(), start_script, seconds=10.0, rounds=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("members", [3, 5])
async def test_all_kinds_of_locks_keep_their_promises_for_long(
    make_cluster: MakeCluster, start_script: StartScript, members: int
) -> None:
    """The same for some minutes, with small snapshots, also with five members."""
    cluster = make_cluster(
        members,
        raft={"snapshot_every_entries": 2_000, "keep_entries_after_snapshot": 200},
        limits={"grant_history_max": 200_000, "grant_history_bytes_max": 1 << 28},
    )
    await run(cluster, start_script, seconds=150.0, rounds=14)
