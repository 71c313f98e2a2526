"""The limits of the cluster over a socket: shown, set, and enforced from then on."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from tests.wire.serving import MSGPACK, Api


async def test_the_limits_are_shown_and_set(api: Api) -> None:
    """A reply tells all of them, their version and who set them; those not named stay."""
    before = (await api.get("/v1/limits")).body
    assert before["version"] == 1
    assert before["by"].startswith("the configuration of member ")
    assert before["limits"]["znodes_max"] == 1_000_000

    reply = await api.call(
        "PATCH", "/v1/limits", {"limits": {"data_bytes_max": 5}, "by": "ann", "expected_version": 1}
    )

    assert reply.status == 200, reply
    after = (await api.get("/v1/limits?stale")).body
    assert after == reply.body
    assert (after["version"], after["by"]) == (2, "ann")
    assert after["limits"] == {**before["limits"], "data_bytes_max": 5}
    assert (await api.post("/v1/tree/a", {"data": "123456"})).code == "DataTooLarge"
    assert (await api.post("/v1/tree/a", {"data": "12345"})).status == 201


@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        ({}, 400, "BadArguments", "expected an object"),
        ({"limits": {}}, 400, "BadArguments", "expected a limit to set"),
        ({"limits": []}, 400, "BadArguments", "expected an object"),
        ({"limits": {"znodes_max": "1"}}, 400, "BadArguments", "expected an integer"),
        ({"limits": {"znodes_max": 0}}, 400, "BadArguments", "from 1 to 1000000000, found 0"),
        ({"limits": {"znode_max": 1}}, 400, "BadArguments", "expected one of data_bytes_max"),
        ({"limits": {"znodes_max": 1}, "rules": []}, 400, "BadArguments", "unknown field 'rules'"),
        ({"limits": {"data_bytes_max": 99_999_999}}, 400, "BadArguments", "body_bytes_max"),
        (
            {"limits": {"znodes_max": 1}, "expected_version": 7},
            412,
            "BadVersion",
            "expected version 7, found 1",
        ),
    ],
)
async def test_what_cannot_be_set_is_refused(
    api: Api, body: Any, status: int, code: str, said: str
) -> None:
    """The problem says what was expected and what was found; nothing is changed."""
    reply = await api.call("PATCH", "/v1/limits", body)

    assert (reply.status, reply.code) == (status, code)
    assert said in reply.body["detail"]
    assert (await api.get("/v1/limits")).body["version"] == 1


async def test_limits_travel_in_msgpack_too(api: Api) -> None:
    """As every body does."""
    reply = await api.call("GET", "/v1/limits", headers=MSGPACK)

    assert msgpack.unpackb(reply.raw)["limits"]["sessions_max"] == 50_000


async def test_the_status_says_in_what_the_configuration_differs(api: Api) -> None:
    """Nothing at first; the names and both values after a change."""
    assert (await api.get("/v1/status")).body["limits_differ"] == ""

    await api.call("PATCH", "/v1/limits", {"limits": {"znodes_max": 5}})

    answer = (await api.get("/v1/status")).body["limits_differ"]
    assert "znodes_max is 1000000 in it and 5 in the cluster" in answer
