"""Whatever takes a grant from a session that lives on is told by its next heartbeat."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from coordinator.service.sessions import revocations as taken
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    Abandon,
    AddToken,
    Check,
    CloseSession,
    Create,
    Delete,
    Downgrade,
    DropIdentity,
    DropRole,
    DropToken,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishGrants,
    FinishSession,
    Guarded,
    InitAccess,
    Multi,
    Note,
    OpenSession,
    Operation,
    Put,
    PutIdentity,
    PutRole,
    Reap,
    Release,
    RenewCredential,
    Reopen,
    Resize,
    Revoke,
    SetAccess,
    SetData,
    SetLevel,
    SetLimits,
    TakeOut,
)
from tests.service.fake_cluster import World, cluster, soon
from tests.service.locks.lock_scenes import WITHOUT_LEASES, acquired, opened

TELLS_NOTHING = {
    Create: "ends no grant",
    SetData: "ends no grant",
    Put: "ends no grant",
    Check: "ends no grant",
    OpenSession: "ends no grant",
    Downgrade: "the holder's own deed, and it goes on holding",
    Resize: "ends no grant: nobody who holds a slot loses it",
    Note: "ends no grant",
    ExtendHold: "the holder's own deed, and it goes on holding",
    Reopen: "deletes what closes a queue",
    Enter: "ends no grant",
    SetLimits: "ends no grant",
    SetLevel: "ends no grant",
    CloseSession: "the session is over",
    ExpireSession: "the session is over",
    FinishGrants: "ends no grant",
    FinishSession: "the session is over",
    TakeOut: "ends no grant: who holds stays",
    Release: "the holder's own deed",
    Abandon: "the holder's own deed",
    RenewCredential: "ends no grant",
    InitAccess: "ends no grant",
    SetAccess: "ends no grant: off allows more, and on what was opened goes on being its owner's",
    PutRole: "who holds goes on holding; nothing is granted without the right",
    DropRole: "no identity has it",
    AddToken: "ends no grant",
    PutIdentity: "of a subject that is gone the sessions are over",
    DropIdentity: "its sessions are over",
    DropToken: "its sessions are over",
}


def test_every_operation_tells_or_says_why_not() -> None:
    """A new operation that ends grants must be thought of here."""
    known = {*taken._TAKING, *TELLS_NOTHING}
    assert set(get_args(Operation)) == known
    assert taken._TAKING.isdisjoint(TELLS_NOTHING)


def by(path: str, token: int) -> dict[str, Any]:
    directory = path.rpartition("/")[0]
    return {
        "delete": Delete(path),
        "delete of the queue": Delete(directory, is_recursive=True),
        "multi": Multi((Create("/x"), Delete(path))),
        "guarded, then": Guarded((Check(path),), then=(Delete(path),)),
        "guarded, otherwise": Guarded((Check("/no"),), otherwise=(SetData("/", b""), Delete(path))),
        "guarded, the queue": Guarded((), then=(Delete(directory, is_recursive=True),)),
        "revoke": Revoke(path, czxid=token, by="ops", reason="stuck"),
    }


@pytest.mark.parametrize("names", ["daily", ("daily", "weekly")])
@pytest.mark.parametrize("how", sorted(by("/locks/a/lock-0000000000", 1)))
async def test_a_holder_is_told_whatever_deleted_its_znode(
    how: str, names: str | tuple[str, ...]
) -> None:
    """By every member, of each lock it held as one, and once it is told it is told again."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id, names))
        operation = by(held.path, held.fencing_token)[how]
        await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))

        for member in world.members.values():
            ack = await soon(member.heartbeat(session_id, world.deadline()))
            count = 1 if isinstance(names, str) else len(names)
            assert len(ack.lost) == count
            assert {each.fencing_token for each in ack.lost} == {held.fencing_token}
            assert {each.how for each in ack.lost} == {"forced" if how == "revoke" else "deleted"}


async def test_two_that_are_taken_in_one_command_are_both_told() -> None:
    """One guarded write deletes the znodes of two holders."""
    async with cluster(config=WITHOUT_LEASES) as world:
        one, other = await opened(world), await opened(world)
        first = await soon(acquired(world, one, "a"))
        second = await soon(acquired(world, other, "b"))
        both = Guarded((), then=(Delete(first.path), Delete(second.path)))
        await world.leader.proposer.submit(both, RequestContext(None, world.deadline()))

        for session_id, held in ((one, first), (other, second)):
            assert await told(world, session_id) == [held.path]


async def test_a_leader_that_still_reads_a_long_history_tells_nobody_that_all_is_well() -> None:
    """It has just restored a snapshot: the heartbeat is answered when all is known."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, other = await opened(world), await opened(world)
        held = await soon(acquired(world, session_id, "held"))
        everything = Delete("/locks", is_recursive=True)
        for _ in range(40):  # first that grant, then 64 others each time
            await world.leader.proposer.submit(everything, RequestContext(None, world.deadline()))
            await soon(acquired(world, other, tuple(f"l{place:02}" for place in range(64))))
        replica = world.engines["1"].replica
        assert replica is not None
        world.engines["3"].install(replica.snapshot(), index=len(world.log))
        world.elect("3")

        ack = await soon(world.members["3"].heartbeat(session_id, world.deadline()))
        assert [each.path for each in ack.lost] == [held.path]


async def test_a_hold_whose_bound_ends_is_told() -> None:
    """As ``EndHold`` is no deed of the holder's."""
    assert {EndHold, Reap} <= taken._TAKING


async def told(world: World, session_id: str) -> list[str]:
    ack = await soon(world.follower.heartbeat(session_id, world.deadline()))
    return [each.path for each in ack.lost]
