"""A wait for a lock that is over soon, over a socket: one answer in place of lines."""

from __future__ import annotations

import asyncio

from tests.wire.serving import serving
from tests.wire.test_locks import EITHER, until_queued


class StillClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.passed_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.passed_ms

    def wall_ms(self) -> int:
        return self.passed_ms


async def test_who_takes_either_gets_one_answer_after_a_short_wait() -> None:
    """A lock that is handed on quickly costs no lines; whoever opens a session is told of it."""
    async with serving(clock=StillClock()) as api:
        first = {"session_id": await api.session_id()}
        held = (await api.post("/v1/locks/daily", first)).body["grant"]
        body = {"session_id": await api.session_id()}
        waiting = asyncio.create_task(api.call("POST", "/v1/locks/daily", body, headers=EITHER))
        await until_queued(api, "daily", 2)
        await api.delete(f"/v1/locks/daily/grants/{held['grant_id']}")
        granted = await waiting
        async with api.stream("POST", "/v1/locks/daily", {"lease_ms": 60_000}, **EITHER) as lines:
            line = await lines.next()

    assert granted.headers["Content-Type"].startswith("application/json")
    assert granted.body["grant"]["fencing_token"] > held["fencing_token"]
    assert line["type"] == "queued"


async def test_who_takes_either_gets_lines_once_it_has_waited_for_a_while() -> None:
    clock = StillClock()
    async with serving(clock=clock) as api:
        first = {"session_id": await api.session_id()}
        held = (await api.post("/v1/locks/daily", first)).body["grant"]
        body = {"session_id": await api.session_id()}
        path = f"/v1/locks/daily/grants/{held['grant_id']}"

        async def pass_time() -> None:
            await until_queued(api, "daily", 2)
            clock.passed_ms += 200

        passing = asyncio.create_task(pass_time())
        async with api.stream("POST", "/v1/locks/daily", body, **EITHER) as lines:
            line = await lines.next()
            await api.delete(path)
            last = await lines.next()
        await passing

    assert (line["type"], last["type"]) == ("queued", "granted")


async def test_who_gives_up_soon_is_told_at_once_that_it_waits() -> None:
    """It waits for a first answer no longer than for the lock."""
    async with serving(clock=StillClock()) as api:
        await api.post("/v1/locks/daily", {"session_id": await api.session_id()})
        body = {"session_id": await api.session_id(), "timeout_ms": 900}
        async with api.stream("POST", "/v1/locks/daily", body, **EITHER) as lines:
            line = await lines.next()

    assert line["type"] == "queued"
