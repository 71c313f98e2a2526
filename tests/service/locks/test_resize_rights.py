"""A resize that is refused for a deadlock: what its caller sees of the others in it."""

from __future__ import annotations

import pytest

from coordinator.errors import DeadlockError
from coordinator.model.access import Caller, Rule, Verb
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Enter, Kind
from tests.service.fake_cluster import World, cluster, soon
from tests.service.rights import with_rights


async def entered(world: World, caller: Caller, operation: Enter) -> None:
    asked = RequestContext(None, world.deadline(), caller=caller)
    await soon(world.leader.proposer.submit(operation, asked))


def at(name: str, session_id: str, owner: str, size: int | None = None) -> Enter:
    kind, prefix = (Kind.SLOT, "slot-") if name == "pool" else (Kind.EXCLUSIVE, "lock-")
    return Enter(
        (f"/locks/{name}",),
        prefix=prefix, kind=kind, session_id=session_id, data=b"", owner=owner, size=size,
    )  # fmt: skip


async def test_a_resize_that_would_be_a_deadlock_names_no_sessions_of_others() -> None:
    """With two slots one of them comes free; with one slot both would have to be."""
    async with cluster() as world:
        own = await with_rights(world, Rule("/locks", (Verb.LOCK, Verb.READ)))
        token = world.leader._replica.machine.access.token("operator0001")
        assert token is not None
        other = token.caller
        ids: dict[Caller, str] = {}
        for each in (own, other):
            opening = world.leader.open_session(60_000, "", None, world.deadline(), caller=each)
            ids[each] = (await soon(opening)).session_id
        await entered(world, other, at("a", ids[other], "t3"))
        await entered(world, other, at("pool", ids[other], "t1", size=2))
        await entered(world, own, at("pool", ids[own], "t2"))
        await entered(world, own, at("a", ids[own], "t2"))
        await entered(world, other, at("pool", ids[other], "t3"))

        asked = RequestContext(None, world.deadline(), caller=own)
        with pytest.raises(DeadlockError) as refused:
            await soon(world.leader.holding.resize("pool", 1, asked))

        assert refused.value.fields["cycle_length"] == 2
        assert [each["session_id"] for each in refused.value.fields["cycle"]] == [ids[own]]
        assert ids[other] not in refused.value.message
