"""Lists of sessions: what a caller sees of them, in steps that are short however many there are."""

from __future__ import annotations

import asyncio

from coordinator.model.access import Caller, Rule, Verb
from coordinator.service.reads.reads import STALE
from coordinator.service.sessions.session_reads import LOOKED_AT_ONCE
from coordinator.state.commands import CloseSession, Command, OpenSession
from tests.service.fake_cluster import World, cluster
from tests.service.rights import with_rights


def opened(world: World, caller: Caller, *session_ids: str) -> None:
    apply(world, caller, *(OpenSession(each, timeout_ms=60_000, label="") for each in session_ids))


def apply(world: World, caller: Caller, *operations: OpenSession | CloseSession) -> None:
    machine = world.leader._replica.machine
    for each in operations:
        machine.apply(Command(each, 1, caller=caller), machine.applied_index, 1).unwrap()


async def test_own_sessions_are_looked_for_among_all_in_slices() -> None:
    """A caller gets those that are open in the end, though others come and go between."""
    async with cluster() as world:
        own = await with_rights(world, Rule("/mine", (Verb.READ,)))
        operator = world.leader._replica.machine.access.token("operator0001")
        assert operator is not None
        opened(world, own, "first", "gone")
        opened(world, operator.caller, *(f"other-{number}" for number in range(LOOKED_AT_ONCE)))
        opened(world, own, "middle")

        read = world.leader.sessions.page
        whole = asyncio.create_task(read(STALE, world.deadline(), caller=operator.caller))
        passes = 0
        while not whole.done():
            await asyncio.sleep(0)
            passes += 1
        listing = asyncio.create_task(read(STALE, world.deadline(), caller=own))
        for _ in range(passes):
            await asyncio.sleep(0)
        assert not listing.done(), "the first slice has been looked at, and more are to come"
        apply(world, own, CloseSession("gone"))
        opened(world, own, "last")
        reply = await listing

        assert [each.session_id for each in reply.value.sessions] == ["first", "middle", "last"]
        assert reply.zxid == world.leader._replica.machine.zxid
        page = await read(STALE, world.deadline(), limit=2, caller=own)
        assert [each.session_id for each in page.value.sessions] == ["first", "middle"]
        middle = world.leader._replica.machine.session("middle")
        assert middle is not None
        assert page.value.next == middle.opened_zxid
