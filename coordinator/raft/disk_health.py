"""The health of a member's disk: whether it is fit to lead with, and what is reported if not.

1. A leader with a full disk refuses its clients' commands with a definite error: nothing was
   proposed. The outcome of commands under way stays unknown until there is room or another leader.
2. A leader hands over when a follower has durable entries that its own disk still delays. If no
   follower has overtaken it, it stays: where all disks are bad, moving repairs nothing.
3. A member with a bad disk does not take a leadership that is offered, and lets others stand first.
"""

from __future__ import annotations

import logging

from coordinator.errors import NoSpaceError
from coordinator.raft.consensus import Consensus
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.snapshot_exchange import SnapshotExchange
from coordinator.raft.storage.sync import LogSync

logger = logging.getLogger(__name__)


class DiskHealth:
    """The disk health of one member; ``slow_ms``: how long a leader's disk may delay followers."""

    def __init__(
        self,
        member_id: str,
        log: Journal,
        log_sync: LogSync,
        snapshots: SnapshotExchange,
        *,
        slow_ms: int,
    ) -> None:
        self._member_id = member_id
        self._log = log
        self._log_sync = log_sync
        self._snapshots = snapshots
        self._slow_ms = slow_ms
        self._logged = ""

    @property
    def trouble(self) -> str:
        """The problem of the disk, in words; "" if there is none."""
        if self._log.is_full or self._snapshots.lacks_room:
            return "its disk is full"
        return "its disk is slow" if self._log_sync.is_slow else ""

    @property
    def is_disk_full(self) -> bool:
        """Whether what was written last, an entry or a snapshot, found no room."""
        return self._log.is_full or self._snapshots.lacks_room

    @property
    def may_lead(self) -> bool:
        """Whether the disk is fit to lead with: it has room, and was not slow recently."""
        # Also ask the disk: one that is full since the last write has shown no trouble yet, and a
        # term may find room where the first entry of a leader does not.
        return not self.trouble and self._log.has_room

    def look(self, consensus: Consensus) -> bool:
        """Log what has changed; return whether a follower has entries that this disk has delayed
        for too long. Called in each pass, where mostly nothing has ever been wrong."""
        log, log_sync = self._log, self._log_sync
        is_late = log.is_full or log_sync.waiting_seconds * 1000 >= self._slow_ms
        is_doubtful = is_late or log_sync.was_slow or self._snapshots.is_without_room
        if is_doubtful or self._logged:
            self._log_changes()
        return is_late and consensus.is_own_log_awaited()

    def refusal(self) -> NoSpaceError:
        """Return the error for commands while the disk is full."""
        return NoSpaceError(
            f"the disk of member {self._member_id}, which leads, is full: make room"
            " there"
        )

    def _log_changes(self) -> None:
        trouble = self.trouble
        if trouble == self._logged:
            return
        if self.is_disk_full:
            logger.error(
                "member %s: its disk is full (No space left on device); it acknowledges nothing"
                " new and tries again by itself", self._member_id,
            )  # fmt: skip
        elif trouble:
            logger.warning("member %s: %s", self._member_id, trouble)
        else:
            logger.warning("member %s: its disk is well again", self._member_id)
        self._logged = trouble
