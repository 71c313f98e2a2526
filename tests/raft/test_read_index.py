"""Who waits for an entry to be applied, and who does not any more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from coordinator.raft.consensus import Consensus
from coordinator.raft.read_index import ReadIndex

BEHIND = cast(
    Consensus,
    SimpleNamespace(core=SimpleNamespace(applied_index=0), is_out_of_reach=lambda _index: False),
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
