"""Leases that start in slices: whatever comes between two of them, each session has one in full."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.service.sessions import leases as module
from coordinator.state.commands import CloseSession
from tests.service.test_lease_rules import TERM, TICK_MS, TIMEOUT_MS, Room

NAMES = [f"t{number}" for number in range(7)]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    """Seven sessions, of which the leases start two at a time."""
    monkeypatch.setattr(module, "_STARTED_AT_ONCE", 2)
    room = Room()
    room.open(*NAMES)
    return room


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def started(room: Room) -> list[str]:
    return [each for each in NAMES if room.leases.is_promised(each)]


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_few_leases_are_there_at_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As many as one slice takes; of more, none is before the loop was let go."""
    monkeypatch.setattr(module, "_STARTED_AT_ONCE", 2)
    room = Room()
    room.open(*NAMES[:count])

    room.leases.start(TERM)

    assert started(room) == (NAMES[:count] if count <= 2 else [])
    await turns()
    assert started(room) == NAMES[:count]
    assert room.metric("leases") == count


async def test_a_short_lease_of_the_last_slice_is_looked_at_in_time(room: Room) -> None:
    """A tick before it started has named a later time."""
    asked: list[int] = []
    room.leases.need_tick_by = asked.append
    room.open("short", timeout_ms=1)

    room.leases.start(TERM)
    await turns()

    assert asked == [room.clock.now_ms + 1]


async def test_all_leases_start_two_at_a_time_and_end_once(room: Room) -> None:
    """In the order of the sessions; no end is proposed before all have started."""
    room.leases.start(TERM)
    seen = []
    for _ in range(12):
        await asyncio.sleep(0)
        room.leases.tick(room.clock.now_ms)
        seen.append(len(started(room)))

    assert sorted(set(seen) - {0}) == [2, 4, 6, 7]
    assert room.metric("leases") == 7
    assert [room.leases.remaining_ms(each) for each in NAMES] == [TIMEOUT_MS] * 7
    await room.after(TIMEOUT_MS - 1)
    assert room.ended == []
    await room.after(1)
    assert sorted(room.ended) == NAMES
    await room.after(TIMEOUT_MS)
    assert len(room.ended) == 7


async def test_time_that_passes_between_slices_is_given_to_who_comes_later(room: Room) -> None:
    """Each lease is counted in full from its own slice; nobody ends before all have started."""
    room.leases.start(TERM)
    await turns(2)
    first = len(started(room))
    assert 0 < first < 7
    room.clock.now_ms += TIMEOUT_MS

    room.leases.tick(room.clock.now_ms)
    assert room.log.proposed == []
    await turns()

    remaining = [room.leases.remaining_ms(each) for each in NAMES]
    assert remaining == [0] * first + [TIMEOUT_MS] * (7 - first)
    await room.after(TICK_MS)
    assert room.ended == NAMES[:first]


async def test_a_heartbeat_and_an_end_between_slices_count(room: Room) -> None:
    """Who beat is extended; who closed has no lease, started or not; who opened has one."""
    room.leases.start(TERM)
    await turns(2)
    assert started(room)[:1] == ["t0"]
    room.clock.now_ms += 40
    room.leases.extend("t0", room.clock.now_ms)
    room.commit(CloseSession("t1"))
    room.commit(CloseSession("t6"))
    room.open("late")

    await turns()

    promised = [each for each in (*NAMES, "late") if room.leases.is_promised(each)]
    assert promised == ["t0", "t2", "t3", "t4", "t5", "late"]
    assert room.leases.remaining_ms("t0") == TIMEOUT_MS
    assert room.leases.deadline_ms("t1") is None
    assert room.metric("leases") == 6


async def test_a_stall_between_slices_starts_all_once_more(room: Room) -> None:
    """After the start that is under way, in full, and once."""
    room.leases.start(TERM)
    await turns(2)
    room.clock.now_ms += 10_000
    room.leases.tick(room.clock.now_ms)
    room.leases.tick(room.clock.now_ms)

    await turns(40)

    assert room.metric("lease_restarts_total") == 1
    assert [room.leases.remaining_ms(each) for each in NAMES] == [TIMEOUT_MS] * 7
    await room.after(TIMEOUT_MS - 1)
    assert room.ended == []
    await room.after(1)
    assert sorted(room.ended) == NAMES


@pytest.mark.parametrize("had_stalled", [False, True])
async def test_a_leadership_that_ends_between_slices_starts_nothing_more(
    room: Room, had_stalled: bool
) -> None:
    """What it owed is not paid by the next one."""
    room.leases.start(TERM)
    await turns(2)
    if had_stalled:
        room.clock.now_ms += 10_000
        room.leases.tick(room.clock.now_ms)

    room.leases.stop()
    await turns(40)

    assert started(room) == []
    assert room.metric("leases") == 0
    await room.after(TIMEOUT_MS)
    assert room.ended == []


@pytest.mark.parametrize("had_stalled", [False, True])
async def test_a_leadership_that_follows_between_slices_starts_by_itself(
    room: Room, had_stalled: bool
) -> None:
    """Each lease once: the slices of the one before do not go on."""
    room.leases.start(TERM)
    await turns(2)
    if had_stalled:
        room.clock.now_ms += 10_000
        room.leases.tick(room.clock.now_ms)
    room.leases.start(TERM + 1)
    began_ms = room.clock.now_ms

    await turns(7)
    room.clock.now_ms += 30
    await turns(40)

    assert started(room) == NAMES
    assert [room.leases.deadline_ms(each) for each in NAMES] == [began_ms + TIMEOUT_MS] * 7
    assert len(room.leases._heap) == 7
    room.clock.now_ms += TIMEOUT_MS
    await room.after(TICK_MS)
    assert sorted(room.ended) == NAMES
    assert {each.term for each in room.log.proposed} == {TERM + 1}
