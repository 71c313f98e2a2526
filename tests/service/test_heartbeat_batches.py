"""The answer of the leader to a member that passes many heartbeats on at once."""

from __future__ import annotations

import asyncio
import json

import pytest

from coordinator.errors import SessionExpiredError, ThrottledError
from coordinator.model.sessions import LostGrant, SessionLease
from coordinator.node.config import Config, RaftConfig
from coordinator.service.sessions.heartbeats import _decode_reply, _encode_reply
from coordinator.service.writes.proposals import RequestContext
from tests.service.fake_cluster import STEP_MS, World, cluster, settle, soon
from tests.service.locks.lock_scenes import acquired, opened

FRAME_BYTES_MAX = 8_192
LOST = tuple(
    [
        LostGrant(f"/locks/orders-{n}/lock-0000000001", fencing_token=n, how="forced")
        for n in range(100)
    ]
)


async def loser(world: World) -> str:
    """A session from which four grants were taken; it outlasts what the steps of a test make of the
    passes that a long answer takes."""
    session_id = await opened(world, 60_000)
    for number in range(4):
        name = f"{session_id}-{number}-{'x' * 100}"
        await soon(acquired(world, session_id, name))
        asked = RequestContext(None, world.deadline())
        await soon(world.leader.holding.revoke(name, None, "ann", "stuck", asked))
    return session_id


async def test_more_than_a_frame_takes_is_told_in_several() -> None:
    """Nobody is left without an answer, and nobody is told less than all it lost."""
    config = Config(raft=RaftConfig(frame_bytes_max=FRAME_BYTES_MAX))
    async with cluster(config=config) as world:
        sessions = [await loser(world) for _ in range(12)]
        answer, sizes = world.engines["1"]._handlers["heartbeat"], []

        async def measured(sender: str, payload: bytes) -> bytes:
            reply = await answer(sender, payload)
            sizes.append(len(reply))
            return reply

        world.engines["1"].on_request("heartbeat", measured)
        asked = asyncio.gather(
            *[world.follower.heartbeat(each, world.deadline()) for each in sessions]
        )
        while not asked.done():
            await world.advance(STEP_MS)
        acks = await asked

        assert [len(each.lost) for each in acks] == [4] * 12
        assert len(sizes) > 1
        assert max(sizes) <= FRAME_BYTES_MAX - 512


def test_what_fits_is_answered_beside_what_never_would() -> None:
    """A session too big for any answer costs the others of its batch nothing."""
    acks = {
        "a": SessionLease("a", timeout_ms=10, holds={}, lost=LOST),
        "b": SessionLease("b", timeout_ms=10, holds={"/locks/x/1": 5}),
    }

    told = _decode_reply(_encode_reply({**acks, "c": None}, 1_000))

    assert told == {"b": acks["b"], "c": None}


def test_no_more_is_encoded_than_is_sent() -> None:
    """Once the answer is half full the first that does not fit ends it, and is first next time."""
    acks = {str(n): SessionLease(str(n), timeout_ms=10, holds={}, lost=LOST) for n in range(1_000)}
    bytes_max = 5 * len(_encode_reply({"0": acks["0"]}, 1_000_000))

    reply = _encode_reply(acks, bytes_max)

    assert len(reply) <= bytes_max
    assert list(json.loads(reply)["timeouts"]) == ["0", "1", "2", "3", "4"]


async def test_an_id_that_no_session_has_is_not_passed_on() -> None:
    """Many long ones together would be too long for the question."""
    async with cluster() as world:
        with pytest.raises(SessionExpiredError):
            await soon(world.follower.heartbeat("x" * 8_000, world.deadline()))

        assert world.requests == []


async def test_many_heartbeats_of_one_request_are_one_request_to_the_leader() -> None:
    """Each session is answered; one that has ended, or that no session was, as ended."""
    async with cluster() as world:
        sessions = [await opened(world) for _ in range(5)]
        gone = await opened(world)
        await soon(world.leader.close_session(gone, None, world.deadline()))
        world.requests.clear()

        acks = await soon(
            world.follower.heartbeats([*sessions, gone, "x" * 65, sessions[0]], world.deadline())
        )

        assert list(acks) == [*sessions, gone, "x" * 65]
        assert [each for each, ack in acks.items() if ack is None] == [gone, "x" * 65]
        assert [kind for _, _, kind in world.requests].count("heartbeat") == 1


async def test_of_what_has_no_room_in_an_answer_nothing_is_said() -> None:
    """It is neither renewed for its client, nor has it ended: the client asks again."""
    config = Config(raft=RaftConfig(frame_bytes_max=FRAME_BYTES_MAX))
    async with cluster(config=config) as world:
        sessions = [await loser(world) for _ in range(12)]

        acks = await soon(world.follower.heartbeats(sessions, world.deadline()))

        assert 0 < len(acks) < len(sessions)
        assert all(ack is not None and len(ack.lost) == 4 for ack in acks.values())
        again = [each for each in sessions if each not in acks]
        assert await soon(world.follower.heartbeats(again, world.deadline()))


async def test_a_round_to_the_leader_has_no_more_sessions_than_it_takes() -> None:
    """Two large requests that come together go one after the other."""
    async with cluster() as world:
        session = await opened(world)
        world.requests.clear()
        half = [f"never-{number}" for number in range(600)]

        both = await soon(
            asyncio.gather(
                world.follower.heartbeats([*half, session], world.deadline()),
                world.follower.heartbeats([f"x{each}" for each in half], world.deadline()),
            )
        )

        assert [len(each) for each in both] == [601, 600]
        assert [kind for _, _, kind in world.requests].count("heartbeat") == 2


@pytest.mark.parametrize("character", ["\N{OLD PERSIAN SIGN A}", '"', "\x01", "x"])
async def test_no_ids_of_one_request_make_the_question_too_long(character: str) -> None:
    """Else those of all others in the same round would be refused as well."""
    ids = [f"{number:04}" + 60 * character for number in range(999)]
    async with cluster() as world:
        session = await opened(world)
        asked, one = await soon(
            asyncio.gather(
                world.follower.heartbeats(ids, world.deadline()),
                world.follower.heartbeat(session, world.deadline()),
            )
        )

    assert asked == dict.fromkeys(ids)
    assert one.session_id == session


async def test_requests_of_many_leave_room_for_the_heartbeats_of_others() -> None:
    """A hundred of the largest would take all of it."""
    ids = [str(number) for number in range(1_000)]
    async with cluster() as world:
        session = await opened(world)
        asking = [
            asyncio.ensure_future(world.follower.heartbeats(ids, world.deadline()))
            for _ in range(100)
        ]
        await asyncio.sleep(0)
        one = asyncio.ensure_future(world.follower.heartbeat(session, world.deadline()))
        answers = await soon(asyncio.gather(*asking, return_exceptions=True))

        assert (await soon(one)).session_id == session
        assert {type(each) for each in answers} == {dict, ThrottledError}


async def test_what_nobody_waits_for_any_more_takes_no_room() -> None:
    """Clients that gave up while no quorum answered: others are not refused for them."""
    ids = [str(number) for number in range(1_000)]
    async with cluster() as world:
        for _ in range(2):
            world.confirming.clear()
            asking = [
                asyncio.ensure_future(world.leader.heartbeats(ids, world.deadline()))
                for _ in range(50)
            ]
            await settle()
            assert not any(each.done() for each in asking), "there is room for so many"
            for each in asking:
                each.cancel()
            await asyncio.wait(asking)
            world.confirming.set()
            await settle()


async def test_many_heartbeats_share_a_round_unless_an_answer_waits_for_one() -> None:
    """It comes when it is due; a renewal beside a request begins it at once."""
    async with cluster() as world:
        sessions = [await opened(world) for _ in range(4)]
        engine = world.engines["1"]

        def asking() -> list[asyncio.Future[SessionLease]]:
            heartbeats = [world.leader.heartbeat(each, world.deadline()) for each in sessions]
            return [asyncio.ensure_future(each) for each in heartbeats]

        await soon(asyncio.gather(*asking()))
        rounds = engine.confirm_count
        asked = asking()
        await settle()
        assert not any(each.done() for each in asked)
        assert engine.confirm_count == rounds

        renewal = world.leader.kept_sessions.renewal(sessions[0])
        assert renewal is not None
        assert await soon(renewal.safe_ms())
        await soon(asyncio.gather(*asked))
        assert engine.confirm_count == rounds + 1

        asked = asking()
        await settle()
        assert not any(each.done() for each in asked)
        await world.advance(STEP_MS)
        await soon(asyncio.gather(*asked))
        assert engine.confirm_count == rounds + 2
