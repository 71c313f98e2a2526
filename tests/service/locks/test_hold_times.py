"""Locks that are held suspiciously long: seen, counted, named once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.clock import ManualClock
from coordinator.node.config import Config, MemberLimits
from coordinator.raft.engine import Role
from coordinator.service.base.replica import MachineReplica
from coordinator.service.locks.denials import Denials
from coordinator.service.locks.hold_times import HoldTimes, LockClasses
from coordinator.state.codec import encode_command
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Delete,
    OpenSession,
    Operation,
)
from coordinator.state.large_map import LargeMap
from coordinator.state.machine import StateMachine
from tests.service.contexts import context_of

LONG_MS = 60_000


class Room:
    """A state machine that the long holds listen to, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.replica = MachineReplica(StateMachine())
        config = Config(limits=MemberLimits(long_hold_ms=LONG_MS))
        context = context_of(self.clock, self.replica, config=config)
        context.leadership.on_role_change(Role.LEADER, 1)
        self.metrics = context.metrics
        self.denials = Denials(self.clock)
        self.holds = HoldTimes(context, LockClasses(), self.denials)
        self.replica.add_listener(self.holds)
        self._index = 0
        self.apply(OpenSession("0000000000000001", 10_000))

    def apply(self, operation: Operation) -> None:
        self._index += 1
        self.replica.apply(self._index, 1, encode_command(Command(operation, 0)))

    def enter(self, lock: str = "daily") -> None:
        self.apply(
            Create(
                f"/locks/{lock}/lock-",
                mode=CreateMode.EPHEMERAL_SEQUENTIAL,
                session_id="0000000000000001",
                parents=CreateMode.CONTAINER,
            )
        )

    def pass_ms(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.holds.look(self.clock.monotonic_ms())

    @property
    def long_count(self) -> float:
        value = self.metrics.registry.get_sample_value("coordinator_long_holds")
        assert value is not None
        return value


def test_a_hold_is_counted_from_when_it_was_first_seen() -> None:
    """Who takes over begins at zero; who waits has held for nothing."""
    room = Room()
    room.enter()
    room.enter()
    room.pass_ms(0)
    room.pass_ms(5_000)
    first, second = "/locks/daily/lock-0000000000", "/locks/daily/lock-0000000001"

    assert (room.holds.held_ms(first), room.holds.held_ms(second)) == (5_000, 0)
    room.apply(Delete(first))
    assert (room.holds.held_ms(first), room.holds.held_ms(second)) == (0, 0)
    room.pass_ms(2_000)
    assert room.holds.held_ms(second) == 2_000


def test_a_long_hold_is_counted_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """One log line when it becomes long, a gauge for as long as it lasts."""
    room = Room()
    room.enter()
    room.pass_ms(0)
    with caplog.at_level(logging.WARNING):
        room.pass_ms(LONG_MS - 1)
        assert (room.long_count, caplog.messages) == (0, [])
        room.pass_ms(1)
        room.pass_ms(LONG_MS)

    assert room.long_count == 1
    assert caplog.messages == [
        "lock 'daily' has been held for 60 s by session 0000000000000001 (grant 0-2)"
    ]
    room.apply(Delete("/locks/daily/lock-0000000000"))
    room.pass_ms(1)
    assert room.long_count == 0


def test_locks_that_come_and_go_leave_nothing() -> None:
    """Ten thousand short holds keep neither an entry nor a place in the heap."""
    room = Room()
    for number in range(10_000):
        room.enter()
        room.pass_ms(1)
        room.apply(Delete(f"/locks/daily/lock-{number:010d}"))
    room.pass_ms(1)

    assert room.holds._holds == {}
    assert len(room.holds._becoming_long) + len(room.holds._still_held) < 2_000


def test_no_hold_is_forgotten_among_those_that_come_and_go() -> None:
    """Some entries are looked at with each hold that begins, never all; all become long in time."""
    room = Room()
    for number in range(1_200):
        room.enter(f"long-{number}")
    kept_at_most = 0
    for number in range(8_000):
        room.enter()
        room.pass_ms(1)
        room.apply(Delete(f"/locks/daily/lock-{number:010d}"))
        if number % 10 == 0:
            room.enter(f"later-{number}")
        kept = len(room.holds._becoming_long) + len(room.holds._still_held)
        kept_at_most = max(kept_at_most, kept)

    assert kept_at_most < 2 * (2_000 + 1_000)
    times = [each for each, _, _ in (*room.holds._still_held, *room.holds._becoming_long)]
    assert times == sorted(times)
    room.pass_ms(LONG_MS - 8_000 - 1)
    assert room.long_count == 0
    for _ in range(3):
        room.pass_ms(1)
    assert room.long_count == 1_201, "the first of the later ones, too"
    for _ in range(12):  # each looks at a thousand, also at some that have ended
        room.pass_ms(1_000)
    assert room.long_count == 2_000


async def test_queues_in_several_dicts_are_all_looked_at_after_a_snapshot() -> None:
    """In turns; one that comes meanwhile is counted once, and one that was not looked at, too."""
    room = Room()
    for number in range(120):
        room.enter(f"l{number}")
        room.enter(f"l{number}")
    table = room.replica.machine._locks
    table.queues = LargeMap(table.queues.items(), part_max=40)

    room.holds.on_restore()
    assert [len(part) for part in room.holds._unseen] == [30, 40]
    room.enter("l119")  # not looked at yet
    room.enter("l0")
    room.enter("new")
    for _ in range(2):
        await asyncio.sleep(0)
    assert room.holds._unseen == []
    room.enter("l119")

    waiting = room.holds.waiting_by_class()
    assert [waiting[name] for name in ("l0", "l1", "l98", "other")] == [2, 1, 1, 22]
