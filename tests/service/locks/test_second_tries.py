"""What a leader does by itself is tried again by the very same leader, when it is refused once.

Another leader begins everything anew, which hides a first try that was the only one. So nobody is
elected here: of what is proposed, the first of a kind is refused (nothing was proposed), or its
answer is lost before or after it was done, and time passes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coordinator.errors import (
    CoordinatorError,
    LeaderChangedError,
    NoLeaderError,
    NoSpaceError,
    ProposalTimeoutError,
    ThrottledError,
)
from coordinator.model.limits import NEW_CLUSTER
from coordinator.node.config import Config, MemberLimits, SessionConfig
from coordinator.raft.engine import Applied
from coordinator.service.locks.withdrawals import Leave
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.access.guard import BY_MEMBERS
from coordinator.state.codec import decode_command
from coordinator.state.commands import (
    CloseSession,
    Create,
    CreateMode,
    Delete,
    DropToken,
    EndHold,
    Enter,
    ExpireSession,
    FinishGrants,
    FinishSession,
    Kind,
    PutRole,
    Reap,
    Release,
    Reopen,
    TakeOut,
)
from coordinator.state.machine import StateMachine
from tests.service.fake_cluster import World, cluster
from tests.service.locks.test_lost_rights import furnished, submitted

CONFIG = Config(
    sessions=SessionConfig(timeout_ms_default=600_000),
    limits=replace(MemberLimits(), reap_interval_ms=500),
)
A = "/locks/a"


@dataclass
class Refusals:
    """Refuses the first ``count`` proposals of a kind on the leader; the rest goes through."""

    world: World
    kind: type
    error: type[CoordinatorError]
    is_done: bool = False
    """It was proposed all the same, and only the answer is lost."""
    count: int = 1
    tried: list[Any] = field(default_factory=list)

    def begin(self) -> None:
        engine = self.world.engines["1"]
        propose = engine.propose

        async def refusing(command: bytes, **how: Any) -> Applied:
            operation = decode_command(command).operation
            if not isinstance(operation, self.kind):
                return await propose(command, **how)
            self.tried.append(operation)
            if len(self.tried) > self.count:
                return await propose(command, **how)
            if self.is_done:
                await propose(command, **how)
            raise self.error("not this time")

        engine.propose = refusing  # type: ignore[method-assign]


def enter(session_id: str, directories: tuple[str, ...] = (A,), **more: Any) -> Enter:
    return Enter(
        directories, prefix="lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b"", **more
    )


async def submit(world: World, operation: Any) -> Any:
    done = await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))
    return done.outcome.unwrap()


async def opened(world: World, timeout_ms: int = 600_000) -> str:
    session = await world.leader.open_session(timeout_ms, "", None, world.deadline())
    return session.session_id


def machine(world: World) -> StateMachine:
    return world.leader._replica.machine


# --- what a leader does by itself: how it comes to be due, and whether it is done


async def bounded_hold(world: World) -> Callable[[], bool]:
    session_id = await opened(world)
    await submit(world, enter(session_id, max_hold_ms=1_000))
    return lambda: not machine(world).locks.contenders(A)


async def bounded_hold_of_several(world: World) -> Callable[[], bool]:
    session_id = await opened(world)
    several = ("/locks/a", "/locks/b")
    await submit(world, enter(session_id, several, max_hold_ms=1_000))
    return lambda: not machine(world).locks.contenders("/locks/b")


async def lock_delay(world: World) -> Callable[[], bool]:
    session_id = await opened(world)
    await submit(world, enter(session_id, lock_delay_ms=1_000))
    await world.leader.close_session(session_id, None, world.deadline(), failure="unwell")
    assert machine(world).locks.closed(A)
    return lambda: not machine(world).locks.closed(A)


async def silent_session(world: World) -> Callable[[], bool]:
    session_id = await opened(world, 1_000)
    return lambda: machine(world).session(session_id) is None


async def empty_container(world: World) -> Callable[[], bool]:
    await submit(world, Create("/box", data=b"", mode=CreateMode.CONTAINER))
    await submit(world, Create("/box/child"))
    await submit(world, Delete("/box/child"))
    return lambda: machine(world).stat("/box") is None


async def ttl_znode(world: World) -> Callable[[], bool]:
    await submit(
        world, Create("/late", data=b"", mode=CreateMode.TTL, session_id=None, ttl_ms=1_000)
    )
    return lambda: machine(world).stat("/late") is None


async def session_with_many_znodes(world: World) -> Callable[[], bool]:
    session_id = await opened(world)
    for number in range(ENDED_AT_ONCE + 10):
        await submit(
            world, Create(f"/e{number}", data=b"", mode=CreateMode.EPHEMERAL, session_id=session_id)
        )
    # Nobody waits for the whole of it: that would make the leader look.
    await submit(world, CloseSession(session_id, at_once=ENDED_AT_ONCE))
    return lambda: machine(world).stat(f"/e{ENDED_AT_ONCE + 9}") is None


async def session_of_a_revoked_token(world: World) -> Callable[[], bool]:
    (session_id, _), _ = await furnished(world)
    await submitted(world, DropToken("tokenone"))
    return lambda: not machine(world)._sessions.is_kept(session_id)


async def readers_beyond_a_command(world: World) -> Callable[[], bool]:
    session_id = await opened(world)
    writer = (await submit(world, enter(session_id))).contenders[0]
    readers = NEW_CLUSTER.grants_per_command_max + 10
    for _ in range(readers):
        await submit(
            world, Enter((A,), prefix="read-", kind=Kind.SHARED, session_id=session_id, data=b"")
        )
    await submit(world, Release(writer.path, writer.stat.czxid))
    return lambda: machine(world).locks.holder_count(A) == readers


async def waiter_that_lost_the_right(world: World) -> Callable[[], bool]:
    (one, its), (two, others) = await furnished(world)
    await submitted(world, enter(two, ("/locks/daily",)), others)
    await submitted(world, enter(one, ("/locks/daily",)), its)
    await submitted(world, PutRole("one", ()))
    return lambda: machine(world).locks.length("/locks/daily") == 1


DUE: tuple[tuple[type, Callable[[World], Coroutine[Any, Any, Callable[[], bool]]]], ...] = (
    (EndHold, bounded_hold),
    (EndHold, bounded_hold_of_several),
    (Reopen, lock_delay),
    (ExpireSession, silent_session),
    (Reap, empty_container),
    (Reap, ttl_znode),
    (FinishSession, session_with_many_znodes),
    (CloseSession, session_of_a_revoked_token),
    (FinishGrants, readers_beyond_a_command),
    (TakeOut, waiter_that_lost_the_right),
)
HOW = (
    (ThrottledError, False),
    (NoSpaceError, False),
    (NoLeaderError, False),
    (ProposalTimeoutError, False),
    (LeaderChangedError, False),
    (ProposalTimeoutError, True),
)


def test_all_that_leaders_do_by_themselves_is_tried() -> None:
    """A new command of theirs comes with the way in which it comes to be due."""
    assert {kind for kind, _ in DUE} == BY_MEMBERS | {CloseSession}  # of whose token was revoked


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.check), 3])
@pytest.mark.parametrize(("error", "is_done"), HOW)
@pytest.mark.parametrize(("kind", "due"), DUE)
async def test_the_same_leader_tries_again(
    kind: type,
    due: Callable[[World], Coroutine[Any, Any, Callable[[], bool]]],
    error: type[CoordinatorError],
    is_done: bool,
    times: int,
) -> None:
    """Refused once or three times, or of unknown outcome: it is done in the end, and once."""
    async with cluster(3, config=CONFIG) as world:
        term = world.term
        refusals = Refusals(world, kind, error, is_done=is_done, count=times)
        refusals.begin()

        is_over = await due(world)
        await world.advance(8_000)

        assert is_over()
        assert world.term == term
        if not is_done:
            assert len(refusals.tried) == times + 1
        tried = len(refusals.tried)
        await world.advance(3_000)
        assert len(refusals.tried) == tried, "what is done is not proposed for ever"


async def test_one_that_is_refused_keeps_the_others_from_nothing() -> None:
    """Three bounded holds end at once; the first is refused, and all three end."""
    async with cluster(3, config=CONFIG) as world:
        session_id = await opened(world)
        refusals = Refusals(world, EndHold, ThrottledError)
        refusals.begin()
        for name in "abc":
            several = (f"/locks/{name}",)
            await submit(world, enter(session_id, several, max_hold_ms=1_000))

        await world.advance(2_000)

        assert not any(machine(world).locks.contenders(f"/locks/{name}") for name in "abc")
        assert len(refusals.tried) == 4


async def test_a_leave_that_is_refused_is_tried_again_by_the_same_member() -> None:
    """Who gave up waiting leaves no contender behind, though the leader had too much to do."""
    async with cluster(3, config=CONFIG) as world:
        holder, waiter = await opened(world), await opened(world)
        await submit(world, enter(holder))
        waiting = await submit(world, enter(waiter))
        refusals = Refusals(world, Release, ThrottledError, count=3)
        refusals.begin()
        contender = waiting.contenders[0]
        leave = Leave(
            Release(contender.path, contender.stat.czxid),
            session_id=waiter,
            word="a",
            has_number=False,
        )
        world.leader._queues._leaving.start(leave)
        await world.advance(10_000)

        assert len(machine(world).locks.contenders(A)) == 1
        assert len(refusals.tried) == 4
