"""A lease given with an acquire, over every face of the request: the same table of cases for each.

Plain and streamed; one lock, several, an election; JSON and msgpack. In virtual time, so a wait may
last for hours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgpack
import pytest

from coordinator.client import Request, Response
from coordinator.client.calling.answers import encoding_of
from coordinator.errors import CoordinatorError, NoLeaderError
from coordinator.model.sessions import margin_ms
from coordinator.wire.encoding import decode
from coordinator.wire.http.adapter import DOOR
from tests.client.memory_cluster import LEFT, MemoryCluster, Network, in_memory

LEASE_MS = 3_000
FULL_MS = LEASE_MS - margin_ms(LEASE_MS)


def said_in(response: Response) -> Any:
    """Return what the body says, in whichever way it is written."""
    return decode(response.body, encoding_of(response.headers))


@dataclass(frozen=True)
class Face:
    """One way of asking for the same thing."""

    what: str
    is_stream: bool
    is_msgpack: bool

    def __str__(self) -> str:
        how = "streamed" if self.is_stream else "plain"
        return f"{self.what}, {how}, {'msgpack' if self.is_msgpack else 'json'}"

    @property
    def target(self) -> str:
        return {"lock": "/v1/locks/a", "locks": "/v1/locks", "election": "/v1/elections/a"}[
            self.what
        ]

    def request(self, **fields: Any) -> Request:
        body = {"lease_ms": LEASE_MS, **fields}
        if self.what == "locks":
            body["names"] = ["b", "a"]
        kind = "application/msgpack" if self.is_msgpack else "application/json"
        headers = {"Content-Type": kind}
        if self.is_stream:
            headers["Accept"] = "application/x-ndjson"
        elif self.is_msgpack:
            headers["Accept"] = kind
        encoded = msgpack.packb(body) if self.is_msgpack else json.dumps(body).encode()
        return Request("POST", target=self.target, headers=headers, body=encoded)

    async def ask(self, network: Network, **fields: Any) -> dict[str, Any]:
        """Return the grant, or the problem."""
        request = self.request(**fields)
        if not self.is_stream:
            response = await network.request(LEFT, request, 10_000_000)
            body = said_in(response)
            answer: dict[str, Any] = body.get("grant", body)
            return answer
        async with network.stream(LEFT, request, 10_000_000) as stream:
            encoding = encoding_of(stream.headers)
            if stream.status != 200:
                refused: dict[str, Any] = decode(await stream.read(), encoding)
                return refused
            while (line := await stream.line()) is not None:
                said = decode(line, encoding) if line.strip() else {}
                if said.get("type") in ("granted", "error"):
                    answer = said.get("grant") or said["problem"]
                    return answer
        raise AssertionError("the stream ended without a grant or an error")


FACES = [
    Face(*each) for each in product(("lock", "locks", "election"), (False, True), (False, True))
]
every_face = pytest.mark.parametrize("face", FACES, ids=str)


@asynccontextmanager
async def held(world: MemoryCluster, face: Face) -> AsyncIterator[Any]:
    """Hold what ``face`` asks for; yields what gives it back."""
    member, far_ms = world.member, 2**50
    opened = await member.open_session(3_600_000, "holder", None, far_ms)
    given = {"session_id": opened.session_id, "request": None, "wait_deadline_ms": far_ms}
    if face.what == "election":
        elected = await member.elections.campaign("a", value=b"", **given)

        async def give_back() -> None:
            await member.elections.release("a", elected.grant_id, None, far_ms)
    else:
        from coordinator.model.acquire import AcquireRequest

        grant = await member.locks.acquire("a", wanted=AcquireRequest(), **given)

        async def give_back() -> None:
            await member.locks.release("a", grant.grant_id, None, far_ms)

    yield give_back


def sessions(world: MemoryCluster) -> list[str]:
    """Return the open sessions, but for the holder's."""
    machine = world.member._replica.machine
    return [each.session_id for each in machine.sessions() if each.label != "holder"]


async def left_behind(world: MemoryCluster) -> list[str]:
    """Return what is left of an attempt once what tidies up behind it had its time."""
    await asyncio.sleep(1)
    machine = world.member._replica.machine
    paths = [path for each in sessions(world) for path in machine.ephemerals_of(each)]
    return sessions(world) + paths


@every_face
@in_memory
async def test_a_lease_outlasts_the_wait_and_begins_in_full(
    world: MemoryCluster, face: Face
) -> None:
    """Twenty leases of waiting, then the whole of one from the grant on."""
    network = world.network()
    async with held(world, face) as give_back:
        asking = asyncio.create_task(face.ask(network, timeout_ms=600_000))
        await asyncio.sleep(20 * LEASE_MS / 1_000 + 1.9)

        await give_back()
        grant = await asking

        assert grant.get("code") is None, grant
        assert (grant["lease_ms"], grant["session_id"]) == (LEASE_MS, sessions(world)[0])
        assert FULL_MS - 50 <= grant["safe_ms"] <= FULL_MS
        assert {each["safe_ms"] for each in grant.get("grants", ())} <= {grant["safe_ms"]}
        await asyncio.sleep(grant["safe_ms"] / 1_000)
        assert sessions(world) == [grant["session_id"]]
        await asyncio.sleep(1)
        assert sessions(world) == [], "nobody renews it any more: it is its client's now"
    await network.close()


@every_face
@in_memory
async def test_a_grant_at_once_has_its_lease_in_full(world: MemoryCluster, face: Face) -> None:
    """Nothing was waited for; the answer says the same."""
    network = world.network()

    grant = await face.ask(network)

    assert grant["lease_ms"] == LEASE_MS
    assert FULL_MS - 50 <= grant["safe_ms"] <= FULL_MS
    await network.close()


@every_face
@pytest.mark.parametrize("timeout_ms", [0, 5 * LEASE_MS])
@in_memory
async def test_an_attempt_out_of_time_leaves_no_session(
    world: MemoryCluster, face: Face, timeout_ms: int
) -> None:
    """Tried once, or waited for five leases; the answer says so and nothing stays."""
    network = world.network()
    async with held(world, face):
        problem = await face.ask(network, timeout_ms=timeout_ms)

        assert problem["code"] == "LockTimeout"
        assert await left_behind(world) == []
    await network.close()


@every_face
@in_memory
async def test_a_client_that_hangs_up_leaves_no_session(world: MemoryCluster, face: Face) -> None:
    """Neither while it waits, nor in the queue."""
    network = world.network()
    async with held(world, face):
        asking = asyncio.create_task(face.ask(network, timeout_ms=600_000))
        await asyncio.sleep(7)
        assert len(sessions(world)) == 1

        network.kill(LEFT)
        with suppress(CoordinatorError):
            await asking

        assert await left_behind(world) == []
    await network.close()


@every_face
@in_memory
async def test_a_closing_door_gives_up_the_wait_and_ends_the_session(
    world: MemoryCluster, face: Face
) -> None:
    """Nobody could find its grant again: the answer is that nobody knows, and nothing stays."""
    network = world.network()
    async with held(world, face):
        asking = asyncio.create_task(face.ask(network, timeout_ms=600_000))
        await asyncio.sleep(7)

        network._inner._members[LEFT][DOOR].close()
        problem = await asking

        assert (problem["code"], problem["definite"]) == ("ConnectionLost", False)
        assert await left_behind(world) == []
    await network.close()


@every_face
@in_memory
async def test_a_wait_that_the_queue_refuses_leaves_no_session(
    world: MemoryCluster, face: Face
) -> None:
    """Refused at once, before anything was waited for: by a condition that does not hold."""
    network = world.network()
    body = {"if_held": {"lock": "nobody's", "fencing_token": 7}}

    problem = await face.ask(network, **body)

    assert problem["code"] == "LockLost"
    assert await left_behind(world) == []
    await network.close()


@every_face
@in_memory
async def test_a_grant_that_cannot_be_kept_in_time_is_not_told(
    world: MemoryCluster, face: Face
) -> None:
    """No quorum confirms the lease in the moment of the grant: nobody knows, and it is ended."""
    network = world.network()
    async with held(world, face) as give_back:
        asking = asyncio.create_task(face.ask(network, timeout_ms=600_000))
        await asyncio.sleep(7)
        confirming = world.engine.confirm_leadership

        async def in_vain() -> int:
            raise NoLeaderError("nobody confirms it")

        world.engine.confirm_leadership = in_vain  # type: ignore[method-assign]
        await give_back()
        problem = await asking
        world.engine.confirm_leadership = confirming  # type: ignore[method-assign]

        assert problem["code"] in ("ConnectionLost", "SessionExpired")
        assert await left_behind(world) == []
    await network.close()


@every_face
@in_memory
async def test_a_lease_that_is_refused_is_named_so(world: MemoryCluster, face: Face) -> None:
    """The caller never said timeout_ms of a session."""
    network = world.network()

    problem = await face.ask(network, lease_ms=7)

    assert problem["code"] == "BadArguments"
    assert problem["detail"].startswith("body.lease_ms: expected 1000 to ")
    assert await left_behind(world) == []
    await network.close()


@every_face
@in_memory
async def test_a_session_that_is_ended_while_it_waits_ends_the_wait(
    world: MemoryCluster, face: Face
) -> None:
    """By an operator, say: it is neither kept alive nor opened again."""
    network = world.network()
    async with held(world, face):
        asking = asyncio.create_task(face.ask(network, timeout_ms=600_000))
        await asyncio.sleep(7)
        await world.member.close_session(sessions(world)[0], None, 2**50)

        problem = await asking

        assert problem["code"] == "SessionExpired"
        assert await left_behind(world) == []
    await network.close()


@in_memory
async def test_a_bounded_hold_bounds_what_is_safe(world: MemoryCluster) -> None:
    """The lease is 3 s, and the grant ends by itself after 1.5 s."""
    network = world.network()

    grant = await FACES[0].ask(network, max_hold_ms=1_500)

    assert 1_300 <= grant["safe_ms"] <= 1_500 - margin_ms(LEASE_MS)
    await network.close()


@in_memory
async def test_what_a_heartbeat_says_is_safe_is_counted_from_its_arrival(
    world: MemoryCluster,
) -> None:
    """A script without a clock of its own knows how long it may go on."""
    network = world.network()
    grant = await FACES[0].ask(network)
    await asyncio.sleep(1)
    beat = Request("POST", f"/v1/sessions/{grant['session_id']}/heartbeat")

    said = said_in(await network.request(LEFT, beat, 5_000))

    assert FULL_MS - 50 <= said["safe_ms"] <= FULL_MS
    await network.close()


# --- a session that the client brought


@every_face
@in_memory
async def test_a_grant_of_a_session_says_what_is_left_of_its_lease(
    world: MemoryCluster, face: Face
) -> None:
    """What the leader promises, also after a wait: counted from the last heartbeat; never more."""
    network, far_ms = world.network(), 2**50
    session_id = (await world.member.open_session(LEASE_MS, "mine", None, far_ms)).session_id
    async with held(world, face) as give_back:
        asked = {"lease_ms": None, "session_id": session_id, "timeout_ms": 600_000}
        asking = asyncio.create_task(face.ask(network, **asked))
        await asyncio.sleep(0.5)
        await world.member.heartbeat(session_id, far_ms)
        await asyncio.sleep(1)

        await give_back()
        grant = await asking

        assert grant.get("code") is None, grant
        assert grant["lease_ms"] == LEASE_MS
        assert FULL_MS - 1_100 <= grant["safe_ms"] <= FULL_MS - 1_000
        assert {each["safe_ms"] for each in grant.get("grants", ())} <= {grant["safe_ms"]}
        await asyncio.sleep(grant["safe_ms"] / 1_000)
        assert session_id in sessions(world)
    await network.close()


@in_memory
async def test_a_bounded_hold_bounds_what_is_safe_of_a_session(world: MemoryCluster) -> None:
    """The lesser of the lease and of ``max_hold_ms``."""
    network, face = world.network(), Face("lock", is_stream=False, is_msgpack=False)
    session_id = (await world.member.open_session(60_000, "mine", None, 2**50)).session_id

    grant = await face.ask(network, lease_ms=None, session_id=session_id, max_hold_ms=5_000)

    assert grant["lease_ms"] == 60_000
    assert 3_000 <= grant["safe_ms"] <= 5_000 - margin_ms(60_000)
    await network.close()


@in_memory
async def test_what_no_leader_promises_is_null(world: MemoryCluster) -> None:
    """The grant is true all the same; nothing is guessed. So it is for a numbered request."""
    network, face = world.network(), Face("lock", is_stream=False, is_msgpack=False)
    member = world.member
    session_id = (await member.open_session(LEASE_MS, "mine", None, 2**50)).session_id

    async def no_leader(*_: Any) -> None:
        return None

    numbered = face.request(lease_ms=None, session_id=session_id)
    headers = {
        **numbered.headers, "Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1",
    }  # fmt: skip
    reply = await network.request(LEFT, numbered.with_headers(headers), 10_000)
    of_a_numbered = said_in(reply)["grant"]
    member.lock_views._remaining_times.remaining_ms = no_leader  # type: ignore[method-assign,assignment]
    grant = await Face("election", is_stream=False, is_msgpack=False).ask(
        network, lease_ms=None, session_id=session_id
    )

    assert (of_a_numbered["lease_ms"], of_a_numbered["safe_ms"]) == (None, None)
    assert (grant["lease_ms"], grant["safe_ms"]) == (None, None)
    assert grant["fencing_token"] > of_a_numbered["fencing_token"]
    await network.close()
