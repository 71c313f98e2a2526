"""Members compare their states while they run; one that differs is found and answers nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from coordinator.errors import CoordinatorError, NoLeaderError, ShuttingDownError
from coordinator.model.events import WatchSelector
from coordinator.service.comparing.digest_messages import (
    FORMAT,
    SLICES_AT_ONCE_MAX,
    decode_digests,
    decode_question,
)
from coordinator.service.comparing.divergence import (
    DIGEST_KIND,
    DOUBT_MS,
    SLICE_EVERY_MS,
    Comparison,
    judge,
)
from coordinator.service.reads.reads import LINEARIZABLE, STALE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    Create,
    CreateMode,
    Enter,
    Kind,
    Multi,
    RequestId,
    SetData,
)
from coordinator.state.machine import StateMachine
from coordinator.state.packing import pack, unpack
from coordinator.state.remembered import kept_of, recalled
from coordinator.state.slices import BYTES_MAX
from tests.service.fake_cluster import STEP_MS, World, cluster, counted, soon
from tests.state.values import changed

FOUND_WITHIN_MS = 10_000

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def machine_of(world: World, member_id: str) -> Any:
    return world.members[member_id]._replica.machine


async def filled(world: World) -> None:
    """Give the cluster one of everything, and wait until every member has it."""
    leader, deadline = world.leader, world.deadline()
    opened = await leader.open_session(3_600_000, "worker", None, deadline)
    operations: list[Any] = [
        Create("/app", data=b"data", mode=CreateMode.PERSISTENT),
        Create("/app/config", data=b"first", mode=CreateMode.PERSISTENT),
        SetData("/app/config", b"second"),
        Enter(
            ("/locks/a",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id=opened.session_id,
            data=b"who",
            owner="t1",
        ),
        Enter(
            ("/locks/a",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id=opened.session_id,
            data=b"who",
            owner="t2",
        ),
    ]
    for number, operation in enumerate(operations, 1):
        request = RequestId("client", number=number, floor_index=0)
        await leader.proposer.submit(operation, RequestContext(request, deadline))


async def grown(world: World, numbers: range, folder: str = "/app", *, slices: int = 1) -> None:
    """Create a znode of each number, whose data take so many slices."""
    for number in numbers:
        await world.leader.proposer.submit(
            Create(f"{folder}/n{number}", bytes(slices * BYTES_MAX)),
            RequestContext(None, world.deadline()),
        )


# --- what may be different: changed by hand in the live object


def znode_data(machine: StateMachine, data: bytes = b"rotten") -> None:
    znodes = machine._tree._znodes
    znodes["/app/config"] = structs.replace(znodes["/app/config"], data=data)


def session_timeout(machine: StateMachine) -> None:
    sessions = machine._sessions._sessions
    key = next(iter(sessions))
    sessions[key] = replace(sessions[key], timeout_ms=sessions[key].timeout_ms + 1)


def contender(machine: StateMachine) -> None:
    contenders = machine._locks.contenders
    path = list(contenders)[-1]
    contenders[path] = contenders[path].but(owner="t3")


def remembered_outcome(machine: StateMachine) -> None:
    record = machine._requests._free["client"]
    first = recalled(record.outcomes[1])
    record.outcomes[1] = kept_of(changed(first, zxid=first.zxid + 1))


def counter(machine: StateMachine) -> None:
    machine._tree.sequence_floor += 1


def limit(machine: StateMachine) -> None:
    record = machine._limits_record
    machine._limits_record = replace(record, limits=replace(record.limits, children_max=7))


def missing_name(machine: StateMachine) -> None:
    machine._tree._children["/app"].clear()


NAMED: dict[Callable[[StateMachine], None], str] = {
    znode_data: "(znodes / to /locks/a/lock-0000000001)",
    session_timeout: "(sessions)",
    contender: "(znodes / to /locks/a/lock-0000000001)",
    remembered_outcome: "(remembered requests of clients without a session)",
    counter: "(counters and limits)",
    limit: "(counters and limits)",
    missing_name: "(znodes / to",
}


# --- the judgement


@pytest.mark.parametrize(
    ("digests", "member_count", "comparison", "common"),
    [
        ({"1": A}, 3, Comparison.AGREED, A),
        ({"1": A, "2": A, "3": A}, 3, Comparison.AGREED, A),
        ({"1": A, "2": B, "3": B}, 3, Comparison.DIFFERENT, B),
        ({"1": A, "2": B}, 3, Comparison.UNDECIDED, A),
        ({"1": A, "2": B}, 2, Comparison.NO_QUORUM, A),
        ({"1": A, "2": B, "3": C}, 3, Comparison.NO_QUORUM, A),
        ({"1": A, "2": A, "3": B}, 5, Comparison.UNDECIDED, A),
        ({"1": A, "2": A, "3": A, "4": B}, 5, Comparison.DIFFERENT, A),
        ({"1": A, "2": A, "3": B, "4": B, "5": C}, 5, Comparison.NO_QUORUM, A),
        ({"1": A, "2": A, "3": B, "4": B}, 4, Comparison.NO_QUORUM, A),
    ],
)
def test_who_is_right(
    digests: dict[str, bytes], member_count: int, comparison: Comparison, common: bytes
) -> None:
    """Only what a quorum of all members has is right, whoever answered."""
    assert judge(digests, member_count) == (comparison, common)


# --- found


@pytest.mark.parametrize("plant", NAMED)
@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_a_member_that_differs_is_found(
    plant: Callable[[StateMachine], None], who: str
) -> None:
    """Within ten seconds, with nothing written meanwhile; it is that one, and no other stops."""
    async with cluster(3) as world:
        await filled(world)
        await world.advance(2_000)
        member_id = "1" if who == "leader" else "2"
        log_length = len(world.log)

        plant(machine_of(world, member_id))
        await world.advance(FOUND_WITHIN_MS)

        stopped = [each for each, engine in world.engines.items() if engine.halted]
        assert stopped == [member_id]
        assert len(world.log) == log_length
        halted = world.engines[member_id].halted
        assert halted is not None
        assert "replace its data directory" in halted[1]
        assert NAMED[plant] in halted[1]


@pytest.mark.parametrize("who", [("1", "2"), ("2", "3"), ("4", "5")])
async def test_two_of_five_that_differ_are_found_under_load(who: tuple[str, ...]) -> None:
    """Each in its own way, the leader too, while every part of the state is written."""
    async with cluster(5) as world:
        await filled(world)
        for member_id, plant in zip(who, (znode_data, limit), strict=True):
            plant(machine_of(world, member_id))
        for number in range(FOUND_WITHIN_MS // 100):
            for path in (f"/app/n{number}", f"/m{number}"):
                await write_if_led(world, path)
            await world.advance(100)

        stopped = [each for each, engine in world.engines.items() if engine.halted]
        assert stopped == list(who)
        assert len(world.log) > FOUND_WITHIN_MS // 100, "there was load"


async def write_if_led(world: World, path: str) -> None:
    """A leader that was found leads no more; the quorum elects one that was not."""
    if world.leader_id is None:
        world.elect(next(each for each, engine in world.engines.items() if not engine.halted))
    with suppress(CoordinatorError):
        await soon(
            world.leader.proposer.submit(Create(path), RequestContext(None, world.deadline(1_000)))
        )


async def test_a_difference_in_a_large_state_is_found_as_soon_as_a_small_one() -> None:
    """Also one that has just grown from ten slices to fifty: it waits for no slow round."""
    async with cluster(3) as world:
        await filled(world)
        await grown(world, range(10))
        await world.advance(5_000)
        await grown(world, range(10, 50))
        rotten = machine_of(world, "2")._tree._znodes
        data = bytes(BYTES_MAX - 1) + b"x"
        rotten["/app/n9"] = structs.replace(rotten["/app/n9"], data=data)  # the last one

        await world.advance(FOUND_WITHIN_MS)

        stopped = [each for each, engine in world.engines.items() if engine.halted]
        assert stopped == ["2"]


@pytest.mark.parametrize(("count", "asked_times"), [(6, 4), (50, 2)])
async def test_slices_that_are_asked_again_do_not_make_the_round_longer(
    count: int, asked_times: int
) -> None:
    """Under load a member has often passed the index, up to three times for each slice."""
    async with cluster(3) as world:
        await grown(world, range(count), "")
        busy, number = world.engines["2"], 0
        answer = busy._handlers[DIGEST_KIND]

        async def often_past_it(member_id: str, payload: bytes) -> bytes:
            nonlocal number
            number += 1
            return await answer(member_id, payload) if number % asked_times == 0 else b""

        busy.on_request(DIGEST_KIND, often_past_it)
        await world.advance(10_000)
        rounds = counted(world.leader, "state_rounds_total")

        await world.advance(30_000)

        assert counted(world.leader, "state_slices_missed_total") > 30
        assert counted(world.leader, "state_rounds_total") - rounds >= 3


async def test_what_is_counted_wrongly_is_found_in_the_next_slice() -> None:
    """As after an entry that came to something else on one member; the round is far from over."""
    async with cluster(3) as world:
        await filled(world)
        await grown(world, range(60))
        await world.advance(20_000)

        machine_of(world, "2")._tree.data_bytes += 1
        await world.advance(500)

        assert [each for each, engine in world.engines.items() if engine.halted] == ["2"]


async def test_while_nothing_is_written_a_question_is_for_several_slices() -> None:
    """For what is due in 0.4 s, at the same pace; for one as soon as entries come."""
    async with cluster(3) as world:
        await grown(world, range(60), "")
        follower, counts = world.engines["2"], []
        answer = follower._handlers[DIGEST_KIND]

        async def seen(member_id: str, payload: bytes) -> bytes:
            counts.append(decode_question(payload).count)
            return await answer(member_id, payload)

        follower.on_request(DIGEST_KIND, seen)
        await world.advance(20_000)
        assert set(counts[-10:]) == {3}, "61 slices in seven seconds, but for the end of a round"
        rounds = counted(world.leader, "state_rounds_total")
        await world.advance(21_000)
        assert 2 <= counted(world.leader, "state_rounds_total") - rounds <= 4

        counts.clear()
        for number in range(60, 80):
            await grown(world, range(number, number + 1), "")
            await world.advance(100)
        assert len(counts) > 5
        assert set(counts[1:]) == {1}


@pytest.mark.parametrize("path", ["/n17", "/n18", "/n19"])
async def test_what_a_member_had_no_turn_for_is_asked_again(path: str) -> None:
    """Entries end what it takes for one question, always behind the first slice here."""
    async with cluster(3) as world:
        await grown(world, range(60), "")
        busy = world.engines["2"]
        answer = busy._handlers[DIGEST_KIND]

        async def first_only(member_id: str, payload: bytes) -> bytes:
            return pack(unpack(await answer(member_id, payload))[:1])

        busy.on_request(DIGEST_KIND, first_only)
        await world.advance(20_000)
        assert not any(engine.halted for engine in world.engines.values())
        rotten = machine_of(world, "2")._tree._znodes
        data = bytes(BYTES_MAX - 1) + b"x"
        rotten[path] = structs.replace(rotten[path], data=data)

        await world.advance(FOUND_WITHIN_MS)

        assert [each for each, engine in world.engines.items() if engine.halted] == ["2"]


@pytest.mark.parametrize(
    "answer",
    [b"\xc1", pack(()), pack((b"x" * 7,)), pack(("a" * 8,)), pack((A,) * (SLICES_AT_ONCE_MAX + 1))],
)
def test_an_answer_that_is_none_counts_as_none(answer: bytes) -> None:
    """Another member may say anything; an empty one says that it was past the index."""
    assert decode_digests(answer) is None
    assert decode_digests(b"") == ()
    assert decode_digests(pack((A, B))) == (A, B)


@pytest.mark.check
async def test_a_very_large_state_costs_no_more_in_a_second() -> None:
    """What has more slices than a round of seven seconds takes 50 ms for each, and says so."""
    async with cluster(3) as world:
        await filled(world)
        await grown(world, range(120), slices=2)
        await world.advance(30_000)
        rounds = counted(world.leader, "state_rounds_total")
        compared = counted(world.leader, "state_slices_compared_total")

        await world.advance(40_000)

        count = counted(world.leader, "state_rounds_total") - rounds
        slice_count = counted(world.leader, "state_slices_compared_total") - compared
        assert 0.9 * 40_000 / SLICE_EVERY_MS <= slice_count <= 1.02 * 40_000 / SLICE_EVERY_MS
        assert count == 3, "240 slices each"
        round_s = counted(world.leader, "state_round_seconds")
        assert 0.9 * round_s <= 240 * SLICE_EVERY_MS / 1_000 <= 1.1 * round_s


async def test_a_round_of_small_znodes_takes_its_seven_seconds() -> None:
    """The state says beforehand that it has more slices than it turns out to have."""
    async with cluster(3) as world:
        for folder in range(16):
            paths = [f"/f{folder}", *[f"/f{folder}/{number}" for number in range(999)]]
            await world.leader.proposer.submit(
                Multi(tuple([Create(path, bytes(100)) for path in paths])),
                RequestContext(None, world.deadline()),
            )

        await world.advance(25_000)

        assert machine_of(world, "1").slice_count > 9
        assert 6.5 <= counted(world.leader, "state_round_seconds") <= 7.5
        former = world.leader
        world.elect("2")
        await world.advance(1_000)
        assert counted(former, "state_round_seconds") == 0


async def test_a_busy_member_makes_up_for_a_little_and_not_for_more() -> None:
    """After a stop of ten seconds the round goes on at its pace, but for half a second of it."""
    async with cluster(3) as world:
        await filled(world)
        await grown(world, range(60))
        await world.advance(20_000)
        world.clock.advance(10_000)
        before = counted(world.leader, "state_slices_compared_total")

        await world.advance(2_000)

        count = counted(world.leader, "state_slices_compared_total") - before
        assert 15 <= count <= 30, "not those of ten seconds, which are 85"


async def test_members_that_agree_compare_all_the_time_and_write_nothing() -> None:
    """The whole state is gone through once in five seconds, and no entry is made for it; once in a
    second while something is written."""
    async with cluster(3) as world:
        await filled(world)
        log_length = len(world.log)

        await world.advance(10_000)

        calm = counted(world.leader, "state_rounds_total")
        assert 2 <= calm <= 4
        assert counted(world.leader, "state_slices_different_total") == 0
        assert len(world.log) == log_length
        for number in range(10):
            await world.leader.proposer.submit(
                Create(f"/app/{number}", b""), RequestContext(None, world.deadline())
            )  # fmt: skip
            await world.advance(1_000)
        assert counted(world.leader, "state_rounds_total") - calm >= 8
        assert not any(engine.halted for engine in world.engines.values())


async def test_a_member_that_differs_answers_nothing_more_and_says_why() -> None:
    """No read, write, heartbeat or watch; its status says in a sentence what to do."""
    async with cluster(3) as world:
        await filled(world)
        member, deadline = world.members["2"], world.deadline()
        session = next(iter(machine_of(world, "2").sessions()))
        stream = member.watches.watch([WatchSelector("/app")])

        znode_data(machine_of(world, "2"))
        await world.advance(FOUND_WITHIN_MS)

        for mode in (LINEARIZABLE, STALE):
            with pytest.raises(ShuttingDownError, match="its state differs from that of members"):
                await soon(member.get("/app", mode, deadline))
        with pytest.raises(ShuttingDownError):
            await soon(member.proposer.submit(Create("/x"), RequestContext(None, deadline)))
        with pytest.raises(ShuttingDownError):
            await soon(member.heartbeat(session.session_id, deadline))
        with pytest.raises(ShuttingDownError):
            member.watches.watch([WatchSelector("/app")])
        assert await soon(anext(stream, None)) is None
        status = member.status()
        assert not status.is_ready
        assert "its state differs from that of members 1, 3" in status.summary
        assert "(znodes / to /locks/a/lock-0000000001)" in status.summary
        assert "replace its data directory" in status.summary
        assert counted(member, "has_diverged") == 1


async def test_the_others_go_on() -> None:
    """Two of three that agree take writes and reads, when one of them leads."""
    async with cluster(3) as world:
        await filled(world)
        znode_data(machine_of(world, "1"))
        await world.advance(FOUND_WITHIN_MS)
        assert world.leader_id is None

        world.elect("3")
        await world.leader.proposer.submit(Create("/x"), RequestContext(None, world.deadline()))

        reply = await world.leader.get("/app/config", LINEARIZABLE, world.deadline())
        assert reply.value[0] == b"second"
        await world.advance(FOUND_WITHIN_MS)
        assert not world.engines["2"].halted
        assert not world.engines["3"].halted


async def test_without_a_quorum_that_agrees_everybody_stops() -> None:
    """All three differ: nobody knows who is right; no data are condemned."""
    async with cluster(3) as world:
        await filled(world)
        znode_data(machine_of(world, "2"))
        counter(machine_of(world, "3"))
        znode_data(machine_of(world, "3"), b"other")
        await world.advance(FOUND_WITHIN_MS)

        halts = [engine.halted for engine in world.engines.values()]
        assert all(halts)
        assert [note for halt in halts if halt for _, note in [halt]] == ["", "", ""]
        assert "no quorum agrees" in world.members["1"].status().summary


async def test_two_of_three_that_differ_wait_for_the_third() -> None:
    """For a while; then both stop, for either may be wrong. With the third it is known at once."""
    async with cluster(3) as world:
        await filled(world)
        world.fault = lambda _from, to, kind: "unsent" if to == "3" else None
        znode_data(machine_of(world, "2"))
        await world.advance(DOUBT_MS // 2)
        assert not any(engine.halted for engine in world.engines.values())

        world.fault = lambda _from, _to, _kind: None
        await world.advance(DOUBT_MS // 2)
        assert [key for key, engine in world.engines.items() if engine.halted] == ["2"]

    async with cluster(3) as world:
        await filled(world)
        world.fault = lambda _from, to, kind: "unsent" if to == "3" else None
        znode_data(machine_of(world, "2"))
        await world.advance(FOUND_WITHIN_MS)
        assert [key for key, engine in world.engines.items() if engine.halted] == ["1", "2"]


async def test_a_doubt_that_comes_late_is_looked_into_at_once() -> None:
    """Also while nothing is written, when the next round has time."""
    async with cluster(3) as world:
        await filled(world)
        world.fault = lambda _from, to, kind: "frozen" if to == "3" else None
        znode_data(machine_of(world, "2"))
        for _ in range(FOUND_WITHIN_MS // STEP_MS):
            await world.advance(STEP_MS)
            if counted(world.leader, "state_slices_different_total"):
                break

        world.fault = lambda _from, _to, _kind: None
        await world.advance(3 * STEP_MS)

        assert [key for key, engine in world.engines.items() if engine.halted] == ["2"]


async def test_a_member_that_is_behind_answers_for_the_index_it_was_asked() -> None:
    """It is not different for being slow: it answers when it is there, or not at all."""
    async with cluster(3) as world:
        await filled(world)
        slow = world.engines["2"]
        slow.is_applying = False
        for number in range(5):
            await world.leader.proposer.submit(
                Create(f"/n{number}"), RequestContext(None, world.deadline())
            )
            await world.advance(1_000)
        slow.is_applying = True
        slow.catch_up()
        await world.advance(FOUND_WITHIN_MS)

        assert not any(engine.halted for engine in world.engines.values())
        assert counted(world.leader, "state_slices_different_total") == 0


async def test_a_member_on_which_nothing_is_heard_does_not_stop_the_round() -> None:
    """A stopped process answers nothing; the others are compared all the same."""
    async with cluster(3) as world:
        await filled(world)
        world.fault = lambda _from, to, kind: "frozen" if to == "3" else None
        await world.advance(10_000)

        assert counted(world.leader, "state_rounds_total") >= 2
        assert not any(engine.halted for engine in world.engines.values())


async def test_a_member_alone_has_nothing_to_compare() -> None:
    """It asks nobody and spends nothing on it."""
    async with cluster(1) as world:
        await filled(world)
        await world.advance(5_000)

        assert counted(world.leader, "state_slices_compared_total") == 0
        assert not world.requests


async def test_only_the_leader_is_told_digests() -> None:
    """Another member, or one of an older term, gets none, and rubbish changes nothing."""
    async with cluster(3) as world:
        await filled(world)
        handler = world.engines["2"]._handlers[DIGEST_KIND]
        begin = (0, -1, "", 0)
        question = pack((FORMAT, world.term, (len(world.log), begin), 1))
        (digest,) = unpack(await handler("1", question))
        assert len(digest) % 8 == 0
        with pytest.raises(NoLeaderError):
            await handler("3", question)
        with pytest.raises(NoLeaderError):
            await handler("1", pack((FORMAT, world.term + 1, (0, begin), 1)))
        for bad in (
            b"",
            b"\xc1",
            pack((FORMAT + 1, world.term, (1, begin), 1)),
            pack((FORMAT, 1, (1, (0, "", "", 0)), 1)),
            pack((FORMAT, 1, (1, begin), 0)),
            pack((FORMAT, 1, (1, begin), SLICES_AT_ONCE_MAX + 1)),
            pack((FORMAT, 1, (1, begin), "1")),
        ):
            with pytest.raises(Exception, match="cannot be read"):
                await handler("1", bad)
        with pytest.raises(Exception, match="expected a place"):
            await handler("1", pack((FORMAT, world.term, (len(world.log), (99, -1, "", 0)), 1)))
