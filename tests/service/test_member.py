"""A member as a whole: what it says of itself, and how it ends."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.clock import SystemClock
from coordinator.errors import (
    OutcomeUnknownError,
    SessionExpiredError,
    ShuttingDownError,
    StorageError,
)
from coordinator.model.acquire import AcquireRequest
from coordinator.model.events import WatchSelector
from coordinator.node.config import Config
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.base.tasks import Tasks
from coordinator.service.member import Member
from coordinator.service.reads.reads import LINEARIZABLE, STALE, at_least
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Create, CreateMode, RequestId
from tests.service.fake_cluster import cluster, settle, soon


async def test_a_member_runs_on_the_loopback_engine_and_the_real_clock() -> None:
    """One write and one read through every part, without a cluster."""
    clock = SystemClock()
    member = Member(Config(), LoopbackEngine("1"), clock)
    await member.start()
    deadline_ms = clock.monotonic_ms() + 5_000

    await member.proposer.submit(Create("/a", b"x"), RequestContext(None, deadline_ms))
    reply = await member.get("/a", LINEARIZABLE, deadline_ms)
    session = await member.open_session(None, "me", None, deadline_ms)
    ack = await member.heartbeat(session.session_id, deadline_ms)
    await member.stop()

    assert reply.value[0] == b"x"
    assert ack.timeout_ms == 10_000


async def test_a_healthy_member_says_so() -> None:
    """Role, leader, indexes, members with their URLs, and a sentence."""
    async with cluster() as world:
        await world.leader.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        await world.leader.open_session(None, "", None, world.deadline())

        status = world.members["2"].status()

        assert status.summary == (
            "member 2 follows member 1 in term 1, and every member is reachable."
        )
        assert (status.role, status.leader_id, status.is_ready) == ("follower", "1", True)
        assert (status.zxid, status.applied_index, status.sessions, status.znodes) == (2, 3, 1, 2)
        assert [each.client_url for each in status.members] == [
            f"http://127.0.0.1:{port}" for port in (7071, 7072, 7073)
        ]
        assert [each.is_leader for each in status.members] == [True, False, False]
        assert [each.is_self for each in status.members] == [False, True, False]


async def test_a_member_with_a_full_disk_says_so() -> None:
    """Whether it leads or follows; the rest of what it says is as true as before."""
    async with cluster() as world:
        for engine in world.engines.values():
            engine.is_full = True

        assert [world.members[each].status().summary for each in ("1", "2")] == [
            "member 1 leads in term 1, but its disk is full; every member is reachable.",
            "member 2 follows member 1 in term 1, but its disk is full; every member is reachable.",
        ]
        assert world.members["1"].is_ready


async def test_a_member_without_a_leader_says_how_many_it_reaches() -> None:
    """One sentence explains why it cannot serve."""
    async with cluster(leader_id=None) as world:
        world.has_quorum = False
        member = world.members["1"]

        assert not member.is_ready
        assert member.status().summary == (
            "member 1 knows no leader: it reaches 1 of 3 members, itself included, and needs 2."
        )


async def test_a_leader_with_unreachable_members_names_them() -> None:
    """It serves, and says what it cannot afford to lose."""
    async with cluster() as world:
        world.has_quorum = False

        assert world.leader.status().summary == (
            "member 1 leads in term 1; not reachable: 2, 3; no other may fail."
        )


async def test_a_failed_member_is_not_ready_and_tells_its_owner_once() -> None:
    """A disk that failed, or a background task: the reason is in the status."""
    async with cluster() as world:
        notices: list[BaseException] = []
        world.leader.on_failure(notices.append)
        error = StorageError("the disk is gone")
        world.engines["1"].fail(error)
        world.engines["1"].fail(StorageError("again"))

        assert notices == [error]
        assert world.leader.not_ready_reason() == "member 1 has failed and stops: the disk is gone"
        with pytest.raises(ShuttingDownError):
            await world.leader.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))


async def test_nobody_waits_at_a_member_that_has_failed() -> None:
    """A lock, a heartbeat, a zxid, a change: each wait ends at once, so that the member can."""
    async with cluster() as world:
        member, deadline_ms = world.follower, world.deadline()
        ids = [
            (await soon(member.open_session(5_000, "", None, deadline_ms))).session_id
            for _ in range(2)
        ]
        asked = AcquireRequest("worker", host="host-1", pid=42, trace_id="")
        acquires = [
            asyncio.create_task(
                member.locks.acquire(
                    "a", session_id=each, request=None, wait_deadline_ms=deadline_ms, wanted=asked
                )
            )
            for each in ids
        ]
        await soon(acquires[0])
        stream = member.watches.watch([WatchSelector("/a", "znode")])
        await settle()
        world.confirming.clear()
        waits = [
            acquires[1],
            asyncio.create_task(member.heartbeat(ids[0], deadline_ms)),
            asyncio.create_task(member.get("/", at_least(1_000), deadline_ms)),
        ]
        watching = asyncio.ensure_future(anext(stream))
        await settle()
        assert not any(each.done() for each in [*waits, watching])

        world.engines["3"].fail(StorageError("the disk is gone"))
        await settle()

        for each in waits:
            with pytest.raises((ShuttingDownError, OutcomeUnknownError)):
                await soon(each)
        with pytest.raises(StopAsyncIteration):
            await soon(watching)
        world.confirming.set()


async def test_a_background_task_that_fails_is_told_to_its_owner() -> None:
    """No failure disappears in a task that nobody awaits."""
    notices: list[BaseException] = []
    tasks = Tasks(notices.append)

    async def broken() -> None:
        raise ValueError("an invariant")

    tasks.spawn(broken(), "broken")
    await settle()

    assert [str(error) for error in notices] == ["an invariant"]


async def test_stopped_tasks_are_cancelled_and_nothing_new_runs() -> None:
    """After stop the owner has no tasks, and cancelling is not a failure."""
    notices: list[BaseException] = []
    tasks = Tasks(notices.append)
    running = tasks.spawn(asyncio.sleep(60), "sleeping")
    await tasks.stop()
    late = tasks.spawn(asyncio.sleep(60), "late")
    await settle()

    assert running.cancelled()
    assert late.cancelled()
    assert notices == []


async def test_tasks_stop_while_one_has_just_ended() -> None:
    """Its owner learns of it in the next pass of the loop, which the stop must let go by."""
    tasks = Tasks(lambda _: None)

    async def nothing() -> None:
        pass

    ended = tasks.spawn(nothing(), "nothing")
    await asyncio.sleep(0)
    assert ended.done()

    await tasks.stop()


async def test_sessions_are_listed_and_shown_with_their_ephemerals() -> None:
    """In the order of their opening; an ended one is SessionExpired."""
    async with cluster() as world:
        member = world.follower
        ids = [
            (await soon(member.open_session(5_000, label, None, world.deadline()))).session_id
            for label in ("one", "two")
        ]
        create = Create("/e", mode=CreateMode.EPHEMERAL, session_id=ids[1])
        await soon(member.proposer.submit(create, RequestContext(None, world.deadline())))

        views = (await member.sessions.page(LINEARIZABLE, world.deadline())).value.sessions
        one = (await member.sessions.one(ids[1], LINEARIZABLE, world.deadline())).value

        assert [(each.session_id, each.label, each.ephemeral_count) for each in views] == [
            (ids[0], "one", 0),
            (ids[1], "two", 1),
        ]
        assert (one.timeout_ms, one.ephemerals) == (5_000, ("/e",))
        with pytest.raises(SessionExpiredError):
            await member.sessions.one("0" * 16, STALE, world.deadline())


async def test_a_session_opened_twice_by_one_request_is_one_session() -> None:
    """The id drawn by the second member is not used."""
    async with cluster() as world:
        request = RequestId("client", 1)

        first = await soon(world.members["2"].open_session(None, "", request, world.deadline()))
        again = await soon(world.members["3"].open_session(None, "", request, world.deadline()))

        assert first == again
        assert world.leader.status().sessions == 1


async def test_a_stopping_member_refuses_everything_in_one_way() -> None:
    """ShuttingDownError: definite, go to another member."""
    async with cluster() as world:
        member = world.members["2"]
        await member.stop()
        deadline_ms = world.deadline()

        for work in (
            member.get("/", LINEARIZABLE, deadline_ms),
            member.heartbeat("0" * 16, deadline_ms),
            member.open_session(None, "", None, deadline_ms),
        ):
            with pytest.raises(ShuttingDownError):
                await soon(work)
        with pytest.raises(ShuttingDownError):
            member.watches.watch([])
        assert member.not_ready_reason() == "member 2 is stopping"


async def test_each_member_counts_for_itself_in_the_format_of_prometheus() -> None:
    """Two members in one process share no counter; the text parses."""
    async with cluster() as world:
        await soon(
            world.follower.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        )

        texts = [each.render_metrics().decode() for each in (world.leader, world.follower)]
        values = [
            {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            for text in texts
        ]

        assert values[0]["coordinator_proposals_total"] == 0
        assert values[1]["coordinator_proposals_total"] == 1
        assert [each["coordinator_is_leader"] for each in values] == [1, 0]
        assert values[0]["coordinator_engine_commands_total"] == 2
