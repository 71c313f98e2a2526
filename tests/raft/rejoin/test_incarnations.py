"""An older copy of a member's data, put back, is told from the newest by those who met that one."""

from __future__ import annotations

import asyncio
import errno
import random

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.errors import StorageError
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.rejoin import incarnation_record as incarnations
from coordinator.raft.rejoin.incarnation_record import (
    INCARNATIONS_KEPT,
    NO_PROOF_IS_LATER,
    IncarnationRecord,
    Met,
    is_older_copy,
    knows,
    load,
    save,
)
from coordinator.raft.rejoin.incarnations import INCARNATION_MS
from coordinator.raft.rejoin.recovering import Proof
from tests.raft.simulated_cluster import Member, SimulatedCluster, settled
from tests.raft.simulated_loop import run
from tests.raft.storage.simulated_disk import SimulatedDisk


def a_record(count: int, seed: int = 0) -> IncarnationRecord:
    draw = random.Random(seed)
    record = IncarnationRecord()
    for _ in range(count):
        record.begin(draw.randbytes(8))
    return record


@pytest.mark.parametrize(
    ("behind", "expected"), [(0, True), (1, True), (INCARNATIONS_KEPT - 1, True), (5_000, True)]
)
def test_a_member_knows_its_own_incarnations(behind: int, expected: bool) -> None:
    """The last ones by their ids, those long ago by their number alone."""
    draw = random.Random(0)
    ids = [draw.randbytes(8) for _ in range(10_000)]
    record = a_record(10_000)
    number = record.number - behind
    met = Met(number=number, incarnation_id=ids[number - 1], proof=Proof(1, 1))

    assert knows(record.number, record.ids, met) is expected


@pytest.mark.parametrize("count", [INCARNATIONS_KEPT - 1, INCARNATIONS_KEPT, INCARNATIONS_KEPT + 1])
def test_ids_decide_as_far_as_they_are_kept_and_numbers_beyond(count: int) -> None:
    """The very last id that is kept still tells apart two incarnations of that number."""
    draw = random.Random(1)
    ids = [draw.randbytes(8) for _ in range(count)]
    record = a_record(count, seed=1)
    record.life_id = ids[0]
    kept = min(count, INCARNATIONS_KEPT)
    oldest = count - kept + 1

    assert record.ids == ids[-kept:]
    assert knows(
        count, record.ids, Met(number=oldest, incarnation_id=ids[oldest - 1], proof=Proof(1, 1))
    )
    assert not knows(
        count, record.ids, Met(number=oldest, incarnation_id=b"another!", proof=Proof(1, 1))
    )
    assert knows(
        count, record.ids, Met(number=oldest - 1, incarnation_id=b"another!", proof=Proof(1, 1))
    )
    for life_id, expected in ((ids[0], False), (b"another!", True)):
        met = Met(
            number=oldest - 1, incarnation_id=b"before!!", proof=NO_PROOF_IS_LATER, life_id=life_id
        )
        assert is_older_copy(count, record.ids, ids[0], Proof(2, 2), met) is expected


def test_a_member_does_not_know_what_began_after_the_copy() -> None:
    """Neither a later number, nor the same number with another id, however often it was started."""
    copy = a_record(10)
    newest = IncarnationRecord(copy.number, list(copy.ids))
    newest.begin(b"newer one")
    met = Met(number=newest.number, incarnation_id=b"newer on", proof=Proof(1, 1))

    for _ in range(INCARNATIONS_KEPT):
        assert not knows(copy.number, copy.ids, met)
        copy.begin(b"another ")


@pytest.mark.parametrize(
    ("proof", "met_proof", "expected"),
    [
        ((3, 10), (3, 9), False),
        ((4, 1), (3, 9), False),
        ((1, 0), (0, 0), False),
        ((3, 9), (3, 9), True),
        ((3, 8), (3, 9), True),
        ((2, 99), (3, 9), True),
        ((0, 0), (0, 0), True),
        ((0, 0), (1, 0), True),
        ((99, 99), NO_PROOF_IS_LATER, True),
    ],
)
def test_of_two_lives_the_one_proven_with_more_is_the_later(
    proof: tuple[int, int], met_proof: tuple[int, int], expected: bool
) -> None:
    """Where neither knows the incarnations of the other; who is not later is accused."""
    met = Met(number=7, incarnation_id=b"of then!", proof=Proof(*met_proof))

    assert is_older_copy(2, [b"one now!", b"two now!"], b"life now", Proof(*proof), met) is expected
    is_less = proof < met_proof != NO_PROOF_IS_LATER
    assert is_older_copy(8, [b"of then!", b"two now!"], b"life now", Proof(*proof), met) is is_less


@pytest.mark.parametrize(
    ("life_id", "proof", "met", "expected"),
    [
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=Proof(1, 8), life_id=b"of then!"),
            True,
        ),
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER, life_id=b"of then!"),
            True,
        ),
        (
            b"life now",
            Proof(1, 8),
            Met(number=1, incarnation_id=b"one now!", proof=Proof(1, 8), life_id=b"life now"),
            False,
        ),
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER, life_id=b"life now"),
            False,
        ),
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER),
            True,
        ),
        (
            b"",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER),
            True,
        ),
    ],
)
def test_a_number_far_ahead_decides_within_one_life_only(
    life_id: bytes, proof: Proof, met: Met, expected: bool
) -> None:
    """They begin anew with each: an old disk may be hundreds of incarnations ahead."""
    ids = [b"of then!"] * INCARNATIONS_KEPT

    assert is_older_copy(9_000, ids, life_id, proof, met) is expected


def test_what_was_noted_without_a_proof_or_a_life_is_read_as_of_a_first_life() -> None:
    """Of its own life it has an id with the next incarnation, and ever after."""
    disk = SimulatedDisk()
    disk.make_directory("data")
    met = {"2": (7, b"8 bytes?"), "3": (8, b"8 bytes?", (4, 900))}
    save(disk, "data", incarnations.msgpack.packb((1, [b"8 bytes!"], met)))

    record = load(disk, "data")

    assert record.met == {
        "2": Met(number=7, incarnation_id=b"8 bytes?", proof=Proof(0, 0)),
        "3": Met(8, *met["3"][1:]),
    }
    assert (record.life_id, record.begun(b"9 bytes!").life_id) == (b"", b"9 bytes!")
    assert record.begun(b"9 bytes!").begun(b"another ").life_id == b"9 bytes!"


def test_what_is_noted_is_there_again_and_damage_is_refused() -> None:
    """Every byte counts: a member that cannot tell what it has forgotten does not start."""
    disk = SimulatedDisk()
    disk.make_directory("data")
    met = {"2": Met(number=7, incarnation_id=b"8 bytes?", proof=Proof(4, 900), life_id=b"its life")}
    record = IncarnationRecord(number=3, ids=[b"8 bytes!"] * 3, met=met, life_id=b"one life")
    assert load(disk, "data") == IncarnationRecord()
    save(disk, "data", incarnations.packed(record))
    disk.crash()

    assert load(disk, "data") == record
    for offset in range(len(disk.read(f"data/{incarnations.NAME}"))):
        damaged = disk.copy()
        damaged.flip(f"data/{incarnations.NAME}", offset)
        with pytest.raises(StorageError, match="must be replaced"):
            load(damaged, "data")


@pytest.mark.parametrize(
    "content",
    [7, [], [1], ["1", [], {}], [1, 2, {}], [1, [2], {}], [-1, [], {}], [1, [], {"2": [1]}],
     [1, [], {"2": [1, b"", [1, 2, 3]]}], [1, [], {"2": ["", b""]}], [1, [], [2]],
     [1, [], {}, 5], [1, [], {2: [1, b""]}]],
)  # fmt: skip
def test_other_values_under_a_sound_checksum_are_damage(content: object) -> None:
    """Who wrote them may write the directory, but gets no further than this refusal."""
    disk = SimulatedDisk()
    disk.make_directory("data")
    save(disk, "data", msgpack.packb(content))

    with pytest.raises(StorageError, match="must be replaced"):
        load(disk, "data")


async def start_again(cluster: SimulatedCluster, *members: Member) -> None:
    for member in members:
        await member.start()


@pytest.mark.parametrize("seed", range(10))
def test_an_old_copy_elects_nobody_though_everybody_forgot_what_they_knew_in_memory(
    seed: int,
) -> None:
    """One was away while the two others committed; those two and the cluster end, and one of them
    comes back as it was before. The one that was away must not be elected with its vote."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3, seed)
        await cluster.start()
        leader = await cluster.leader()
        restored, away = cluster.others(leader)
        await leader.engine.propose(b"before")
        await cluster.equal()
        await away.kill()
        await restored.kill()
        old = restored.disk.copy()
        await restored.start()
        for number in range(5):
            await leader.engine.propose(b"%d" % number)
        await cluster.equal()
        await leader.kill()
        await restored.kill()

        restored.disk = old
        await start_again(cluster, restored, away, leader)

        await cluster.until(lambda: restored.is_unproven)
        assert (await cluster.leader()) is leader
        assert len(await cluster.equal()) == 6
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.stop()

    run(scenario())


def test_a_copy_taken_while_the_member_ran_is_found_out_a_minute_later() -> None:
    """A backup of a running member, put back after some minutes, all having been started anew."""

    async def scenario() -> None:
        cluster, leader = await settled()
        restored = cluster.others(leader)[0]
        old = restored.disk.copy()
        for number in range(3):
            await asyncio.sleep(INCARNATION_MS / 1000)
            await leader.engine.propose(b"later %d" % number)
        await cluster.equal()
        await asyncio.sleep(1)
        for member in cluster.members:
            await member.kill()

        restored.disk = old
        for _ in range(3):  # however often it is started before it meets anybody
            await restored.start()
            await restored.kill()
        await start_again(cluster, *cluster.members)

        await cluster.until(lambda: restored.is_unproven)
        assert len(await cluster.equal()) == 8
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.stop()

    run(scenario())


def test_an_old_copy_that_leads_steps_down_when_it_meets_one_that_knows_better() -> None:
    """Beyond a minority of faults it can be elected; not for longer than it takes to be met."""

    async def scenario() -> None:
        cluster, leader = await settled()
        restored, away = cluster.others(leader)
        await restored.kill()
        old = restored.disk.copy()
        await away.kill()
        await restored.start()
        await leader.engine.propose(b"known to two")
        await cluster.equal()
        await leader.kill()
        await restored.kill()
        restored.disk = old
        await start_again(cluster, restored, away)
        await cluster.leader([restored, away])

        await leader.start()
        await cluster.until(lambda: restored.is_unproven)

        assert restored.engine.status().role is not Role.LEADER
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.stop()

    run(scenario())


def test_an_emptied_member_is_met_anew() -> None:
    """It knows none of its incarnations and says that it is recovering: it is taken as it is."""

    async def scenario() -> None:
        cluster, leader = await settled()
        emptied = cluster.others(leader)[0]
        await emptied.lose_disk()
        await emptied.start()

        await cluster.until(lambda: not emptied.is_unproven)
        for member in cluster.members:
            await member.kill()
        await start_again(cluster, *cluster.members)

        assert len(await cluster.equal()) == 5
        assert not emptied.is_unproven
        await cluster.stop()

    run(scenario())


async def lose_and_catch_up(cluster: SimulatedCluster, member: Member) -> None:
    """Its disk is replaced, and it is proven again, in a term or with an index it had not seen."""
    await member.lose_disk()
    await member.start()
    writer = next(each for each in cluster.members if each.is_leading)
    await writer.engine.propose(b"without the one that is away")
    await cluster.until(lambda: not member.is_unproven)


def test_one_that_was_away_does_not_accuse_those_that_were_replaced_meanwhile() -> None:
    """Found by the world of seed 70117: three of five had new disks, one after the other, and were
    proven again; then the fifth came back and took each for an old copy, so nobody could lead."""

    async def scenario() -> None:
        cluster, leader = await settled(5)
        away, *replaced = cluster.others(leader)
        await away.kill()
        for member in replaced:
            await lose_and_catch_up(cluster, member)
        accused = []
        cluster.network.on_message = lambda _source, target, message: (
            accused.append(target) or True if isinstance(message, say.IncarnationLost) else True
        )

        await away.start()
        await cluster.equal()
        await asyncio.sleep(1)

        assert accused == []
        assert not any(member.is_unproven for member in cluster.members)
        await leader.kill()
        await replaced[0].kill()
        await cluster.leader([away, *replaced[1:]])  # it counts on them, and they on it
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("cut_on", [say.VoteRequest, say.VoteGrant])
def test_one_that_was_away_since_the_first_election_accuses_nobody(
    cut_on: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It met all others while they recovered; none of those incarnations is kept."""
    monkeypatch.setattr(incarnations, "INCARNATIONS_KEPT", 8)  # 4,096 are days of writes

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        away: list[Member] = []

        def note(source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, cut_on) and not away:
                away_id = target if cut_on is say.VoteRequest else source
                away.append(cluster.members[int(away_id) - 1])
                cluster.network.isolate(away_id)
            return True

        cluster.network.on_message = note
        await cluster.start()
        await cluster.until(lambda: bool(away))
        (third,) = away
        rest = cluster.others(third)
        await (await cluster.leader(rest)).engine.propose(b"first")
        assert all(met.proof == Proof(0, 0) for met in load(third.disk, "data").met.values())
        await third.kill()
        for number in range(incarnations.INCARNATIONS_KEPT + 2):
            await asyncio.sleep(INCARNATION_MS / 1000 + 1)
            await (await cluster.leader(rest)).engine.propose(b"%d" % number)

        cluster.network.heal()
        await third.start()

        await cluster.equal()
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
        await cluster.stop()

    run(scenario())


def test_a_copy_of_before_the_replacement_is_found_out_by_those_who_met_the_life_after() -> None:
    """With the incarnations of before it had come further, and it was proven with less."""

    async def scenario() -> None:
        cluster, leader = await settled(5)
        restored, *_ = cluster.others(leader)
        for _ in range(4):
            await restored.kill()
            await restored.start()
            await cluster.equal()
        await restored.kill()
        old = restored.disk.copy()
        await lose_and_catch_up(cluster, restored)
        await cluster.equal()
        await asyncio.sleep(1)
        for member in cluster.members:
            await member.kill()

        restored.disk = old
        await start_again(cluster, *cluster.members)

        await cluster.until(lambda: restored.is_unproven)
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.equal()
        await cluster.stop()

    run(scenario())


def test_a_member_with_a_full_disk_can_be_started_again() -> None:
    """It goes on in its incarnation, and begins one when there is room."""

    async def scenario() -> None:
        cluster, leader = await settled()
        full = cluster.others(leader)[0]
        await full.kill()
        before = load(full.disk, "data").number
        full.disk.fill()

        await full.start()
        await asyncio.sleep(3)
        assert not full.failures
        assert load(full.disk, "data").number == before
        full.disk.capacity_bytes = None
        await cluster.until(lambda: load(full.disk, "data").number == before + 1)

        await leader.engine.propose(b"more")
        assert b"more" in await cluster.equal()
        assert not full.is_unproven
        await cluster.stop()

    run(scenario())


def test_a_incarnation_that_found_no_room_begins_though_another_note_found_none_either() -> None:
    """Whom it met is one note, its own incarnation another; the later of two attempts owes both."""

    async def scenario() -> None:
        cluster, leader = await settled()
        full, other = cluster.others(leader)
        await full.kill()
        await other.kill()
        before = load(full.disk, "data").number
        full.disk.fail("write", error=errno.ENOSPC, path_part="chapters", count=2)

        await full.start()
        await other.start()
        await asyncio.sleep(5)

        assert load(full.disk, "data").number == before + 1
        await cluster.stop()

    run(scenario())


def test_whom_a_member_met_without_room_is_noted_when_there_is_some() -> None:
    """What it counted on must be known in its next life."""

    async def scenario() -> None:
        cluster, leader = await settled()
        full, met = cluster.others(leader)
        await cluster.equal()
        full.disk.fail("write", error=errno.ENOSPC, path_part="chapters", count=3)
        await met.kill()
        await met.start()
        await asyncio.sleep(8)

        number = load(met.disk, "data").number
        assert load(full.disk, "data").met[met.member_id].number == number
        await cluster.stop()

    run(scenario())


def test_members_that_do_not_know_each_other_yet_ask_each_other_now_and_then() -> None:
    """While their disks note it an answer is no question: there would be no end to them."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        count = 0

        def see(_source: str, _target: str, message: say.Message) -> bool:
            nonlocal count
            count += isinstance(message, say.Incarnation)
            return True

        cluster.network.on_message = see
        cluster.network.delay_ms = (0.2, 0.2)
        for member in cluster.members:
            member.sync_ms = 1_000.0
            await member.start()
        await asyncio.sleep(0.5)

        assert 6 <= count < 100
        for member in cluster.members:
            await member.kill()

    run(scenario())


def test_members_started_again_and_again_are_never_accused() -> None:
    """Power cuts at any step of noting: what was shown is known after, always."""

    async def scenario() -> None:
        cluster, _ = await settled()
        draw = random.Random(1)
        for _ in range(150):
            member = draw.choice(cluster.members)
            if not member.is_up:
                await member.start()
            elif draw.random() < 0.3:
                member.disk.crash_at_step = member.disk.step_count + draw.randint(1, 9)
            else:
                await member.kill()
            await asyncio.sleep(draw.uniform(0.0, 0.3))
            for each in cluster.members:
                if each.is_up and each.failures:
                    await each.kill()
                    each.failures.clear()
                assert not each.is_unproven
        for member in cluster.members:
            member.disk.crash_at_step = None
            if not member.is_up:
                await member.start()
        assert len(await cluster.equal()) == 5
        await cluster.stop()

    run(scenario())


def test_a_incarnation_that_begins_while_a_leader_leads_sends_nothing_again() -> None:
    """Its followers have heard it all the time: what is under way to them is not lost."""

    async def scenario() -> None:
        cluster, leader = await settled()
        consensus = leader.engine._consensus
        assert consensus is not None
        followers = consensus.replication.followers.values()
        number, epochs = load(leader.disk, "data").number, [each.epoch for each in followers]

        for _ in range(150):
            await leader.engine.propose(b"more")
            await asyncio.sleep(1)

        assert load(leader.disk, "data").number >= number + 2
        assert [each.epoch for each in followers] == epochs
        await cluster.equal()
        await cluster.stop()

    run(scenario())


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


@pytest.mark.parametrize("seed", range(3))
def test_one_of_five_cut_off_at_the_first_election_comes_back_after_three_new_disks(
    seed: int,
) -> None:
    """It met the others before there was anything to lose, so no later life of theirs is in doubt;
    the cluster stood still for ever."""

    async def scenario() -> None:
        cluster = SimulatedCluster(5, seed=seed)
        away: list[Member] = []

        def note(source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, say.VoteRequest) and not away:
                away.append(cluster.members[int(target) - 1])
                cluster.network.isolate(target)
            return True

        cluster.network.on_message = note
        await cluster.start()
        await cluster.until(lambda: bool(away))
        (fifth,) = away
        rest = cluster.others(fifth)
        await (await cluster.leader(rest)).engine.propose(b"first")
        await cluster.until(lambda: not any(member.is_unproven for member in rest))
        for member in rest[:3]:
            await member.lose_disk()
            await member.start()
            await (await cluster.leader(rest)).engine.propose(b"for " + member.member_id.encode())
            await cluster.until(lambda: not any(each.is_unproven for each in rest))

        cluster.network.heal()
        await fifth.kill()
        await fifth.start()

        await (await cluster.leader()).engine.propose(b"all are there")
        await cluster.equal()
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
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
