"""The time of the next snapshot: when it is due, by the log since the last one.

1. A small state: after ``snapshot_every_entries`` or ``snapshot_every_bytes``.
2. A snapshot of a large state is worth a long log: making it, writing it and sending it cost as its
   size does. So it is due only when the log since the last one also has a part of that one's size.
3. Members of one cluster count different head starts, so that they do not all work on theirs at the
   same entry.
"""

from __future__ import annotations

from coordinator.node.config import RaftConfig

PARTS_OF_SNAPSHOT = 4
"""The log since a large snapshot has at least this part of its bytes before the next one is due;
half as much of the log is kept behind it."""
ENTRY_BYTES = 256
"""What an entry counts at least: replaying a small one costs as restoring so many bytes."""


class SnapshotDue:
    """What was applied since the last snapshot, and how large that is.

    ``head_start``, 0 to 1, is the part of ``snapshot_every_bytes`` that counts as applied already.
    """

    def __init__(self, raft: RaftConfig, head_start: float = 0.0) -> None:
        self._entries_max = raft.snapshot_every_entries
        self._bytes_max = raft.snapshot_every_bytes
        self._head_start_bytes = int(head_start * raft.snapshot_every_bytes)
        self._bytes_since = self._head_start_bytes
        self._bytes_before = 0
        self._entries_since = 0
        self._size_bytes = 0

    def note_applied(self, entry_bytes: int) -> None:
        """Count an entry."""
        self._bytes_since += entry_bytes
        self._entries_since += 1

    def note_begun(self) -> None:
        """A snapshot is being made: what is applied from now on counts for the next one."""
        self._bytes_before = self._bytes_since
        self._bytes_since = self._entries_since = 0

    def note_given_up(self) -> None:
        """It was not made, and stays due: what counted for it counts for the next one, too."""
        self._bytes_since += self._bytes_before

    def note_made(self, size_bytes: int) -> None:
        """It was made, of this size."""
        self._size_bytes = size_bytes

    def note_restored(self, size_bytes: int) -> None:
        """The state is that of a snapshot of this size."""
        self._size_bytes = size_bytes
        self._bytes_since = self._head_start_bytes
        self._entries_since = 0

    @property
    def is_late(self) -> bool:
        """Whether the next one is due before the one that is being made is there."""
        return self.is_due(self._entries_since)

    def is_due(self, entries: int) -> bool:
        """Whether the next one is, ``entries`` after the last one."""
        if entries < self._entries_max and self._bytes_since < self._bytes_max:
            return False
        if self._size_bytes <= self._bytes_max:
            return True
        counted_bytes = max(self._bytes_since, entries * ENTRY_BYTES)
        return counted_bytes >= self._size_bytes // PARTS_OF_SNAPSHOT

    @property
    def kept_bytes(self) -> int:
        """How much of the log is kept behind a snapshot, for followers that are behind."""
        return max(self._bytes_max, self._size_bytes // PARTS_OF_SNAPSHOT) // 2
