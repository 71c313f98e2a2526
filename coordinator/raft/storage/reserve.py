"""The reserve: zeros behind the log's records, written ahead, so that a sync has less to do.

A file that grows changes the file system's own data with each write, and a sync makes these stable
after the records: two writes of the device, one after the other, for one. Where the blocks are
there and have been written once, a sync writes the records alone. Nothing depends on the reserve:

1. Zeros are only appended, where the system finds the end and writes in one step; records are
   written at their place. So zeros never come over a record, whichever thread comes first.
2. Missing ones, and some that a crash has left, are what a write would leave that never reached the
   disk (``records``, rule 3). A start cuts them off; so do older versions.
3. Only the last file has any: the next one is begun when they are cut off, and that is stable. No
   file is begun, and none is closed, while zeros are written.
4. They are synced by a file opened for it. The system reports an error of the disk once to each
   opening of a file: the log's own sync must hear of it, too.
5. They are few, some are there before the last are used, and they are written in pieces: a sync of
   the log at the same moment waits for one piece. A member that writes next to nothing has none.
6. Without room to spare there are none, and the log grows as it would. What another program leaves
   is for records and snapshots.
7. None are written once the log has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from coordinator.errors import DiskFullError
from coordinator.raft.storage.disk import Disk
from coordinator.raft.storage.records import BLOCK_BYTES

RESERVE_BYTES = 1024 * 1024
"""The most zeros written at once: those of some 250 lone writes, in a few milliseconds."""
PARTS_OF_SEGMENT = 16
"""It is at most this part of a segment."""
PIECES = 8
SHORT_BATCH_BYTES = 4 * BLOCK_BYTES
"""A batch of a few blocks is never long; else one larger than a piece is."""
SPARED_RESERVES = 16
"""So many times what is reserved must be free."""


class Reservation:
    """Zeros to be appended to the file at ``path`` until it has ``end_bytes``; calling it does so,
    in any thread, as long as ``may_go_on``."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        path: str,
        reserve_bytes: int,
        end: int,
        may_go_on: Callable[[], bool],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._may_go_on = may_go_on
        self.end_bytes = end

    def __call__(self) -> None:
        """Return when they are stable, or there is no room for them; StorageError."""
        with suppress(DiskFullError):
            if self._disk.room_bytes(self._directory) >= SPARED_RESERVES * self._reserve_bytes:
                self._append()

    def _append(self) -> None:
        piece = bytes(max(1, self._reserve_bytes // PIECES))
        file = self._disk.open_append(self._path)
        try:
            while (missing := self.end_bytes - file.size_bytes()) > 0 and self._may_go_on():
                file.write(piece[:missing])
                file.sync()
        finally:
            file.close()


class Reserve:
    """When a log's last file should have more zeros."""

    def __init__(self, disk: Disk, directory: str, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._reserve_bytes = min(RESERVE_BYTES, segment_bytes // PARTS_OF_SEGMENT)
        self._long_bytes = max(self._reserve_bytes // PIECES, SHORT_BATCH_BYTES)
        self._due_at_bytes = self._batch_bytes = 0
        self.under_way: Reservation | None = None

    def begin_file(self, size_bytes: int) -> None:
        """Note that the log goes on in a file of this size, without zeros."""
        self._due_at_bytes = size_bytes + self._reserve_bytes // PARTS_OF_SEGMENT

    def note_synced(self, batch_bytes: int) -> None:
        """Note how much the last sync made stable."""
        self._batch_bytes = batch_bytes

    def begin(
        self, path: str, size_bytes: int, may_go_on: Callable[[], bool]
    ) -> Reservation | None:
        """Return what appends zeros to the last file, if they are due.

        ``size_bytes``: of its records. None of a file as large as a segment: it is to be followed.
        None either where each sync writes much, which gains nothing by it."""
        if size_bytes < self._due_at_bytes or self.under_way is not None:
            return None
        end = min(size_bytes + self._reserve_bytes, self._segment_bytes)
        if end <= size_bytes or self._batch_bytes > self._long_bytes:
            return None
        self._due_at_bytes = end - self._reserve_bytes // 2 if end < self._segment_bytes else end
        self.under_way = Reservation(
            self._disk, self._directory, path, self._reserve_bytes, end, may_go_on
        )
        return self.under_way

    def end(self) -> None:
        """Note that the reservation has been called and returned."""
        self.under_way = None
