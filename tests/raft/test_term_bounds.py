"""Terms that no cluster comes to by elections: refused wherever one enters, and never stored."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.clock import ManualClock
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import INTEGER_MAX, Message
from coordinator.raft.rejoin.recovering import RecoveryStage
from coordinator.raft.rejoin.trust import KEPT_MS, LOG_INTERVAL_MS, Alarms
from coordinator.raft.term_bounds import (
    FIELDS,
    NOT_BOUNDED,
    TERM_JUMP_MAX,
    TERM_MAX,
    NamedTerms,
    why_not_believed,
)
from tests.raft.network.message_table import EXAMPLES
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run

WITH_TERMS = [
    (message, name)
    for message in EXAMPLES
    for name in message._fields
    if "term" in name and (type(message), name) not in NOT_BOUNDED
]


def test_every_term_of_every_kind_is_looked_at() -> None:
    """By the names of the fields; entries carry theirs inside."""
    for message, name in WITH_TERMS:
        assert message._fields.index(name) in FIELDS[type(message)]
    assert all(why_not_believed(message, 1) == "" for message in EXAMPLES)


def with_term(message: Message, name: str, term: int) -> Message:
    """Return ``message`` with one term changed, and the others so that they fit."""
    changed: Message = message._replace(**{name: term})
    if name in ("prev_term", "last_term"):
        changed = changed._replace(term=term)  # type: ignore[call-arg]
    if isinstance(changed, say.Append):
        changed = changed._replace(entries=())
    return changed


@pytest.mark.parametrize(
    ("message", "name"), WITH_TERMS, ids=[f"{type(m).__name__}.{n}" for m, n in WITH_TERMS]
)
def test_a_jump_of_terms_is_bounded(message: Message, name: str) -> None:
    """Up to the bound a member that was away for long is met; one more is a lie."""
    for own, highest in ((5, 5 + TERM_JUMP_MAX), (TERM_MAX - 1, TERM_MAX)):
        assert why_not_believed(with_term(message, name, highest), own) == ""
        assert "no cluster gets there" in why_not_believed(
            with_term(message, name, highest + 1), own
        )


def append_after(prev_term: int, *entries: tuple[int, bytes]) -> say.Append:
    """Return what the leader of term 3 sends behind an entry of ``prev_term``."""
    return say.Append(
        term=3, epoch=1, commit_index=0, prev_index=5, prev_term=prev_term, entries=entries
    )


@pytest.mark.parametrize(
    ("append", "why"),
    [
        (append_after(2, (2, b"x"), (3, b"x")), ""),
        (append_after(2, (1, b"x")), "an entry of term 1 after one of term 2"),
        (append_after(2, (3, b"x"), (2, b"x")), "an entry of term 2 after one of term"),
        (append_after(2, (4, b"x")), "as the leader of term 3, an entry of term 4"),
        (append_after(4), "as the leader of term 3, an entry of term 4"),
    ],
)
def test_entries_are_of_no_later_term_than_their_leader(append: say.Append, why: str) -> None:
    """An entry is stored with its term, which counts as this member's after a restart."""
    found = why_not_believed(append, 3)

    assert why in found
    assert bool(found) == bool(why)


def test_no_candidate_has_a_later_entry_than_its_term() -> None:
    """It would win against everybody."""
    assert why_not_believed(say.VoteRequest(term=3, last_index=9, last_term=4), 3) != ""
    assert why_not_believed(say.PreVoteRequest(term=3, last_index=9, last_term=4), 3) != ""


@pytest.mark.parametrize(
    ("message", "name"), WITH_TERMS, ids=[f"{type(m).__name__}.{n}" for m, n in WITH_TERMS]
)
def test_a_running_cluster_does_not_follow_a_lie(message: Message, name: str) -> None:
    """An admitted member that lies once, or for a while, leaves no trace behind."""

    async def live() -> None:
        cluster = await SimulatedCluster(3, seed=2).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        liar = cluster.others(leader)[0]
        for victim in cluster.others(liar):
            lie = with_term(message, name, INTEGER_MAX)
            victim.transport.listener.on_message(liar.member_id, lie)
            assert (victim.member_id, liar.member_id) in cluster.network.drops
            assert "no cluster gets there" in victim.engine.status().alarms[liar.member_id]
            assert victim.engine.metrics()["alarms_raised_total"] == 1
        await asyncio.sleep(1)

        leader = await cluster.leader()
        await leader.engine.propose(b"after")
        assert await cluster.equal() == [b"before", b"after"]
        assert all(each.term < 10 for each in cluster.members)
        assert not any(each.failures for each in cluster.members)
        await cluster.stop()

    run(live())


def test_a_lying_claim_costs_an_election_and_no_member() -> None:
    """The leader steps down, and what was acknowledged stays."""

    async def live() -> None:
        cluster = await SimulatedCluster(3, seed=6).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        liar, _ = cluster.others(leader)
        claim = say.Append(
            term=leader.term, epoch=1, commit_index=0, prev_index=1, prev_term=0, entries=()
        )

        leader.transport.listener.on_message(liar.member_id, claim)

        assert leader.engine.status().alarms
        again = await cluster.leader()
        await again.engine.propose(b"after")
        assert await cluster.equal() == [b"before", b"after"]
        assert not any(each.failures for each in cluster.members)
        await cluster.stop()

    run(live())


@pytest.mark.parametrize("lies", [1, 2])
def test_a_member_that_missed_a_lie_about_a_term_comes_back_with_an_empty_disk(lies: int) -> None:
    """What so many others name as hear of a vote that was forgotten is no lie of one of them."""

    async def live() -> None:
        cluster = await SimulatedCluster(3, seed=2).start()
        await (await cluster.leader()).engine.propose(b"before")
        away, *others = cluster.members
        await away.kill()
        for _ in range(lies):
            term = max(each.term for each in others)
            for each, liar in zip(others, reversed(others), strict=True):
                lie = say.TermNotice(term + TERM_JUMP_MAX)
                each.transport.listener.on_message(liar.member_id, lie)
            leader = await cluster.leader(others)
            await leader.engine.propose(b"after a lie")

        await away.lose_disk()
        await away.start()
        await cluster.until(lambda: not away.is_unproven, 20_000)

        assert len(await cluster.equal()) == 1 + lies
        assert away.term == (await cluster.leader()).term > lies * TERM_JUMP_MAX
        await cluster.stop()

    run(live())


def stage_of(member: Member) -> RecoveryStage:
    passes = member.engine._passes
    assert passes is not None
    return passes.consensus.recovering.stage


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_member_with_an_empty_disk_asks_for_a_term_that_only_the_leader_names(count: int) -> None:
    """Followers say nothing to each other, and who recovers stands in no election."""

    async def live() -> None:
        cluster = await SimulatedCluster(count, seed=4).start()
        await (await cluster.leader()).engine.propose(b"before")
        away, *others = cluster.members
        await away.kill()
        await away.lose_disk()
        await away.start()
        await cluster.until(lambda: stage_of(away) is RecoveryStage.JOINING)
        await away.kill()
        for _ in range(2):
            term = max(each.term for each in others)
            for each, liar in zip(others, (*others[1:], others[0]), strict=True):
                lie = say.TermNotice(term + TERM_JUMP_MAX)
                each.transport.listener.on_message(liar.member_id, lie)
            await (await cluster.leader(others)).engine.propose(b"after a lie")
        await asyncio.sleep(5)  # nobody stands for election any more

        await away.start()

        await cluster.until(lambda: not away.is_unproven, 20_000)
        assert len(await cluster.equal()) == 3
        await cluster.stop()

    run(live())


def test_a_member_that_was_away_for_two_lies_follows_what_all_others_name() -> None:
    """Its disk is whole: the bound is the same for everybody."""

    async def live() -> None:
        cluster = await SimulatedCluster(3, seed=3).start()
        await (await cluster.leader()).engine.propose(b"before")
        away, *others = cluster.members
        await away.kill()
        for _ in range(2):
            term = max(each.term for each in others)
            for each, liar in zip(others, reversed(others), strict=True):
                lie = say.TermNotice(term + TERM_JUMP_MAX)
                each.transport.listener.on_message(liar.member_id, lie)
            await (await cluster.leader(others)).engine.propose(b"after a lie")

        await away.start()

        assert len(await cluster.equal(20_000)) == 3
        await cluster.stop()

    run(live())


@pytest.mark.parametrize(("count", "needed"), [(2, 2), (3, 2), (4, 2), (5, 3), (7, 4)])
def test_a_term_beyond_the_bound_needs_so_many_who_name_it(count: int, needed: int) -> None:
    """One liar, however high and often, moves nothing; nor do the lower ones of several."""
    named = NamedTerms(count)
    high = 5 + 3 * TERM_JUMP_MAX
    for _ in range(10):
        named.note("liar", TERM_MAX)
    for number in range(needed - 2):
        named.note(f"member {number}", high)
    assert named.highest_believed == 0

    named.note("another", high)

    assert named.highest_believed == high


def test_alarms_are_told_once_a_minute_and_kept_for_ten(caplog: pytest.LogCaptureFixture) -> None:
    """A liar floods neither the log nor the memory."""
    clock = ManualClock()
    alarms = Alarms(clock)
    with caplog.at_level(logging.ERROR):
        for number in range(10_000):
            alarms.add("2", f"says {number}")
        clock.advance(LOG_INTERVAL_MS)
        alarms.add("2", "says more")

    assert [each.message.split("; ")[0] for each in caplog.records] == [
        "ALARM: member 2 says 0", "ALARM: member 2 says more",
    ]  # fmt: skip
    assert alarms.all() == {"2": "member 2 says more"}
    assert alarms.raised_total == 10_001
    clock.advance(KEPT_MS + 1)
    assert alarms.all() == {}
