"""Elections over HTTP: one elected with a value, and who observes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.wire.serving import Api


async def test_an_election_has_one_elected_with_a_value(api: Api) -> None:
    """Campaign, proclaim, succeed, resign; the epoch grows."""
    one, two = await api.session_id(), await api.session_id()
    first = (await api.post("/v1/elections/boss", {"session_id": one, "value": "a"})).body["grant"]
    succeeding = asyncio.create_task(
        api.post("/v1/elections/boss", {"session_id": two, "value_base64": "/w=="})
    )
    async with asyncio.timeout(10):
        while not (view := (await api.get("/v1/elections/boss")).body)["candidates"]:
            pass
    proclaimed = await api.put(f"/v1/elections/boss/grants/{first['grant_id']}", {"value": "b"})
    now = (await api.get("/v1/elections/boss")).body["elected"]
    await api.delete(f"/v1/elections/boss/grants/{first['grant_id']}")
    second = (await succeeding).body["grant"]
    late = await api.put(f"/v1/elections/boss/grants/{first['grant_id']}", {"value": "c"})

    assert first["epoch"] == first["fencing_token"]
    assert (view["elected"]["value"], view["elected"]["label"]) == ("a", "test")
    assert view["candidates"][0]["value_base64"] == "/w=="
    assert (proclaimed.body["epoch"], now["value"]) == (first["epoch"], "b")
    assert second["epoch"] > first["epoch"]
    assert (late.status, late.code) == (409, "NotOwner")
    abandoned = await api.delete("/v1/elections/boss/attempts/nobody/1")
    assert abandoned.body == {"deleted_path": None}


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
async def test_an_election_is_observed(api: Api, accept: str) -> None:
    """Each new elected and each new value is a line; nobody is a line too."""
    session_id = await api.session_id()
    seen: list[Any] = []
    async with api.stream("GET", "/v1/elections/boss?observe", Accept=accept) as lines:
        if accept == "text/event-stream":
            assert (await lines.response.content.readline()) == b"event: elected\n"
            return
        seen.append(await lines.next())
        grant = (
            await api.post("/v1/elections/boss", {"session_id": session_id, "value": "a"})
        ).body["grant"]
        seen.append(await lines.next())
        await api.put(f"/v1/elections/boss/grants/{grant['grant_id']}", {"value": "b"})
        seen.append(await lines.next())
        await api.delete(f"/v1/sessions/{session_id}")
        seen.append(await lines.next())
        await api.server.stop()
        seen.append(await lines.next())

    values = [each and each["elected"] and each["elected"]["value"] for each in seen]
    assert values == [None, "a", "b", None, None]
