"""What another member says may be wrong (another version, a defect): it must not end this one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    NoLeaderError,
    OutcomeUnknownError,
    from_problem,
)
from coordinator.service.reporting.members import REQUEST_KIND
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Create
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import acquired, looked

GARBAGE = [b"", b"\x00", b"\xc1" * 20, b"null", b"5", b"{}", b"[" * 5_000, b'[{"a":1}]', b"[[]]"]


def handler_of(world: World, kind: str) -> Callable[[str, bytes], Awaitable[bytes]]:
    return world.engines["1"]._handlers[kind]


def answer_with(world: World, kind: str, reply: bytes) -> None:
    """Make the leader answer every request of ``kind`` with ``reply``."""

    async def answer(_sender: str, _payload: bytes) -> bytes:
        return reply

    world.engines["1"].on_request(kind, answer)


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_a_command_that_cannot_be_read_never_reaches_the_log(garbage: bytes) -> None:
    """In the log it would stop every member, at every start (found by tests/fuzz)."""
    async with cluster() as world:
        before = len(world.log)

        reply = await soon(handler_of(world, "propose")("2", (5_000).to_bytes(8, "big") + garbage))

        assert len(world.log) == before
        error = from_problem(json.loads(reply[1:]))
        assert isinstance(error, BadArgumentsError)


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_heartbeats_that_cannot_be_read_break_nobody_s_round(garbage: bytes) -> None:
    """They are refused before they share a round with the heartbeats of others."""
    async with cluster() as world:
        opened = await soon(world.leader.open_session(2_000, "", None, world.deadline()))

        reply = await soon(handler_of(world, "heartbeat")("2", garbage))
        ack = await soon(world.follower.heartbeat(opened.session_id, world.deadline()))

        assert json.loads(reply)["problem"]["code"] == "BadArguments"
        assert ack.session_id == opened.session_id


@pytest.mark.parametrize("reply", [*GARBAGE, b"\x01{}x", b"\x01[]", b"\x00" * 30])
async def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(reply: bytes) -> None:
    """Nobody knows what the leader did, and nothing else happens."""
    async with cluster() as world:
        answer_with(world, "propose", reply)

        with pytest.raises(OutcomeUnknownError):
            await soon(
                world.follower.proposer.submit(
                    Create("/a", b""), RequestContext(None, world.deadline())
                )
            )


@pytest.mark.parametrize(
    "reply",
    [b"", b"\x91", b"\x81\xa1x" + b"\x91" * 5_000 + b"\xc0", b"\x81\xa9member_id\xa1\xff"],
    ids=("nothing", "cut", "deep", "no text"),
)
async def test_a_report_that_cannot_be_read_is_said(reply: bytes) -> None:
    """That member is shown as silent, with the reason; the others are shown."""
    async with cluster() as world:
        answer_with(world, REQUEST_KIND, reply)

        found = await soon(world.follower.reports.fresh())

        silent = [each for each in found.members if each.facts is None]
        assert [each.member_id for each in silent] == ["1"]
        assert silent[0].silence == "member 1 says nothing that this release understands"


STRANGE_ACKS = [
    {"timeouts": {"{id}": 2_000}, "holds": {"{id}": {"/a": "soon"}}},
    {"timeouts": {"{id}": 2_000}, "holds": {"{id}": [1]}},
    {"timeouts": {"{id}": 2_000}, "holds": 5},
    {"timeouts": {"{id}": 2_000}, "lost": {"{id}": [{"path": "/a"}]}},
    {"timeouts": {"{id}": 2_000}, "lost": {"{id}": [{"path": 1, "fencing_token": 1, "how": ""}]}},
    {"timeouts": {"{id}": 2_000}, "lost": {"{id}": [5]}},
]


@pytest.mark.parametrize("said", STRANGE_ACKS, ids=range(len(STRANGE_ACKS)))
async def test_an_answer_with_strange_holds_confirms_nothing(said: object) -> None:
    """A holder must not be told that it holds by an answer that may say otherwise."""
    async with cluster() as world:
        opened = await soon(world.leader.open_session(2_000, "", None, world.deadline()))
        reply = json.dumps(said).replace("{id}", opened.session_id)
        answer_with(world, "heartbeat", reply.encode())

        waiting = asyncio.ensure_future(
            world.follower.heartbeat(opened.session_id, world.deadline(500))
        )
        await settle()
        await world.advance(1_000)

        with pytest.raises(NoLeaderError):
            await soon(waiting)


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_what_is_strange_about_promises_is_not_known(garbage: bytes) -> None:
    """A question is refused, an answer leaves the look without what the leader would have said."""
    async with cluster() as world:
        session_id = (
            await soon(world.leader.open_session(2_000, "", None, world.deadline()))
        ).session_id
        await soon(acquired(world, session_id))
        reply = json.loads(await soon(handler_of(world, "remaining_times")("2", garbage)))
        answer_with(world, "remaining_times", garbage)

        assert reply["problem"]["code"] == "BadArguments"
        assert [each.safe_ms for each in (await looked(world)).holders] == [None]


@pytest.mark.parametrize("reply", [*GARBAGE, b'{"timeouts":5}', b'{"timeouts":{"a":"b"}}'])
async def test_an_answer_to_heartbeats_that_cannot_be_read_confirms_nothing(reply: bytes) -> None:
    """The session may live on; its client is told that nobody confirmed it."""
    async with cluster() as world:
        opened = await soon(world.leader.open_session(2_000, "", None, world.deadline()))
        answer_with(world, "heartbeat", reply)

        waiting = asyncio.ensure_future(
            world.follower.heartbeat(opened.session_id, world.deadline(500))
        )
        await settle()
        await world.advance(1_000)

        with pytest.raises(NoLeaderError):
            await soon(waiting)
        assert ("3", "1", "heartbeat") in world.requests
        assert world.leader.status().sessions == 1


@pytest.mark.parametrize(
    "problem",
    [None, 5, [], {"message": "x", "detail": "y"}, {"self": 1}, {"code": [], "status": "x"}],
)
def test_a_problem_of_any_shape_is_an_error(problem: object) -> None:
    """Whatever a proxy or another version sends becomes an error of the tree."""
    error = from_problem(problem)  # type: ignore[arg-type]

    assert isinstance(error, CoordinatorError)
    assert not error.definite or isinstance(error, ConnectionLostError)
