"""The durable log. (Skeleton: the signatures that the engine may use.)"""

from __future__ import annotations

from typing import overload

from coordinator.raft.disk import Disk

Entry = tuple[bytes, int, int]
"""(command, index, term), as PySyncObj keeps them."""


class SyncToken:
    """One sync under way: ``journal.begin_sync()`` makes it, calling it does only the disk's
    part (any thread; raises StorageError), ``journal.end_sync(token)`` takes note (the loop)."""

    def __call__(self) -> None:
        raise NotImplementedError


class Journal:
    """PySyncObj's log (its Journal interface of 0.3.17) that is durable when it says so."""

    def __init__(self, directory: str, disk: Disk, *, segment_bytes: int) -> None:
        """Lock the directory and recover the log. Raises StorageError when it is not sound."""
        raise NotImplementedError

    # What PySyncObj calls.

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry in memory and to the buffer; nothing reaches the disk yet."""
        raise NotImplementedError

    def clear(self) -> None:
        raise NotImplementedError

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        raise NotImplementedError

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Drop the first ``entryTo`` entries; the snapshot covering them must be durable."""
        raise NotImplementedError

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Nothing: a persisted commit index can lie beyond the log."""

    def getRaftCommitIndex(self) -> int:
        return 1

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Returns when both are stable on disk."""
        raise NotImplementedError

    def getCurrentTerm(self) -> int:
        raise NotImplementedError

    def getVotedForNodeId(self) -> str | None:
        raise NotImplementedError

    def onOneSecondTimer(self) -> None:
        raise NotImplementedError

    def _destroy(self) -> None:
        """Close the files and release the directory. Does not sync: the engine syncs first."""
        raise NotImplementedError

    # What the engine calls.

    @property
    def is_dirty(self) -> bool:
        """True when something added, cut or cleared is not yet stable."""
        raise NotImplementedError

    @property
    def first_index(self) -> int:
        """Index of the first entry in memory; 0 when empty."""
        raise NotImplementedError

    @property
    def last_index(self) -> int:
        """Index of the last entry; 0 when empty."""
        raise NotImplementedError

    @property
    def durable_index(self) -> int:
        """The highest index up to which every entry of the log is on stable storage."""
        raise NotImplementedError

    @property
    def bytes_in_memory(self) -> int:
        """Length of all commands in the log together."""
        raise NotImplementedError

    @property
    def failure(self) -> Exception | None:
        """The storage failure that ended this journal, or None."""
        raise NotImplementedError

    def write(self) -> None:
        """Hand everything buffered to the system in one write."""
        raise NotImplementedError

    def sync(self) -> None:
        """Write and sync, here and now."""
        raise NotImplementedError

    def begin_sync(self) -> SyncToken | None:
        """Write; return what makes it stable, or None when all is stable. One at a time."""
        raise NotImplementedError

    def end_sync(self, token: SyncToken) -> None:
        raise NotImplementedError
