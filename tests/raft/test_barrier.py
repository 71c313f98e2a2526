"""Quorum rounds: an answer confirms the rounds that had begun when it was asked for; none later."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import NoLeaderError
from coordinator.raft.barrier import QuorumRounds


async def test_an_answer_to_an_earlier_round_does_not_confirm_a_later_one() -> None:
    """Whoever asked after a member had answered must not be confirmed by that (thesis, 6.4)."""
    rounds = QuorumRounds(("2", "3"))
    earlier = await begin(rounds, commit_index=7)
    later = await begin(rounds, commit_index=9)

    rounds.on_reply("2", 1)

    assert await earlier == 7
    assert not later.done()
    rounds.on_reply("3", 1)
    await asyncio.sleep(0)
    assert not later.done(), "all have answered, and all before it began"
    rounds.on_reply("3", 2)
    assert await later == 9


async def test_an_answer_to_a_later_round_confirms_the_earlier_ones() -> None:
    """It was given after they all had begun, so a lost answer holds nobody up."""
    rounds = QuorumRounds(("2", "3", "4", "5"))
    waiting = [await begin(rounds, commit_index=index) for index in (1, 2, 3)]

    rounds.on_reply("2", 3)
    rounds.on_reply("3", 2)

    await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, True, False]


async def test_an_answer_to_a_round_that_never_began_counts_for_nothing() -> None:
    """A member that answers ahead of time, or again, confirms nothing."""
    rounds = QuorumRounds(("2", "3"))
    waiting = await begin(rounds, commit_index=1)

    rounds.on_reply("2", 5)

    await asyncio.sleep(0)
    assert not waiting.done()
    rounds.on_reply("2", 1)
    assert await waiting == 1


async def test_answers_to_a_leadership_that_ended_count_for_nothing() -> None:
    """Those who wait are refused; what comes afterwards confirms no round of the next term."""
    rounds = QuorumRounds(("2", "3"))
    waiting = await begin(rounds, commit_index=1)

    rounds.fail()
    next_one = await begin(rounds, commit_index=2)
    rounds.on_reply("2", 1)

    with pytest.raises(NoLeaderError):
        await waiting
    await asyncio.sleep(0)
    assert not next_one.done()


async def test_whom_an_answer_confirms_goes_on_in_the_next_pass() -> None:
    """One that asks alone waits for nothing else."""
    rounds = QuorumRounds(("2", "3"))
    waiting = await begin(rounds, commit_index=4)

    rounds.on_reply("3", 1)
    await asyncio.sleep(0)

    assert waiting.result() == 4


async def begin(rounds: QuorumRounds, *, commit_index: int) -> asyncio.Task[int]:
    """Ask, and begin the round that answers."""
    waiting = asyncio.create_task(rounds.join().wait())
    await asyncio.sleep(0)
    rounds.begin(commit_index)
    return waiting
