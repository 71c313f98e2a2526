"""A member that is found to differ while it answers does not give that answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from coordinator.service.comparing.divergence import Difference
from coordinator.service.member import Member
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create, CreateMode
from coordinator.wire.stream import frames
from tests.wire.serving import NDJSON, Api, serving
from tests.wire.stream.speaking import Speaker

SENTENCE = "member 1 has stopped answering: its state differs from that of members 2, 3"
DOORS = ("plain", "aiohttp", "stream")


def find(member: Member) -> None:
    """Have the member know that it differs."""
    member._divergence._stop(Difference(is_own=True, sentence=SENTENCE))


def found_behind(member: Member, target: Any, name: str) -> None:
    """Have it found in the step in which this call of the service comes to its end."""
    call = getattr(target, name)

    async def and_found(*args: Any, **named: Any) -> Any:
        try:
            return await call(*args, **named)
        finally:
            find(member)

    setattr(target, name, and_found)


@asynccontextmanager
async def speaking_to(api: Api, window_bytes: int = 0) -> AsyncIterator[Speaker]:
    speaker = await Speaker.to(api.server.port, window_bytes=window_bytes)
    try:
        yield speaker
    finally:
        speaker.writer.close()


async def said(api: Api, door: str, method: str, target: str, body: Any = None) -> tuple[int, Any]:
    """Return the status and the body that came back through ``door``."""
    if door != "stream":
        headers = {"Expect": "100-continue"} if door == "aiohttp" else {}
        reply = await api.call(method, target, body, headers=headers)
        return reply.status, reply.body
    async with speaking_to(api) as speaker:
        speaker.send(speaker.request(method, target, body))
        answer = await speaker.expect(frames.AnswerFrame)
        return answer.status, msgspec.msgpack.decode(answer.body)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("target", ["/v1/tree/a", "/v1/tree/missing"])
async def test_a_read_under_way_is_refused(door: str, target: str) -> None:
    """What it found, or found missing, rests on the state that differs."""
    async with serving() as api:
        await api.put("/v1/tree/a?create", {"data": ""})
        found_behind(api.member, api.member, "get")

        status, body = await said(api, door, "GET", target)

        assert (status, body["code"]) == (503, "ShuttingDown")
        assert SENTENCE in body["detail"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("target", ["/v1/tree/a", "/v1/tree/missing"])
async def test_what_a_write_under_way_came_to_is_unknown(door: str, target: str) -> None:
    """Done here or refused here: on the members that are right it may be otherwise."""
    async with serving() as api:
        await api.put("/v1/tree/a?create", {"data": ""})
        found_behind(api.member, api.member._engine, "propose")

        status, body = await said(api, door, "PUT", target, {"data": "eA=="})

        assert (status, body["code"], body["definite"]) == (504, "ConnectionLost", False)
        assert SENTENCE in body["detail"]


async def test_a_list_that_is_made_in_slices_is_refused() -> None:
    """It is found between two of them."""
    async with serving() as api:
        for number in range(120):
            await api.put(f"/v1/tree/c{number}?create", {"data": ""})
        found_behind(api.member, api.member, "children")

        status, body = await said(api, "plain", "GET", "/v1/tree?children&stat")

        assert (status, body["code"]) == (503, "ShuttingDown")


async def test_what_the_member_says_of_itself_is_said_on() -> None:
    """An operator must be able to learn what differs."""
    async with serving() as api:
        find(api.member)

        ready, live = await api.get("/health/ready"), await api.get("/health/live")
        status, metrics = await api.get("/v1/status"), await api.get("/metrics")

        assert (ready.status, live.status, status.status, metrics.status) == (503, 200, 200, 200)
        assert SENTENCE in str(ready.body)
        assert "coordinator_has_diverged 1" in metrics.raw.decode()


@pytest.mark.parametrize("door", ["http", "stream"])
async def test_no_line_of_a_watch_goes_out_any_more(door: str) -> None:
    """Not even of the changes that its reader had not taken by then."""
    target = "/v1/watch?path=/&kind=subtree"
    async with serving() as api, reading(api, door, "GET", target) as following:
        assert (await following())["type"] == "watching"

        replica = api.member._replica
        for _ in range(20):  # in one step, so that nobody reads them meanwhile
            command = Command(Create("/c-", mode=CreateMode.PERSISTENT_SEQUENTIAL), 1)
            replica.apply(replica.machine.applied_index + 1, 1, encode_command(command))
        find(api.member)

        assert (await following() or {"type": "error"})["type"] == "error"


@pytest.mark.parametrize("door", ["http", "stream"])
async def test_no_grant_goes_out_any_more(door: str) -> None:
    """It may be one: the error is indefinite."""
    async with serving() as api:
        found_behind(api.member, api.member.lock_views, "lease_left")  # asked with the grant
        body = {"session_id": await api.session_id(), "timeout_ms": 0}

        async with reading(api, door, "POST", "/v1/locks/a", body) as following:
            answer = await following()

        assert (answer["code"], answer["definite"]) == ("ConnectionLost", False)


@asynccontextmanager
async def reading(
    api: Api, door: str, method: str, target: str, body: Any = None, headers: Any = NDJSON
) -> AsyncIterator[Callable[[], Any]]:
    """Ask for lines through ``door``; yield what reads the next one, or the whole answer."""
    if door == "http":
        async with api.stream(method, target, body, **headers) as lines:
            yield lines.next
        return
    async with speaking_to(api, window_bytes=1) as speaker:  # takes a line at a time
        small = {name.lower(): value for name, value in headers.items()}
        speaker.send(speaker.request(method, target, body, **small))

        async def following() -> Any:
            speaker.send(frames.Credit(speaker.last_id, 1_000))
            while True:
                frame = await asyncio.wait_for(speaker.next(), 10)
                if frame is None or isinstance(frame, frames.End):
                    return None
                if isinstance(frame, (frames.Line, frames.AnswerFrame)):
                    return msgspec.msgpack.decode(frame.body)

        yield following
