"""An accusation takes a vote away only with a seal, or with enough accusers; a doubt ends."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.raft.network import messages as say
from coordinator.raft.rejoin import incarnation_record as incarnations
from coordinator.raft.rejoin.incarnation_record import (
    NO_PROOF_IS_LATER,
    load,
)
from coordinator.raft.rejoin.recovering import Proof
from tests.raft.rejoin.copies import lose_and_catch_up
from tests.raft.simulated_cluster import Member, SimulatedCluster, settled
from tests.raft.simulated_loop import run


def test_what_a_member_says_does_not_count_before_it_is_known_who_says_it() -> None:
    """Until its incarnation has come, and is stable here, its acknowledgements are nobody's."""

    async def scenario() -> None:
        cluster, leader = await settled()
        first, second = cluster.others(leader)
        await second.kill()
        await first.kill()
        is_lost = True
        cluster.network.on_message = lambda source, _target, message: (
            not (is_lost and source == first.member_id and isinstance(message, say.Incarnation))
        )
        await first.start()

        writing = asyncio.ensure_future(leader.engine.propose(b"waits"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.35):
                await asyncio.shield(writing)
        is_lost = False
        await cluster.leader([leader, first])

        assert b"waits" in await cluster.equal() or writing.exception() is not None
        await cluster.stop()

    run(scenario())


def a_forgery(member: Member, seal: bytes = bytes(16)) -> say.IncarnationLost:
    """Return an accusation that whoever knows the secret could make up."""
    number = load(member.disk, "data").number
    return say.IncarnationLost(
        number=number + 7,
        incarnation_id=b"made up!",
        life_id=b"what life",
        proof_term=9,
        proof_index=9,
        seal=seal,
    )


def test_one_accuser_without_a_seal_takes_no_vote_away() -> None:
    """It could have made it up: two of three lost theirs by one frame each, and the third when it
    was started again, so that nobody could lead, with three whole disks (A2)."""

    async def scenario() -> None:
        cluster, leader = await settled()
        liar, *others = sorted(cluster.members, key=lambda each: each.member_id, reverse=True)
        await liar.kill()
        for victim in others:
            await victim.start() if not victim.is_up else None
            for _ in range(20):
                victim.transport.listener.on_message(liar.member_id, a_forgery(victim))
        await liar.start()
        await (await cluster.leader()).engine.propose(b"all is well")

        assert len(await cluster.equal()) == 6
        assert not any(member.is_unproven for member in cluster.members)
        assert leader.failures == []
        await cluster.stop()

    run(scenario())


def test_a_genuine_seal_with_a_made_up_proof_takes_no_vote_away() -> None:
    """Each member shows the seal of its incarnation on each connection; it says nothing of a
    proof."""

    async def scenario() -> None:
        cluster, _ = await settled()
        liar, *others = sorted(cluster.members, key=lambda each: each.member_id, reverse=True)
        await liar.kill()
        for victim in others:
            record = load(victim.disk, "data")
            incarnation_id = record.ids[-1]
            proof = victim.engine._passes.incarnations._recovering.proof
            genuine = incarnations.seal(
                record.key, record.number, incarnation_id, record.life_id, proof
            )
            victim.transport.listener.on_message(
                liar.member_id,
                say.IncarnationLost(
                    number=record.number,
                    incarnation_id=incarnation_id,
                    life_id=record.life_id,
                    proof_term=99,
                    proof_index=9,
                    seal=genuine,
                ),
            )
        await asyncio.sleep(1)

        assert not any(member.is_unproven for member in others)
        await liar.start()
        await (await cluster.leader()).engine.propose(b"all is well")
        assert len(await cluster.equal()) == 6
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize(("count", "needed"), [(3, 2), (5, 3)])
def test_so_many_accusers_as_prove_a_member_take_its_vote_away(count: int, needed: int) -> None:
    """Of a life that was proven so many know; each counts once, however often it says so."""

    async def scenario() -> None:
        cluster, leader = await settled(count)
        victim, *others = cluster.others(leader)
        cluster.network.isolate(victim.member_id)
        for number, accuser in enumerate((*others, leader)[:needed], 1):
            assert not victim.is_unproven
            for _ in range(1 if number == needed else 9):
                victim.transport.listener.on_message(accuser.member_id, a_forgery(victim))

        assert victim.is_unproven
        cluster.network.heal()
        await cluster.until(lambda: not victim.is_unproven)
        await cluster.stop()

    run(scenario())


def test_a_incarnation_with_its_seal_needs_no_second_witness() -> None:
    """Nobody but the member itself can have made it, so it was there and has forgotten it; it is
    over the proof that was shown, so one of long ago is no accusation for ever."""

    async def scenario() -> None:
        cluster, leader = await settled()
        victim, accuser = cluster.others(leader)
        cluster.network.isolate(victim.member_id)
        record = load(victim.disk, "data")
        made_up = (record.key, record.number + 7, b"made up!", b"what life")
        sealed = incarnations.seal(*made_up, Proof(9, 9))
        assert record.key not in (b"", load(leader.disk, "data").key)
        met = load(accuser.disk, "data").met[victim.member_id]
        shown = (record.key, met.number, met.incarnation_id, record.life_id)
        assert met.seal == incarnations.seal(*shown, met.proof)
        for other in (Proof(1, 9), None):
            replayed = a_forgery(victim, incarnations.seal(*made_up, other))
            victim.transport.listener.on_message(accuser.member_id, replayed)
            assert not victim.is_unproven

        victim.transport.listener.on_message(accuser.member_id, a_forgery(victim, sealed))

        assert victim.is_unproven
        cluster.network.heal()
        await cluster.until(lambda: not victim.is_unproven)
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_who_tells_its_term_has_noted_on_its_disk_that_the_other_is_on_recovering(
    seed: int,
) -> None:
    """Also of one that it met when it knew of no history itself: an older copy of that one would
    else be taken for the later life by one of those who answered, and vouched for."""

    async def scenario() -> None:
        cluster = SimulatedCluster(5, seed=seed)
        away: list[Member] = []
        answers: list[tuple[Proof, bool]] = []

        def note(source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, say.VoteRequest) and not away:
                away.append(cluster.members[int(target) - 1])
                cluster.network.isolate(target)
            return True

        def look(source: str, target: str, message: say.Message) -> None:
            if isinstance(message, say.TermAnswer):
                met = load(cluster.members[int(source) - 1].disk, "data").met[target]
                asker = load(cluster.members[int(target) - 1].disk, "data")
                answers.append((met.proof, met.life_id == asker.life_id))

        cluster.network.on_message = note
        await cluster.start()
        await cluster.until(lambda: bool(away))
        for member in cluster.members:
            member.on_said = lambda target, said, own=member.member_id: look(own, target, said)
        rest = cluster.others(away[0])
        await (await cluster.leader(rest)).engine.propose(b"first")
        await asyncio.sleep(2)  # so it asks as soon as it hears of a leader
        cluster.network.heal()
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
        await rest[0].lose_disk()
        await rest[0].start()
        await (await cluster.leader()).engine.propose(b"second")
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))

        assert len(answers) >= 3
        assert set(answers) == {(NO_PROOF_IS_LATER, True)}
        await cluster.stop()

    run(scenario())


def test_one_that_was_noted_before_there_was_a_history_is_noted_again_before_it_is_answered() -> (
    None
):
    """Who was new itself noted it as one proven with nothing: any older copy would be later."""

    async def scenario() -> None:
        cluster, leader = await settled()
        asker, asked = cluster.others(leader)
        messages: list[say.Message] = []
        asked.on_said = lambda target, message: (
            messages.append(message) if target == asker.member_id else None
        )
        met = asked.engine._passes.incarnations._record.met
        noted = met[asker.member_id]
        question = say.TermQuestion(7)

        met[asker.member_id] = noted._replace(proof=Proof(0, 0))
        asked.transport.listener.on_message(asker.member_id, question)
        at_first = list(messages)
        met[asker.member_id] = noted._replace(proof=NO_PROOF_IS_LATER)
        messages.clear()
        asked.transport.listener.on_message(asker.member_id, question)
        await cluster.until(lambda: bool(messages))

        assert [type(each) for each in at_first] == [say.Incarnation]
        assert at_first[0].is_asking
        assert any(isinstance(each, say.TermAnswer) for each in messages)
        await cluster.stop()

    run(scenario())


def test_a_doubt_ends_when_enough_others_vouch() -> None:
    """One that met a member that recovers cannot tell its lives apart; of the life that it met too
    few can have known to prove it, if so many hear the other one."""

    async def scenario() -> None:
        cluster, leader = await settled(5)
        doubter, replaced, *_ = cluster.others(leader)
        await replaced.lose_disk()
        cluster.network.on_message = lambda _source, target, message: (
            not (target == replaced.member_id and isinstance(message, say.TermAnswer))
        )
        await replaced.start()
        knows_recovering = lambda: (  # noqa: E731
            load(doubter.disk, "data").met[replaced.member_id].proof == NO_PROOF_IS_LATER
        )
        await cluster.until(knows_recovering)
        await doubter.kill()
        cluster.network.on_message = None
        await lose_and_catch_up(cluster, replaced)

        await doubter.start()

        await cluster.until(lambda: not doubter.is_unproven)
        await cluster.until(lambda: doubter.engine._passes.incarnations.hears(replaced.member_id))
        assert not replaced.is_unproven
        await cluster.equal()
        await cluster.stop()

    run(scenario())
