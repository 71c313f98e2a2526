"""A member that halts says nothing more to anybody, and its data are not used again."""

from __future__ import annotations

import asyncio
import errno

import pytest

from coordinator.errors import ShuttingDownError, StorageError
from coordinator.raft.engine import Role
from coordinator.raft.network.messages import Message
from coordinator.raft.storage import quarantine
from coordinator.waiting import AT_ONCE
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run

NOTE = "member 1 has stopped answering: its state differs"


def halt(member: Member, note: str = NOTE) -> None:
    member.engine.halt(StorageError(note or "no quorum agrees"), note)


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_member_that_halts_is_silent_and_the_others_go_on(is_leader: bool) -> None:
    """What it was asked ends at once, another leads if need be, and nothing is lost."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        member = leader if is_leader else cluster.others(leader)[0]
        await leader.engine.propose(b"before")
        await cluster.equal()
        messages: list[Message] = []
        asked = asyncio.ensure_future(member.engine.read_barrier())
        await asyncio.sleep(0)

        halt(member)
        member.transport.on_send = lambda _to, message: messages.append(message)
        with pytest.raises(ShuttingDownError):
            await asyncio.wait_for(asked, 1)
        with pytest.raises(ShuttingDownError):
            await member.engine.propose(b"never")
        member.is_up = False
        next_leader = await cluster.leader(cluster.others(member))
        await next_leader.engine.propose(b"after")
        await cluster.equal()

        assert not messages
        assert member.engine.status().role is not Role.LEADER or not member.is_leading
        assert next_leader.replica.commands == [b"before", b"after"]
        await member.engine.stop()
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("asked", ["read_barrier", "confirm_leadership", "wait_applied"])
def test_of_many_who_wait_none_is_answered_once_a_member_has_halted(asked: str) -> None:
    """They are woken some in each pass; it may halt in between, and its state is wrong."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        engine = leader.engine
        ask = {
            "read_barrier": engine.read_barrier,
            "confirm_leadership": engine.confirm_leadership,
            "wait_applied": lambda: engine.wait_applied(engine.status().last_index + 1),
        }[asked]
        many = [asyncio.ensure_future(ask()) for _ in range(5 * AT_ONCE)]
        many[0].add_done_callback(lambda _first: halt(leader))
        proposed = asyncio.ensure_future(engine.propose(b"applied"))

        found = await asyncio.gather(*many, return_exceptions=True)

        answered = [not isinstance(each, ShuttingDownError) for each in found]
        assert answered == [True] * AT_ONCE + [False] * 4 * AT_ONCE
        await asyncio.wait((proposed,))
        leader.is_up = False
        await engine.stop()
        await cluster.stop()

    run(scenario())


def test_the_data_of_a_member_that_differed_are_refused_until_they_are_replaced() -> None:
    """Also after a power cut; with an empty directory it catches up as any lost disk does."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        await cluster.equal()
        member = cluster.others(leader)[0]
        halt(member)
        await member.kill()

        for _ in range(2):
            with pytest.raises(StorageError, match="the note 'differs': member 1 has"):
                await member.start()
            await member.kill()

        await member.lose_disk()
        await member.start()
        await leader.engine.propose(b"after")
        assert await cluster.equal() == [b"before", b"after"]
        await cluster.stop()

    run(scenario())


def test_without_a_note_the_data_are_used_again() -> None:
    """When no quorum agrees nobody's data are condemned."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        await cluster.equal()
        for member in cluster.members:
            halt(member, "")
        for member in cluster.members:
            await member.kill()
        for member in cluster.members:
            await member.start()

        leader = await cluster.leader()
        await leader.engine.propose(b"after")
        assert await cluster.equal() == [b"before", b"after"]
        await cluster.stop()

    run(scenario())


def test_without_room_for_the_note_it_halts_all_the_same() -> None:
    """A full disk keeps nobody from being silent."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        member = cluster.others(leader)[0]
        member.disk.fail("write", error=errno.ENOSPC)

        halt(member)

        with pytest.raises(ShuttingDownError):
            await member.engine.propose(b"never")
        assert not member.disk.exists(f"data/{quarantine.NAME}")
        await member.kill()
        await cluster.stop()

    run(scenario())
