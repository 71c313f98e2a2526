"""Writes, and rights of two identities: what tests of watches begin with."""

from __future__ import annotations

from coordinator.model.access import Caller, Rule, Verb
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    AddToken,
    Operation,
    PutIdentity,
    PutRole,
    SetAccess,
)
from tests.service.fake_cluster import World


async def write(world: World, *operations: Operation) -> None:
    for operation in operations:
        await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))


async def allowed(world: World, *rules: Rule) -> None:
    await write(world, PutRole("reading", rules))


async def with_rights(world: World, *rules: Rule) -> Caller:
    """Turn rights on; return a caller with these rules."""
    await allowed(world, *rules)
    await write(world, PutRole("all", (Rule("/", tuple(Verb)), Rule("@", tuple(Verb)))))
    await write(world, PutIdentity("reader", roles=("reading",), subjects=("cert:reader",)))
    await write(world, PutIdentity("anonymous", ("all",)))
    await write(world, PutIdentity("operator", ("all",)))
    await write(
        world,
        AddToken(
            identity="operator", token_id="operator0001", digest=bytes(32), expires_ms=0, label=""
        ),
    )
    await write(world, SetAccess(is_on=True))
    caller = world.leader._replica.machine.access.by_subject("cert:reader")
    assert caller is not None
    return caller
