"""The backups that are read from one member: few, by those who may, and each ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from coordinator.clock import ManualClock
from coordinator.errors import (
    BadArgumentsError,
    CompactedError,
    NoAuthError,
    NoLeaderError,
    ThrottledError,
    UnavailableError,
)
from coordinator.model.access import NOBODY
from coordinator.raft.engine import Backup, BackupFacts
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.base.replica import MachineReplica
from coordinator.service.reporting import backups
from coordinator.service.reporting.backups import Backups
from coordinator.state.commands import Command, InitAccess
from coordinator.state.machine import StateMachine
from tests.service.contexts import context_of

LENGTH = 3 * backups.PIECE_BYTES + 5


@dataclass
class Bytes:
    """A backup in memory that says when it is closed."""

    facts: BackupFacts
    data: bytes = bytes(range(251)) * (LENGTH // 251 + 1)
    is_closed: bool = False
    size_bytes: int = LENGTH
    may_read: threading.Event = field(default_factory=threading.Event)

    def read(self, offset: int, length: int) -> bytes:
        assert self.may_read.wait(20), "the test lets it go on"
        assert not self.is_closed, "closed under its reader"
        return self.data[:LENGTH][offset : offset + length]

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Engine(LoopbackEngine):
    """Gives a backup out, or waits for ever."""

    given: list[Bytes] = field(default_factory=list)
    is_slow: bool = False

    async def open_backup(self, facts: Callable[[], BackupFacts]) -> Backup:
        if self.is_slow:
            await asyncio.Event().wait()
        self.given.append(Bytes(facts()))
        self.given[-1].may_read.set()
        return self.given[-1]


class Room:
    """One member's backups, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine()
        self.machine = StateMachine()
        self.context = context_of(self.clock, MachineReplica(self.machine), engine=self.engine)
        self.backups = Backups(self.context)

    async def begin(self) -> str:
        piece = await self.backups.begin(NOBODY, self.clock.monotonic_ms() + 5_000)
        return piece.backup_id

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.context.timers.tick(self.clock.monotonic_ms())


async def test_the_pieces_are_the_backup() -> None:
    """Each begins where the last one ended, and may be asked for again."""
    room = Room()
    piece = await room.backups.begin(NOBODY, 5_000)
    found = piece.data
    while not piece.is_last:
        await room.backups.read(piece.backup_id, piece.next_offset, NOBODY)
        piece = await room.backups.read(piece.backup_id, piece.next_offset, NOBODY)
        found += piece.data

    assert found == room.engine.given[0].data[:LENGTH]
    assert (await room.backups.read(piece.backup_id, LENGTH, NOBODY)).data == b""
    with pytest.raises(BadArgumentsError):
        await room.backups.read(piece.backup_id, LENGTH + 1, NOBODY)


async def test_no_more_are_held_than_may_be() -> None:
    """One more is refused, unless another was left alone: that one ends for it."""
    room = Room()
    held = [await room.begin() for _ in range(backups.AT_ONCE_MAX)]

    with pytest.raises(ThrottledError):
        await room.begin()
    room.advance(backups.LEFT_MS_MIN)
    await room.backups.read(held[0], 0, NOBODY)
    await room.begin()

    assert [each.is_closed for each in room.engine.given] == [False, True, False]
    with pytest.raises(CompactedError):
        await room.backups.read(held[1], 0, NOBODY)
    with pytest.raises(ThrottledError):
        await room.begin()


async def test_one_that_nobody_asks_for_ends() -> None:
    """A millisecond before it is there; a request keeps it for as long again."""
    room = Room()
    backup_id = await room.begin()

    for _ in range(3):
        room.advance(backups.UNREAD_MS_MAX - 1)
        await room.backups.read(backup_id, 0, NOBODY)
    room.advance(backups.UNREAD_MS_MAX)

    assert room.engine.given[0].is_closed
    with pytest.raises(CompactedError):
        await room.backups.read(backup_id, 0, NOBODY)


async def test_every_one_ends() -> None:
    """However busily it is read."""
    room = Room()
    backup_id = await room.begin()

    for _ in range(backups.LASTS_MS_MAX // 60_000 - 1):
        room.advance(60_000)
        await room.backups.read(backup_id, 0, NOBODY)
    room.advance(60_000)

    with pytest.raises(CompactedError):
        await room.backups.read(backup_id, 0, NOBODY)


async def test_it_is_not_closed_under_a_piece_that_is_read() -> None:
    """The member stops meanwhile: the file is closed behind the last reader."""
    room = Room()
    backup_id = await room.begin()
    given = room.engine.given[0]
    given.may_read.clear()

    reading = asyncio.create_task(room.backups.read(backup_id, 0, NOBODY))
    await asyncio.sleep(0)
    room.backups.close()
    given.may_read.set()
    piece = await reading

    assert len(piece.data) == backups.PIECE_BYTES
    assert room.engine.given[0].is_closed


async def test_only_who_administers_the_members_may_read() -> None:
    """Each piece is refused to anybody else: it holds all data."""
    room = Room()
    backup_id = await room.begin()
    on = InitAccess(identity="operator", token_id="t0000001", digest=bytes(32))
    room.machine.apply(Command(on, 0), 1, 1)

    with pytest.raises(NoAuthError):
        await room.backups.begin(NOBODY, 5_000)
    with pytest.raises(NoAuthError):
        await room.backups.read(backup_id, 0, NOBODY)


async def test_what_cannot_be_begun_leaves_no_trace() -> None:
    """Without a quorum the caller learns it by its deadline, and may ask again at once."""
    room = Room()
    room.engine.is_slow = True

    for _ in range(backups.AT_ONCE_MAX + 1):
        beginning = asyncio.create_task(room.begin())
        await asyncio.sleep(0)
        room.advance(5_000)
        with pytest.raises(NoLeaderError):
            await beginning
    room.engine.is_slow = False
    await room.begin()


async def test_a_member_in_memory_refuses() -> None:
    """There is nothing on a disk."""
    room = Room()
    engine = LoopbackEngine()
    await engine.start(room.context.replica)

    with pytest.raises(UnavailableError, match="in memory only"):
        await Backups(context_of(room.clock, room.context.replica, engine=engine)).begin(
            NOBODY, 5_000
        )
