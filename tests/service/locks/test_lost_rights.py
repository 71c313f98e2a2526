"""Who waits and loses the right to the lock: told at once, and nobody waits behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import NoAuthError
from coordinator.model.access import Caller, Rule, Verb
from coordinator.service.locks.upkeep import LOOKED_AT_ONCE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import decode_command
from coordinator.state.commands import (
    AddToken,
    Enter,
    InitAccess,
    Kind,
    Operation,
    PutIdentity,
    PutRole,
    SetAccess,
    TakeOut,
)
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import SHARED, WITHOUT_LEASES, acquired

DIGEST = b"d" * 32
LOCKS = (Rule("/locks", (Verb.LOCK,)),)
TAKEN_AWAY: dict[str, Operation] = {
    "the rules of its role": PutRole("one", ()),
    "its role": PutIdentity("one", ()),
}


async def submitted(world: World, operation: Operation, caller: Caller | None = None) -> Any:
    committed = await world.leader.proposer.submit(
        operation, RequestContext(None, world.deadline(), caller=caller or ops(world))
    )
    return committed.outcome.unwrap()


def caller_of(world: World, token_id: str) -> Caller:
    token = world.leader._replica.machine.access.token(token_id)
    return Caller() if token is None else token.caller


def ops(world: World) -> Caller:
    return caller_of(world, "opstoken1")


async def furnished(world: World) -> tuple[tuple[str, Caller], tuple[str, Caller]]:
    """Turn rights on; return the sessions of two identities that may lock, and their callers."""
    found = []
    for name in ("one", "two"):
        await submitted(world, PutRole(name, LOCKS))
        await submitted(world, PutIdentity(name, (name,)))
        await submitted(world, AddToken(name, token_id=f"token{name}", digest=DIGEST))
    await submitted(world, InitAccess("ops", token_id="opstoken1", digest=DIGEST))
    for name in ("one", "two"):
        caller = caller_of(world, f"token{name}")
        deadline_ms = world.deadline()
        opening = world.leader.open_session(None, name, None, deadline_ms, caller=caller)
        found.append(((await soon(opening)).session_id, caller))
    return found[0], found[1]


def waiting(world: World, who: tuple[str, Caller], wish: Any = None) -> asyncio.Task[Any]:
    at = world.follower
    return asyncio.create_task(acquired(world, who[0], wish=wish, at=at, caller=who[1]))


def queue_length(world: World) -> int:
    return world.leader._replica.machine.locks.length("/locks/daily")


@pytest.mark.parametrize("taken_away", TAKEN_AWAY)
async def test_readers_behind_who_lost_the_right_are_granted_at_once(taken_away: str) -> None:
    """A reader holds, a writer waits, readers wait for the writer; it is told why it never holds,
    and nobody has to touch the queue. It need not wait for the time it would have waited."""
    async with cluster(config=WITHOUT_LEASES) as world:
        one, two = await furnished(world)
        await soon(acquired(world, two[0], wish=SHARED, caller=two[1]))
        writer = waiting(world, one)
        await settle()
        readers = [waiting(world, two, SHARED) for _ in range(3)]
        await settle()
        assert not any(each.done() for each in (writer, *readers))

        await submitted(world, TAKEN_AWAY[taken_away])

        with pytest.raises(NoAuthError, match=r"needs lock on /locks/daily: .*'one'"):
            await soon(writer)
        for each in readers:
            await soon(each)
        assert queue_length(world) == 4


async def test_who_waits_behind_a_holder_is_told_that_it_never_will() -> None:
    """Its turn would come when the holder goes; it and who waits behind it look ahead."""
    async with cluster(config=WITHOUT_LEASES) as world:
        one, two = await furnished(world)
        await soon(acquired(world, two[0], caller=two[1]))
        lost, behind = waiting(world, one), waiting(world, two)
        await settle()

        await submitted(world, PutRole("one", (Rule("/locks/other", (Verb.LOCK,)),)))

        with pytest.raises(NoAuthError):
            await soon(lost)
        assert not behind.done()
        assert queue_length(world) == 2


async def many(world: World, who: tuple[str, Caller], count: int) -> None:
    for _ in range(count):
        entry = Enter(
            ("/locks/daily",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id=who[0], data=b"{}"
        )
        await submitted(world, entry, who[1])


def commands_of(world: World) -> list[TakeOut]:
    operations = [decode_command(entry[1]).operation for entry in world.log]
    return [each for each in operations if type(each) is TakeOut]


async def test_many_are_taken_out_in_short_commands() -> None:
    """However many wait; those with the right stay, in their order."""
    async with cluster(config=WITHOUT_LEASES) as world:
        one, two = await furnished(world)
        await many(world, two, 2)
        await many(world, one, 5 * LOOKED_AT_ONCE + 7)
        await many(world, two, 1)

        await submitted(world, PutIdentity("one", ()))
        await settle()

        assert queue_length(world) == 3
        assert max(len(each.paths) for each in commands_of(world)) == LOOKED_AT_ONCE


async def test_another_leader_takes_out_whom_the_one_before_left() -> None:
    """Rights are turned on while nobody leads who could look."""
    async with cluster(config=WITHOUT_LEASES) as world:
        one, two = await furnished(world)
        await many(world, two, 1)
        await many(world, one, 1)
        await submitted(world, SetAccess(is_on=False))
        await submitted(world, PutIdentity("one", ()))
        await settle()
        assert queue_length(world) == 2
        for each in world.leader._in_pieces:
            each.stop()
        await submitted(world, SetAccess(is_on=True))
        await settle()
        assert queue_length(world) == 2

        world.elect(None)
        world.elect("2")
        await world.advance(200)

        assert queue_length(world) == 1
