"""What a member has acknowledged and lacks takes its vote away; a false alarm does not."""

from __future__ import annotations

import asyncio
import errno

import pytest

from coordinator.errors import StorageError
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from tests.raft.simulated_cluster import settled
from tests.raft.simulated_loop import run
from tests.raft.test_engine_rows import Bench


def test_an_accusation_without_room_to_note_it_holds_in_the_next_life() -> None:
    """A file that is there gets a second name, which takes none."""

    async def scenario() -> None:
        cluster, leader = await settled()
        restored, other = cluster.others(leader)
        await restored.kill()
        old = restored.disk.copy()
        await restored.start()
        await cluster.equal()
        await asyncio.sleep(1)
        await other.kill()
        await leader.engine.propose(b"known to two")
        await leader.kill()
        await restored.kill()
        restored.disk = old
        restored.disk.fail("write", error=errno.ENOSPC, path_part="unproven", count=9)
        await restored.start()
        await other.start()
        await cluster.until(lambda: restored.is_unproven)

        await restored.kill()
        await restored.start()
        await asyncio.sleep(5)

        assert restored.is_unproven
        assert cluster.leaders() == []
        await leader.start()
        assert b"known to two" in await cluster.equal()
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("why", ["names", "room"])
def test_a_member_that_cannot_note_an_accusation_stops(why: str) -> None:
    bench = Bench()
    bench.disk.fail("write", error=errno.ENOSPC, path_part="unproven")
    if why == "names":
        bench.disk.has_one_name_only = True
    else:
        bench.disk.fail("link", error=errno.ENOSPC)

    with pytest.raises(StorageError, match="expected room to note"):
        bench.recovering.begin("an older copy")


def test_an_old_copy_is_found_out_by_its_leader_and_loses_its_vote() -> None:
    """Put back while the leader lives: it is told, has no vote, and has it again afterwards."""

    async def scenario() -> None:
        cluster, leader = await settled()
        restored = cluster.others(leader)[0]
        old = restored.disk.copy()
        for number in range(5):
            await leader.engine.propose(b"later %d" % number)
        await cluster.equal()
        told: list[str] = []
        cluster.network.on_message = lambda _source, target, message: (
            told.append(target) or True if isinstance(message, say.LogLost) else True
        )

        await restored.kill()
        restored.disk = old
        await restored.start()
        await cluster.until(lambda: restored.is_unproven)
        await cluster.until(lambda: not restored.is_unproven)

        assert told == [restored.member_id]
        assert len(await cluster.equal()) == 10
        await cluster.stop()

    run(scenario())


def test_a_leader_of_an_earlier_term_also_remembers_what_was_acknowledged() -> None:
    """Leading again, it still knows what a follower held that was committed."""
    bench = Bench()
    bench.lead()
    bench.log.sync()
    bench.follower_holds("3", 2)
    bench.consensus.tick()
    bench.receive("2", say.TermNotice(5))
    bench.lead()

    messages = []
    for _ in range(2):
        epoch = bench.consensus.replication.followers["3"].epoch
        messages += bench.receive(
            "3", say.Appended(term=bench.core.term, epoch=epoch, next_index=2, is_success=False)
        )

    assert bench.core.role is Role.LEADER
    assert (
        "3",
        say.LogLost(
            term=bench.core.term, last_index=2, said_term=1, said_index=2, seal=b"sealed by 3"
        ),
    ) in messages


def test_a_false_alarm_takes_no_vote_away() -> None:
    """A member that holds what its leader believes lost stays proven; so does one that cannot have
    said what it is told, for no leader has the seal of more than was acknowledged to it."""
    bench = Bench()
    bench.recovering.key = b"of this directory"
    bench.append(1, (1, 0), [1, 1])
    genuine = bench.seals[-1]

    for leader_id, lost in (
        (
            "2",
            say.LogLost(term=1, last_index=3, said_term=1, said_index=3, seal=genuine),
        ),  # it is there
        (
            "3",
            say.LogLost(term=1, last_index=9, said_term=1, said_index=9, seal=genuine),
        ),  # not its leader
        ("2", say.LogLost(1, 4)),
        ("2", say.LogLost(term=1, last_index=4, said_term=1, said_index=4, seal=genuine)),
        (
            "2",
            say.LogLost(term=1, last_index=4, said_term=1, said_index=3, seal=genuine),
        ),  # more than what was said
        ("2", say.LogLost(term=1, last_index=4, said_term=1, said_index=4, seal=bytes(16))),
    ):
        bench.receive(leader_id, lost)
        assert bench.recovering.is_proven

    assert [member_id for member_id, _ in bench.distrusted] == ["2"] * 4


def test_what_a_member_said_itself_takes_its_vote_away() -> None:
    """An older copy of its directory has the same key, and a shorter log."""
    bench, copy = Bench(), Bench()
    bench.recovering.key = copy.recovering.key = b"of this directory"
    bench.append(1, (1, 0), [1, 1, 1])
    copy.append(1, (1, 0), [1, 1])

    copy.receive(
        "2", say.LogLost(term=1, last_index=4, said_term=1, said_index=4, seal=bench.seals[-1])
    )

    assert bench.seals[-1] != copy.seals[-1]
    assert not copy.recovering.is_proven


def test_one_that_claims_to_lead_takes_no_vote_away() -> None:
    """Whoever knows the secret can say that it leads; two frames to each of two members left a
    cluster of three whole disks without a leader, also after the liar was gone."""

    async def scenario() -> None:
        cluster, _ = await settled()
        liar, *victims = cluster.members
        for victim in victims:
            term, last_index = victim.term + 1, victim.engine.status().last_index
            victim.transport.listener.on_message(
                liar.member_id,
                say.Append(
                    term=term, epoch=1, commit_index=0, prev_index=1, prev_term=0, entries=()
                ),
            )
            lost = say.LogLost(
                term=term,
                last_index=last_index + 5,
                said_term=term,
                said_index=last_index + 5,
                seal=bytes(16),
            )
            victim.transport.listener.on_message(liar.member_id, lost)
            assert victim.engine.status().alarms
        await asyncio.sleep(3)

        assert not any(member.is_unproven for member in cluster.members)
        await (await cluster.leader()).engine.propose(b"all is well")
        assert len(await cluster.equal()) == 6
        await cluster.stop()

    run(scenario())
