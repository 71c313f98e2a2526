"""The backups that are read from this member now.

1. A backup is read piece by piece, and every piece is a request of its own: it has a deadline, is
   asked for again when its answer was lost, and a slow reader holds nothing of the door.
2. What a backup holds is an open file, and the entries that were behind it when it began, which no
   snapshot frees for the log until it ends. So there are few at once, and each ends: when it is
   not asked for, after a time at most, and when the member stops.
3. One that is not asked for makes room for a new one: its reader may have gone for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from coordinator.errors import (
    BadArgumentsError,
    CompactedError,
    DiskFullError,
    NoLeaderError,
    ThrottledError,
    UnavailableError,
)
from coordinator.model.access import MEMBERS, Caller, Verb
from coordinator.model.backup import BackupPiece, ScheduledBackups
from coordinator.raft.engine import Backup, BackupFacts
from coordinator.service.base.context import MemberContext
from coordinator.service.reporting.status import product_version

PIECE_BYTES = 256 * 1024
"""What one answer holds at most: less than a millisecond's work, and some ms on a slow link."""
AT_ONCE_MAX = 2
UNREAD_MS_MAX = 120_000
"""A backup ends when no piece of it was asked for within this time."""
LEFT_MS_MIN = 10_000
"""One that was not asked for within this time ends when there is no room for another."""
LASTS_MS_MAX = 4 * 3_600_000
"""Every backup ends after so long; 16 GiB, the largest snapshot, at 1.2 MB a second."""


@dataclass(slots=True)
class _Held:
    backup: Backup
    begun_ms: int
    asked_ms: int
    readers: int = 0
    """How many pieces are being read: the file must not be closed under them."""
    is_over: bool = False

    def end_ms(self) -> int:
        """Return when it ends, unless it is asked for before."""
        return min(self.asked_ms + UNREAD_MS_MAX, self.begun_ms + LASTS_MS_MAX)

    def maybe_close(self) -> None:
        """Close what it holds, once it is over and not being read."""
        if self.is_over and not self.readers:
            self.backup.close()


class Backups:
    """Those of one member, by id."""

    def __init__(self, context: MemberContext) -> None:
        self._config = context.config
        self._engine = context.engine
        self._replica = context.replica
        self._clock = context.clock
        self._timers = context.timers
        self._random = context.random
        self._held: dict[str, _Held] = {}
        self._opening = 0
        self._is_closed = False
        self.scheduled: ScheduledBackups | None = None
        """The backups that this member makes on a schedule, and how they went."""
        self._is_waiting = False
        """Whether a timer looks for those that are over."""
        context.metrics.add_facts("", self._figures)

    def _figures(self) -> Mapping[str, float]:
        scheduled = self.scheduled or ScheduledBackups(every_ms=0)
        return {
            "backups_held": float(len(self._held)),
            "backup_every_seconds": scheduled.every_ms / 1_000,
            "backup_success_timestamp_seconds": (scheduled.succeeded_ms or 0) / 1_000,
            "backup_failure_timestamp_seconds": (scheduled.failed_ms or 0) / 1_000,
        }

    async def begin(self, caller: Caller, deadline_ms: int) -> BackupPiece:
        """Begin a backup of all that was acknowledged before this call; return its first piece.

        Raises:
            NoAuthError: the caller does not administer the members.
            ThrottledError: enough are being read from this member.
            NoLeaderError: no quorum was reached by the deadline.
            UnavailableError: there is nothing on a disk, or not just now.
        """
        self._refuse_others(caller)
        self._make_room()
        self._opening += 1
        backup_id = f"{self._random.getrandbits(64):016x}"
        try:
            async with self._timers.deadline(deadline_ms):
                backup = await self._engine.open_backup(lambda: self._facts(backup_id))
        except TimeoutError:
            raise NoLeaderError("no backup was begun in time; try again") from None
        except DiskFullError as error:  # no descriptor is left
            raise UnavailableError(f"no backup for now: {error.message}") from error
        finally:
            self._opening -= 1
        if self._is_closed:
            backup.close()
            raise UnavailableError("no backup for now: this member has stopped")
        now_ms = self._clock.monotonic_ms()
        self._held[backup_id] = _Held(backup, now_ms, now_ms)
        self._wait()
        return BackupPiece(backup_id, 0, backup.size_bytes, backup.read(0, PIECE_BYTES))

    async def read(self, backup_id: str, offset: int, caller: Caller) -> BackupPiece:
        """Return the piece of a backup that begins at ``offset``; empty at its end.

        Raises:
            NoAuthError: the caller does not administer the members.
            CompactedError: this member does not hold that backup, or no longer.
            BadArgumentsError: it is not as long.
        """
        self._refuse_others(caller)
        held = self._held.get(backup_id)
        if held is None:
            raise CompactedError(
                "this member does not hold that backup, or no longer: begin another one"
            )
        size_bytes = held.backup.size_bytes
        if offset > size_bytes:
            raise BadArgumentsError(
                f"offset: expected at most {size_bytes}, found {offset}", limit=size_bytes
            )
        held.asked_ms = self._clock.monotonic_ms()
        held.readers += 1
        try:
            data = await asyncio.to_thread(held.backup.read, offset, PIECE_BYTES)
        finally:
            held.readers -= 1
            held.asked_ms = self._clock.monotonic_ms()
            held.maybe_close()
        return BackupPiece(backup_id, offset, size_bytes, data)

    def close(self) -> None:
        """End all of them, and begin no more."""
        self._is_closed = True
        for backup_id in list(self._held):
            self._end(backup_id)

    def end(self, backup_id: str) -> None:
        """End one that was read to its end, or is given up."""
        if backup_id in self._held:
            self._end(backup_id)

    def _facts(self, backup_id: str) -> BackupFacts:
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1_000, UTC)
        return BackupFacts(
            backup_id=backup_id,
            cluster=self._config.cluster.name,
            release=product_version(),
            level=self._replica.machine.level,
            time=now.isoformat(timespec="milliseconds"),
            zxid=self._replica.machine.zxid,
        )

    def _refuse_others(self, caller: Caller) -> None:
        self._replica.machine.access.check(caller, Verb.ADMIN, MEMBERS)

    def _make_room(self) -> None:
        if len(self._held) + self._opening < AT_ONCE_MAX:
            return
        left_ms = self._clock.monotonic_ms() - LEFT_MS_MIN
        left = [each for each in self._held if self._held[each].asked_ms <= left_ms]
        if not left:
            raise ThrottledError(f"{AT_ONCE_MAX} backups are being read from this member")
        self._end(min(left, key=lambda each: self._held[each].asked_ms))

    def _wait(self) -> None:
        if not self._is_waiting and self._held:
            self._is_waiting = True
            self._timers.at(min(each.end_ms() for each in self._held.values()), self._look)

    def _look(self) -> None:
        self._is_waiting = False
        now_ms = self._clock.monotonic_ms()
        for backup_id in [each for each in self._held if self._held[each].end_ms() <= now_ms]:
            self._end(backup_id)
        self._wait()

    def _end(self, backup_id: str) -> None:
        held = self._held.pop(backup_id)
        held.is_over = True
        held.maybe_close()
