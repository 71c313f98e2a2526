"""Who waits for an entry to be applied, and who does not any more."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import cast

from coordinator.errors import NoLeaderError
from coordinator.raft.consensus import Consensus
from coordinator.raft.engine import Role
from coordinator.raft.read_index import RETRY_MS, ReadIndex
from coordinator.raft.time_limit import GRAIN_S
from coordinator.waiting import AT_ONCE, in_turns
from tests.raft.simulated_loop import run

BEHIND = cast(
    Consensus,
    SimpleNamespace(
        core=SimpleNamespace(applied_index=0),
        following=SimpleNamespace(is_out_of_reach=lambda _index: False),
    ),
)


async def _never(_member_id: str, _kind: str, _payload: bytes) -> bytes:
    raise AssertionError("nobody is asked")


def waiting(reads: ReadIndex, index: int) -> asyncio.Task[None]:
    return asyncio.create_task(reads.wait_applied(BEHIND, index))


async def test_waits_that_were_given_up_are_let_go() -> None:
    """Also while the entry they waited for does not come; those who still wait are woken by it."""
    reads = ReadIndex("1", timeout_ms=1_000, ask=_never, wake=lambda: None)
    patient = [waiting(reads, index) for index in (3, 1, 2)]
    hasty = [waiting(reads, 1_000) for _ in range(1_000)]
    await asyncio.sleep(0)

    for each in hasty:
        each.cancel()
    await asyncio.wait(hasty)

    assert len(reads._waiters) <= 2 * len(patient)
    reads.on_applied(2)
    await asyncio.sleep(0)
    assert [each.done() for each in patient] == [False, True, True]
    reads.on_applied(3)
    await asyncio.wait(patient, timeout=1)
    assert all(each.done() for each in patient)


async def test_who_waits_for_one_thing_is_woken_some_in_a_pass() -> None:
    """What thousands wait for is no long step of the loop; they come in their order."""
    reads = ReadIndex("1", timeout_ms=1_000, ask=_never, wake=lambda: None)
    many = [waiting(reads, 1) for _ in range(3 * AT_ONCE)]
    await asyncio.sleep(0)
    done: list[int] = []

    reads.on_applied(1)
    for _ in range(6):
        await asyncio.sleep(0)
        done.append(sum(each.done() for each in many))

    passes = [after - before for before, after in itertools.pairwise([0, *done])]
    assert max(passes) == AT_ONCE
    assert done[-1] == len(many)


async def test_nothing_is_left_out_at_the_end_of_a_turn() -> None:
    """Whatever it is that comes next, None as well."""
    done: list[object] = []

    in_turns([1, 2, None, None, None], done.append, 2)
    assert done == [1, 2]
    await asyncio.sleep(0)
    assert done == [1, 2, None, None]
    await asyncio.sleep(0)
    assert done == [1, 2, None, None, None]


def test_many_readers_without_a_leader_ask_as_often_as_one() -> None:
    """Each asking by itself, again and again, would hold up the election they wait for."""
    asked = 0

    async def refuse(_member_id: str, _kind: str, _payload: bytes) -> bytes:
        nonlocal asked
        asked += 1
        raise NoLeaderError("not ready yet")

    follower = SimpleNamespace(
        core=SimpleNamespace(role=Role.FOLLOWER), leader_id="2", is_leader_ready=False
    )
    reads = ReadIndex("1", timeout_ms=100, ask=refuse, wake=lambda: None)

    async def read_all() -> list[int | BaseException]:
        readers = [reads.barrier(lambda: cast(Consensus, follower)) for _ in range(1_000)]
        return await asyncio.gather(*readers, return_exceptions=True)

    found = run(read_all())  # in simulated time: a busy machine uses up none of it

    assert all(isinstance(each, NoLeaderError) for each in found)
    assert 1 < asked <= (100 + 1_000 * GRAIN_S) // RETRY_MS + 1
