"""A digest for an index is that of the state at this very index, whoever is fast or slow."""

from __future__ import annotations

import asyncio

from coordinator.service.base.replica import MachineReplica
from coordinator.service.comparing.state_slices import WAITING_MAX, StateSlices
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create
from coordinator.state.machine import StateMachine
from coordinator.state.slice_room import Cursor
from coordinator.state.slices import BYTES_MAX, Slice
from tests.service.fake_cluster import FAR_MS, World, cluster, settle, soon

BEGIN = Cursor()


def slices_of(world: World, member_id: str) -> StateSlices:
    return world.members[member_id]._divergence._slices


async def create(world: World, path: str) -> None:
    await world.leader.proposer.submit(Create(path), RequestContext(None, world.deadline()))


def at(log: list[tuple[int, bytes, object]], index: int) -> Slice:
    """Return the slice of a machine that has applied the log up to ``index``, and no more."""
    machine = StateMachine()
    for number, (term, command, _) in enumerate(log[:index], 1):
        MachineReplica(machine).apply(number, term, command)
    return machine.slice_at(BEGIN)


async def test_one_asked_for_now_is_that_of_now() -> None:
    """Nothing is waited for when the index is the last one that is applied."""
    async with cluster(3) as world:
        await create(world, "/a")
        index = len(world.log)

        (found,) = await soon(slices_of(world, "2").at(index, BEGIN, FAR_MS))

        assert found == at(world.log, index)


async def test_one_asked_for_an_index_to_come_is_taken_before_the_next_entry() -> None:
    """Several entries are applied in one step: the digest is that between two of them."""
    async with cluster(3) as world:
        await create(world, "/a")
        slow = world.engines["2"]
        slow.is_applying = False
        index = len(world.log) + 2
        asked = [
            asyncio.ensure_future(slices_of(world, "2").at(each, BEGIN, FAR_MS))
            for each in (index + 1, index, index)
        ]
        await settle()
        for path in ("/b", "/c", "/d", "/e"):
            await create(world, path)
        assert not any(each.done() for each in asked)

        slow.is_applying = True
        slow.catch_up()

        (one,), (two,), (same,) = [await soon(each) for each in asked]
        assert two == same == at(world.log, index)
        assert one == at(world.log, index + 1)
        assert len({one.digest, two.digest}) == 2


async def test_all_commands_of_an_entry_are_in_it_and_none_of_the_next() -> None:
    """Commands of one entry share its index."""
    async with cluster(3) as world:
        replica = world.members["2"]._replica
        engine = world.engines["2"]
        base = len(world.log)
        asked = asyncio.ensure_future(slices_of(world, "2").at(base + 1, BEGIN, FAR_MS))
        await settle()
        for index, path in ((base + 1, "/a"), (base + 1, "/b"), (base + 2, "/c")):
            replica.apply(index, 1, encode_command(Command(Create(path), 1)))
        engine.applied_index = base + 2
        engine.catch_up()
        (found,) = await soon(asked)

        machine = StateMachine()
        expected = MachineReplica(machine)
        for number, (term, command, _) in enumerate(world.log, 1):
            expected.apply(number, term, command)
        for path in ("/a", "/b"):
            expected.apply(base + 1, 1, encode_command(Command(Create(path), 1)))
        assert found == machine.slice_at(BEGIN)


async def test_one_asked_for_an_index_that_is_past_is_not_taken() -> None:
    """Nobody knows what the state was."""
    async with cluster(3) as world:
        for path in ("/a", "/b"):
            await create(world, path)

        assert await soon(slices_of(world, "2").at(len(world.log) - 1, BEGIN, FAR_MS)) == []


async def test_one_that_a_snapshot_went_past_is_not_taken_and_one_behind_it_is() -> None:
    """A state that was never there has no digest."""
    async with cluster(3) as world:
        await create(world, "/a")
        slow = world.engines["2"]
        slow.is_applying = False
        base = len(world.log)
        asked = [
            asyncio.ensure_future(slices_of(world, "2").at(base + each, BEGIN, FAR_MS))
            for each in (1, 3, 4)
        ]
        await settle()
        for path in ("/b", "/c", "/d"):
            await create(world, path)
        slow.install(world.leader._replica.snapshot(), len(world.log))
        await settle()
        slow.is_applying = True
        await create(world, "/e")

        passed, (at_it,), (behind,) = [await soon(each) for each in asked]
        assert passed == []
        assert at_it == at(world.log, base + 3)
        assert behind == at(world.log, base + 4)


async def test_waiting_has_a_deadline_and_a_bound() -> None:
    """An index that never comes holds nobody, and another member cannot ask for ever more."""
    async with cluster(3) as world:
        slices = slices_of(world, "2")
        index = len(world.log) + 5
        deadline_ms = world.clock.monotonic_ms() + 1_000
        asked = [
            asyncio.ensure_future(slices.at(index, BEGIN, deadline_ms)) for _ in range(WAITING_MAX)
        ]
        await settle()
        assert await soon(slices.at(index, BEGIN, deadline_ms)) == []
        await world.advance(2_000)

        assert [await soon(each) for each in asked] == [[]] * WAITING_MAX
        assert world.members["2"]._replica.look_index is None


async def large(world: World) -> int:
    """Fill more slices than anybody asks for at once; return the index."""
    for number in range(12):
        data = bytes(BYTES_MAX)
        await world.leader.proposer.submit(
            Create(f"/large{number:02}", data), RequestContext(None, world.deadline())
        )
    return len(world.log)


async def test_several_are_taken_one_behind_the_other() -> None:
    """Each in a pass of its own, and no more than there are."""
    async with cluster(3) as world:
        index = await large(world)
        slices = slices_of(world, "2")
        taking = asyncio.ensure_future(slices.at(index, BEGIN, FAR_MS, 5))
        for count in range(1, 5):
            await asyncio.sleep(0)
            assert not taking.done()
            assert [len(each.found) for each in slices._looks] == [count]

        found = await soon(taking)

        machine = slices._replica.machine
        places = [BEGIN, *[each.following for each in found]]
        assert len(found) == 5
        assert found == [machine.slice_at(each) for each in places[:-1]]
        rest = await soon(slices.at(index, places[-1], FAR_MS, 50))
        assert 6 < len(rest) < 50
        assert rest[-1].following is None


async def test_an_entry_ends_what_is_taken_together() -> None:
    """What was taken is of one index; the next slice would be of another."""
    async with cluster(3) as world:
        index = await large(world)
        slices = slices_of(world, "2")
        taking = asyncio.ensure_future(slices.at(index, BEGIN, FAR_MS, 8))
        for _ in range(3):
            await asyncio.sleep(0)
        expected = [slices._replica.machine.slice_at(BEGIN)]
        await create(world, "/later")

        found = await soon(taking)

        assert 1 <= len(found) < 8
        assert found[0] == expected[0]
        assert slices._replica.look_index is None
