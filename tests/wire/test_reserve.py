"""No client and no address takes all sessions, and whoever fills the state leaves a reserve."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from coordinator.wire.messages import CLIENT_ID_HEADER, REQUEST_NUMBER_HEADER
from tests.wire.serving import Api

OWN_LEASE = {"lease_ms": 30_000, "timeout_ms": 0}


async def limit(api: Api, **limits: int) -> None:
    reply = await api.call("PATCH", "/v1/limits", {"limits": limits, "by": "test"})
    assert reply.status == 200, reply


async def open_session(api: Api, *, count: int = 1, **body: Any) -> list[str]:
    replies = [await api.post("/v1/sessions", {"timeout_ms": 60_000, **body}) for _ in range(count)]
    assert {each.status for each in replies} == {201}, replies
    return [each.body["session_id"] for each in replies]


@asynccontextmanager
async def calling_from(api: Api, address: str) -> AsyncIterator[Api]:
    """Yield the same member as a client at another address of this machine calls it."""
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Api(api.server, api.member, session)


async def test_one_address_has_its_share_of_the_sessions(api: Api) -> None:
    """However it opens them; another address goes on, and room that is made can be used."""
    await limit(api, sessions_per_address_max=3)
    opened = await open_session(api, count=2)
    lock = (await api.post("/v1/locks/own", OWN_LEASE)).body["grant"]

    refused = await api.post("/v1/sessions", {"timeout_ms": 60_000})
    with_lease = await api.post("/v1/locks/other", OWN_LEASE)
    async with calling_from(api, "127.0.0.2") as elsewhere:
        (other,) = await open_session(elsewhere)
    listed = {each["session_id"]: each for each in (await api.get("/v1/sessions")).body["sessions"]}
    await api.delete(f"/v1/sessions/{opened[0]}")

    assert (refused.status, refused.code) == (409, "QuotaExceeded")
    assert refused.body["limit"] == "sessions_per_address_max"
    assert (refused.body["maximum"], refused.body["address"]) == (3, "127.0.0.1")
    assert "coordinator sessions close --address" in refused.body["detail"]
    assert (with_lease.status, with_lease.code) == (409, "QuotaExceeded")
    assert lock["session_id"] in listed
    assert listed[opened[1]]["address"] == "127.0.0.1"
    assert listed[other]["address"] == "127.0.0.2"
    assert (await api.post("/v1/sessions", {"timeout_ms": 60_000})).status == 201


async def test_one_client_has_its_share_of_the_sessions(api: Api) -> None:
    """By the id it sends its requests under; a repeated opening is the first one."""
    await limit(api, sessions_per_client_max=2)

    async def opened(client_id: str, number: int) -> Any:
        headers = {CLIENT_ID_HEADER: client_id, REQUEST_NUMBER_HEADER: str(number)}
        return await api.post("/v1/sessions", {"timeout_ms": 60_000}, **headers)

    replies = [await opened("loop", number) for number in (1, 2, 2, 3)]
    other = await opened("other", 1)

    assert [each.status for each in replies] == [201, 201, 201, 409]
    assert replies[1].body["session_id"] == replies[2].body["session_id"]
    assert replies[3].body["limit"] == "sessions_per_client_max"
    assert replies[3].body["client_id"] == "loop"
    assert other.status == 201
    one = await api.get(f"/v1/sessions/{replies[0].body['session_id']}")
    assert one.body["client_id"] == "loop"


async def test_the_last_sessions_are_for_operators(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Who says so is on record; the status and the metrics say that the reserve is reached."""
    await limit(api, sessions_max=10, ordinary_percent_max=50, sessions_per_address_max=5)
    assert (await api.get("/v1/status")).body["reserve"] == ""
    ordinary = await open_session(api, count=5)

    refused = await api.post("/v1/sessions", {"timeout_ms": 60_000})
    with caplog.at_level(logging.WARNING, logger="coordinator.audit"):
        operators = await open_session(api, count=5, by="ann")
    beyond = await api.post("/v1/sessions", {"timeout_ms": 60_000, "by": "ann"})
    status, metrics = (await api.get("/v1/status")).body, (await api.get("/metrics")).raw.decode()
    held = await api.post("/v1/locks/mine", {"session_id": ordinary[0], "timeout_ms": 0})

    assert (refused.code, refused.body["maximum"]) == ("QuotaExceeded", 5)
    assert "the last 5 of sessions_max (10) are kept for operators" in refused.body["detail"]
    assert beyond.code == "QuotaExceeded"
    assert f"session {operators[0]} was opened by the operator 'ann' from 127.0.0.1" in caplog.text
    assert "10 of 10 sessions (sessions_max) are used, and the last 5" in status["reserve"]
    assert "10 sessions are of the address 127.0.0.1" in status["reserve"]
    assert 'coordinator_reserve_reached{limit="sessions_max"} 1' in metrics.replace(".0", "")
    assert 'coordinator_reserve_reached{limit="znodes_max"} 0' in metrics.replace(".0", "")
    assert held.status == 200
    for session_id in (*operators, ordinary[1]):
        await api.delete(f"/v1/sessions/{session_id}")
    assert (await api.get("/v1/status")).body["reserve"] == ""
    assert (await api.post("/v1/sessions", {"timeout_ms": 60_000})).status == 201


async def test_the_last_znodes_are_for_locks_and_elections(api: Api) -> None:
    """Whoever fills the tree shuts nobody out of a lock, and everything can be deleted."""
    (session_id,) = await open_session(api)
    await limit(api, znodes_max=20, ordinary_percent_max=50)
    wanted = {"session_id": session_id, "timeout_ms": 0}
    sequential = {"mode": "persistent_sequential"}
    while (reply := await api.post("/v1/tree/n-", sequential)).status == 201:
        pass
    assert (reply.code, reply.body["maximum"]) == ("QuotaExceeded", 10)
    assert "the last 10 of znodes_max (20) are kept for locks" in reply.body["detail"]
    operations = [{"op": "create", "path": "/more"}]
    assert (await api.post("/v1/multi", {"operations": operations})).code == "QuotaExceeded"
    by_hand = {"mode": "ephemeral_sequential", "parents": "container", "session_id": session_id}
    assert (await api.post("/v1/tree/locks/job/lock-", by_hand)).code == "QuotaExceeded"

    held = await api.post("/v1/locks/job", wanted)
    elected = await api.post("/v1/elections/boss", wanted)

    assert (held.status, elected.status) == (200, 200)
    reserve = (await api.get("/v1/status")).body["reserve"]
    assert "znodes (znodes_max) are used, and the last 10 are kept for locks" in reserve
    others = [await api.post(f"/v1/locks/other-{number}", wanted) for number in range(10)]
    reply = others[-1]
    assert others[0].status == 200
    assert (reply.code, reply.body["maximum"]) == ("QuotaExceeded", 20)
    freed = await api.delete(f"/v1/locks/job/grants/{held.body['grant']['grant_id']}")
    assert freed.status == 200
    assert (await api.delete("/v1/tree/n-0000000000")).status == 200


async def test_the_last_bytes_are_for_locks_and_elections(api: Api) -> None:
    """Large data are as good at filling the state as many znodes."""
    (session_id,) = await open_session(api)
    await limit(api, state_bytes_max=10_000, ordinary_percent_max=50)
    await api.post("/v1/tree/a", {"data": ""})

    large = await api.post("/v1/tree/b", {"data": "x" * 5_000})
    grown = await api.put("/v1/tree/a", {"data": "x" * 5_000})
    held = await api.post("/v1/locks/job", {"session_id": session_id, "timeout_ms": 0})

    assert [(each.code, each.body["limit"]) for each in (large, grown)] == [
        ("QuotaExceeded", "state_bytes_max"), ("QuotaExceeded", "state_bytes_max"),
    ]  # fmt: skip
    assert held.status == 200
