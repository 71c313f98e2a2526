"""Many at once: a thousand who wait for one lock, fifty who want to be first."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from coordinator import connect
from coordinator.model.limits import NEW_CLUSTER
from coordinator.recipes import Lock
from tests.cluster.conftest import MakeCluster
from tests.cluster.processes import ProcessCluster
from tests.cluster.wire import Wire

pytestmark = pytest.mark.check

WAITERS = 1_000
COMING_MAX = 100
"""Contenders that connect at once."""
PATIENT = {"http": {"header_deadline_ms": 60_000}}
"""So that no machine is too busy for the test to speak in time; a thousand are many for it."""
WAKEUPS = "coordinator_contender_wakeups_total"
GRANTS = "coordinator_grants_total"


@asynccontextmanager
async def waiting(
    cluster: ProcessCluster, name: str, count: int, kind: str = "exclusive"
) -> AsyncIterator[asyncio.Queue[Any]]:
    """Let ``count`` contenders of one session wait at all members; grants go into a queue."""
    grants: asyncio.Queue[Any] = asyncio.Queue()
    queued: asyncio.Queue[int] = asyncio.Queue()
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        body = {"timeout_ms": 600_000, "label": "crowd"}
        async with http.post(f"{cluster.urls[0]}/v1/sessions", json=body) as reply:
            session_id = (await reply.json())["session_id"]

        coming = asyncio.Semaphore(COMING_MAX)

        async def wait(number: int) -> None:
            await coming.acquire()
            url = f"{cluster.urls[number % len(cluster.urls)]}/v1/locks/{name}"
            ask = {"session_id": session_id, "timeout_ms": 600_000, "kind": kind}
            headers = {"Accept": "application/x-ndjson"}
            async with http.post(url, json=ask, headers=headers) as stream:
                assert stream.status == 200, (number, stream.status, await stream.text())
                async for line in stream.content:
                    found = json.loads(line) if line.strip() else {"type": ""}
                    if found["type"] == "queued":
                        queued.put_nowait(number)
                        coming.release()
                    if found["type"] in ("granted", "error"):
                        grants.put_nowait(found)
                        return
            raise AssertionError(f"contender {number}: its stream ended before it was granted")

        tasks = [asyncio.create_task(wait(number)) for number in range(count)]
        try:
            seen: set[int] = set()
            while len(seen) < count:
                try:
                    seen.add(await asyncio.wait_for(queued.get(), 60))
                except TimeoutError:
                    ended = [each.exception() for each in tasks if each.done()]
                    raise AssertionError(f"{len(seen)} of {count} are queued: {ended}") from None
            yield grants
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def total(cluster: ProcessCluster, metric: str) -> float:
    return sum(cluster.metric(each, metric) for each in cluster.ids)


@pytest.mark.timeout(240)
async def test_one_release_wakes_one_of_a_thousand(make_cluster: MakeCluster) -> None:
    """1,000 waiters, one release: exactly one wake-up and one grant in the whole cluster."""
    cluster = make_cluster(**PATIENT)
    wire = Wire(cluster.urls[0])
    ask = {"lease_ms": 600_000, "timeout_ms": 0}
    held = await wire.request("POST", "/v1/locks/crowd", ask)
    assert held.status == 200, held
    grant_id = held.body["grant"]["grant_id"]

    async with waiting(cluster, "crowd", WAITERS) as grants:
        wakeups = total(cluster, WAKEUPS)
        granted = total(cluster, GRANTS)
        released = await wire.request("DELETE", f"/v1/locks/crowd/grants/{grant_id}")
        first = await asyncio.wait_for(grants.get(), 60)
        # A proposal through every member, so that each has applied the release and what it woke.
        for each in cluster.ids:
            put = await wire.request("PUT", f"/v1/tree/after-{each}?create", {"data": ""})
            assert put.status == 201
            status = await Wire(cluster.url(each)).request("GET", f"/v1/tree/after-{each}")
            assert status.status == 200
        view = await wire.request("GET", "/v1/locks/crowd")

        assert released.body["released"] is True
        assert first["grant"]["fencing_token"] > held.body["grant"]["fencing_token"]
        assert view.body["holder"]["grant_id"] == first["grant"]["grant_id"]
        assert len(view.body["queue"]) == WAITERS - 1
        assert grants.empty(), "one grant"
        assert total(cluster, WAKEUPS) - wakeups == 1
        assert total(cluster, GRANTS) - granted == 1
    wire.close()


@pytest.mark.timeout(240)
async def test_a_thousand_readers_and_a_writer_wait_for_each_other_in_turn(
    make_cluster: MakeCluster,
) -> None:
    """Those before the writer hold together, those behind wait for it: neither side starves."""
    cluster = make_cluster(**PATIENT)
    wire = Wire(cluster.urls[0])

    async def all_granted(grants: asyncio.Queue[Any], count: int) -> str:
        """Wait until all are granted; return the session that they all share."""
        changes = [await asyncio.wait_for(grants.get(), 60) for _ in range(count)]
        sessions = {each["grant"]["session_id"] for each in changes}
        assert len(sessions) == 1
        return str(sessions.pop())

    async with connect(cluster.endpoints, timeout=60, session_timeout=60) as client:
        first = await Lock(client, "crowd").acquire()
        async with waiting(cluster, "crowd", WAITERS, "shared") as early:
            writing = Lock(client, "crowd", owner="second", timeout=120)
            second = asyncio.create_task(writing.acquire())
            for _ in range(600):
                if len((await client.lock("crowd")).queue) > WAITERS:
                    break
                await asyncio.sleep(0.1)
            async with waiting(cluster, "crowd", 50, "shared") as late:
                await first.release()
                early_session = await all_granted(early, WAITERS)
                assert late.empty()
                assert not second.done(), "it came after the readers that hold"
                await wire.request("DELETE", f"/v1/sessions/{early_session}")
                await second
                assert late.empty(), "it holds alone"
                await writing.release()
                await all_granted(late, 50)
    grants: list[Any] = []
    page = "/v1/grants?lock=crowd"
    while page:
        body = (await wire.request("GET", page, timeout_s=30)).body
        grants += body["grants"]
        page = f"/v1/grants?lock=crowd&after={body['next']}" if body["next"] else ""
    wire.close()

    granted = [each["granted_zxid"] for each in grants]
    assert len(granted) == WAITERS + 52
    together = [count for _, count in sorted(Counter(granted).items())]
    at_once = NEW_CLUSTER.grants_per_command_max
    assert together == [1, *[at_once] * (WAITERS // at_once), 1, 50], (
        "a writer, all readers in as few commands as may be, a writer, the late ones"
    )
    tokens = [each["fencing_token"] for each in grants]
    assert tokens == sorted(set(tokens))


async def test_one_of_fifty_creates_what_was_absent(make_cluster: MakeCluster) -> None:
    """50 clients create one znode at once at all members: one 201, 49 told who was first."""
    cluster = make_cluster()
    wires = [Wire(cluster.urls[number % 3]) for number in range(50)]
    session = (await wires[0].request("POST", "/v1/sessions", {"timeout_ms": 2_000})).body

    async def create(number: int, wire: Wire) -> tuple[int, str]:
        guarded = {
            "conditions": [{"path": "/only", "exists": False}],
            "then": [{"op": "create", "path": "/only", "data": f"client {number}",
                      "mode": "ephemeral", "session_id": session["session_id"]}],
            "otherwise": [{"op": "read", "path": "/only"}],
        }  # fmt: skip
        answer = await wire.request("POST", "/v1/multi", guarded, timeout_s=30)
        told = answer.body["results"][0].get("data", f"client {number}")
        return (201 if answer.body["branch"] == "then" else 409), told

    async def create_plainly(wire: Wire) -> int:
        body = {"data": "", "mode": "ephemeral", "session_id": session["session_id"]}
        return (await wire.request("POST", "/v1/tree/plain", body, timeout_s=30)).status

    results = await asyncio.gather(*(create(n, wire) for n, wire in enumerate(wires)))
    statuses = await asyncio.gather(*(create_plainly(wire) for wire in wires))

    assert sorted(status for status, _ in results) == [201] + [409] * 49
    assert len({told for _, told in results}) == 1, "all are told of the same holder"
    assert sorted(statuses) == [201] + [409] * 49
    for _ in range(600):
        gone = await wires[0].request("GET", "/v1/tree/only")
        if gone.status == 404:
            break
        await asyncio.sleep(0.1)
    assert gone.status == 404, "without renewal it is gone after its lease"
    for wire in wires:
        wire.close()
