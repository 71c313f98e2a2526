"""Another identity's request numbers at the door: every route that takes them, and both doors.

The state decides whose a client's id is (``tests/state/test_others_request_numbers.py``). Here
nothing before it may answer, wait, join or undo in the name of a number alone: each route is asked
by its client, then by another identity that has the same rights and knows the number, then again by
its client. A new route says whether it takes numbers, or fails here.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.wire.guarded import Cluster, bearer, guarded
from tests.wire.serving import MSGPACK
from tests.wire.stream.test_both_doors import ROWS, Row, _filled, _raw
from tests.wire.test_access_table import row_of

EVERYTHING = tuple((prefix, ("read", "write", "lock", "watch", "admin")) for prefix in ("/", "@"))
WITHOUT_NUMBERS = {
    "watch_many": "it reads",
    "heartbeat": "it may be done any number of times",
    "heartbeats": "it may be done any number of times",
    "set_log_level": "it may be done any number of times",
    "hand_over": "it is no command of the log",
    "finish_upgrade": "a repeat finds the level raised",
    "abandon_lock_attempt": "it names the number in its path",
    "abandon_campaign": "it names the number in its path",
}
"""Why a write takes no request number."""
AT_ONCE = {"accept": MSGPACK["Accept"]}
NUMBERED = [
    name for name, row in ROWS.items()
    if row.method not in ("GET", "HEAD") and name not in WITHOUT_NUMBERS
]  # fmt: skip
TARGETS = {"campaign": "/v1/elections/free", "resign": "/v1/elections/e/grants/{elected}"}
REFUSED = {"init_access": 409}
"""What is refused to everybody in this scene, which is an outcome as well."""


HALF = {"coordinator-client-id": "c9"}


def with_headers(row: Row, **headers: str) -> Row:
    return Row(row.method, row.target, row.body, {**row.headers, **HALF, **AT_ONCE, **headers})


def numbered(row: Row, number: int) -> Row:
    return with_headers(row, **{"coordinator-request-number": str(number)})


def is_endless(response: aiohttp.ClientResponse) -> bool:
    return response.status == 200 and "msgpack" not in response.headers["Content-Type"]


async def answered(
    cluster: Cluster, row: Row, token: str, names: dict[str, str]
) -> tuple[int, bytes]:
    raw = _raw(_filled(row.body, names))
    headers = {**MSGPACK, "Coordinator-Test": "1", **bearer(token)}
    headers.update({name.title(): value for name, value in row.headers.items()})
    if raw is None:
        del headers["Content-Type"]
    url = URL(cluster.api.server.url + _filled(row.target, names), encoded=True)
    given: dict[str, Any] = {"headers": headers, "data": raw}
    given["skip_auto_headers"] = ["Content-Type"] if raw is None else []
    async with cluster.api.session.request(row.method, url, **given) as response:
        return response.status, b"" if is_endless(response) else await response.read()


@pytest.mark.parametrize("operation_id", NUMBERED)
async def test_another_is_refused_and_its_client_is_answered_as_before(operation_id: str) -> None:
    """By both doors: 403, and nothing is done; the first answer is still there."""
    async with guarded() as cluster:
        await cluster.identity(("/spare", ("read",)))
        own = await cluster.identity(*EVERYTHING)
        other = await cluster.identity(*EVERYTHING, is_new=True)
        names = await cluster.scene(own)
        row = row_of(operation_id)
        row = replace(row, target=TARGETS.get(operation_id, row.target))
        machine = cluster.api.member._replica.machine
        first = await answered(cluster, numbered(row, 1), own, names)
        digest = machine.digest()
        seen = [
            await door(numbered(row, number), other, names)
            for number in (1, 2)
            for door in (cluster.by_http, cluster.by_stream)
        ]
        after = machine.digest()
        repeated = await answered(cluster, numbered(row, 1), own, names)

    assert first[0] < 300 or first[0] == REFUSED.get(operation_id), first
    assert seen == [403] * 4
    assert after == digest
    assert repeated == first


async def test_what_is_under_way_is_neither_joined_nor_undone() -> None:
    """A wait for a lock goes on, whatever another does with its number; then it is granted."""
    async with guarded() as cluster:
        own = await cluster.identity(*EVERYTHING)
        other = await cluster.identity(*EVERYTHING, is_new=True)
        body = {"lease_ms": 60_000, "timeout_ms": 0}
        held = await cluster.api.post("/v1/locks/busy", body, **bearer(other))
        number = {"Coordinator-Client-Id": "c9", "Coordinator-Request-Number": "1"}
        wait = {**body, "timeout_ms": 60_000}
        asked = cluster.api.post("/v1/locks/busy", wait, **number, **bearer(own))
        waits = asyncio.create_task(asked)
        machine = cluster.api.member._replica.machine
        while machine.locks.length("/locks/busy") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        seen = []
        for kind in ("locks", "elections"):
            target = f"/v1/{kind}/busy"
            seen.append(await cluster.api.post(target, wait, **number, **bearer(other)))
            seen.append(await cluster.api.delete(f"{target}/attempts/c9/1", **bearer(other)))
        is_waiting = not waits.done()
        grant_id = held.body["grant"]["grant_id"]
        await cluster.api.delete(f"/v1/locks/busy/grants/{grant_id}", **bearer(other))
        granted = await waits

    assert [each.status for each in seen] == [403] * 4
    assert is_waiting
    assert granted.status == 200


async def test_every_write_takes_a_number_or_says_why_not() -> None:
    """Half of a number is refused by each route that takes one, and by no other."""
    refused = set()
    async with guarded() as cluster:
        own = await cluster.identity(*EVERYTHING)
        for name, row in ROWS.items():
            if row.method in ("GET", "HEAD"):
                continue
            names = await cluster.scene(own)
            status, body = await answered(cluster, with_headers(row_of(name)), own, names)
            if status == 400 and b"request" in body:
                refused.add(name)
            await cluster.clear()

    assert refused == set(NUMBERED)
