"""The durable log: PySyncObj's Journal interface (0.3.17) over checksummed, synced segments.

The promises:

1. ``add``, ``deleteEntriesFrom`` and ``clear`` change memory and a buffer, nothing else. The buffer
   goes to the system in one write, and one sync makes it stable (group commit). Such a batch has
   blocks of the file of its own, and records how far the earlier ones are stable.
2. After a crash the log is in the state after the last synced operation or a later one. So an entry
   up to ``durable_index`` is never lost, and a suffix that was cut and overwritten by a synced
   entry never comes back.
3. ``setCurrentTerm`` changes memory; the next sync makes term and vote stable, before it writes
   anything added since. They never go back.
4. After a failed write or sync nothing is accepted any more: every call that would change the log
   raises the StorageError again. A failed sync is never tried again. The member must stop.
   Only a write without room changes nothing: what it left of itself is cut off, ``is_full`` is
   true, and the next sync tries it again. Until then nothing that waits counts as stable. Room
   is reserved for term and vote (``hard_state``).
5. The commit index is not stored: one beyond the log would acknowledge entries that no member has.
6. ``deleteEntriesTo`` and ``clear`` are called only when the snapshot that covers what they drop is
   stable. *That order is the caller's.* Files are removed whole, by the next sync, after the term
   file says that they are not needed; if the member dies in between, at the next start.
7. Opening refuses files that it cannot explain (rules: ``segments``, ``records``) and a directory
   that another process uses. It syncs again what may not be stable, before that counts.

The entries are in memory too: the log is a list of them, which PySyncObj reads by position and
slice, dozens of times for each write. Names in camel case are PySyncObj's. No threads here; only a
``SyncToken`` may be called from one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.storage import hard_state as term
from coordinator.raft.storage import segments
from coordinator.raft.storage.disk import Disk, DiskFile, join, storage_error
from coordinator.raft.storage.records import RecordKind, encode, fill
from coordinator.raft.storage.recovery import recover
from coordinator.raft.storage.reserve import Reservation, Reserve
from coordinator.raft.storage.segments import Entry, Segment
from coordinator.raft.storage.watermark import Watermark

SEGMENT_BYTES = 16 * 1024 * 1024
_ROOM_BYTES = 64 * 1024


class SyncToken:
    """One sync under way: ``begin_sync`` makes it, calling it does only the disk's part.

    It stores the term, if a new one waits for that, or else makes the log stable. Calling is
    allowed from any thread, once; it raises StorageError. ``end_sync`` takes note."""

    def __init__(self, journal: Journal, *, is_whole: bool, is_rolling: bool) -> None:
        self._journal = journal
        self._file = journal._file
        self._next_sequence = journal._segments[-1].sequence + 1
        self._next_index = journal._next_index or 0
        self.term = journal._term if journal._is_term_due else None
        self._unneeded = tuple(journal._unneeded)
        self.is_whole = is_whole
        """With it everything done to the log by now is stable."""
        self.is_rolling = is_rolling
        self.size_bytes = journal._size_bytes
        self.last_index = journal._written_index
        self.first_index = journal._segments[-1].first_index
        self.next_segment: tuple[Segment, DiskFile] | None = None
        self.is_full = False
        self.has_room = False
        """There was room for what was stored, as far as that was tried."""
        self.is_done = False

    def __call__(self) -> None:
        with self._journal._stopping_on_failure():
            if self.term is not None:
                self._store_term(self.term)
            else:
                may_roll = self.is_rolling and segments.cut_reserve(self._file, self.size_bytes)
                self._file.sync()
                if may_roll:
                    self._roll()
        self.is_done = True

    @property
    def is_plain(self) -> bool:
        """Whether it makes the log stable and does nothing else."""
        return self.term is None and not self.is_rolling

    @property
    def descriptor(self) -> int | None:
        """The file's, if to sync it is all that a call would do, and the system's sync does it."""
        return self._file.descriptor if self.is_plain else None

    def end(self, error: OSError | None) -> None:
        """Instead of a call: the file of ``descriptor`` was synced, or that failed."""
        if error is not None:
            with self._journal._stopping_on_failure():
                raise storage_error("sync", self._file.path, error) from error
        self.is_done = True

    def _store_term(self, state: term.TermState) -> None:
        try:
            self.has_room = term.save(self._journal._disk, self._journal._directory, state)
        except DiskFullError:
            self.is_full = True
            return
        for segment in self._unneeded:
            self._journal._disk.remove(segment.path)

    def _roll(self) -> None:
        # Without room for a new segment this one grows on, as far as it can.
        journal = self._journal
        with suppress(DiskFullError):
            self.next_segment = segments.begin_next(
                journal._disk, journal._directory, self._next_sequence, self._next_index,
                journal._draw_salt(),
            )  # fmt: skip


class Journal(list[Entry]):
    """The log of one member. See the module for what is promised."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        draw_salt: Callable[[], int] | None = None,
    ) -> None:
        """Recover the log in ``directory``, or begin one there.

        Args:
            directory: made if it is not there; locked until ``_destroy``.
            disk: where it is.
            segment_bytes: a segment that has reached this size is followed by a new one.
            draw_salt: see ``segments.salts``; asked for each new segment.

        Raises:
            StorageError: the files cannot be trusted or read, or are another process's."""
        self._directory = directory
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._draw_salt = draw_salt or segments.salts()
        self.failure: StorageError | None = None
        """The error that ended this log."""
        self._pending: list[tuple[RecordKind, int, int, bytes]] = []
        self._in_flight: SyncToken | None = None
        self.is_full = False
        """Whether there was no room for what waits; the next sync tries it again."""
        self._first_needed = 0
        self._looked_at = (0, 0)
        """The first needed entry when segments were last looked at, and how many there were."""
        self._unneeded: list[Segment] = []
        disk.make_directory(directory)
        self._lock = disk.lock_directory(directory)
        try:
            found = recover(disk, directory, self._draw_salt)
            self._watermark = Watermark(disk, directory)
        except BaseException:
            self._lock.release()
            raise
        self._term = self._stored_term = found.term
        self._segments = found.segments
        self._file = found.file
        super().__init__(found.replay.entries)
        self._next_index = found.replay.next_index
        self.bytes_in_memory = sum(len(entry[0]) for entry in self)
        """Length of all commands in the log."""
        self.durable_index = self._written_index = self.last_index
        """The highest index such that this log's entries up to it are stable; 0 when none is."""
        # Of the last segment: its length, and what of it is stable.
        self._size_bytes = self._synced_bytes = found.replay.valid_bytes
        self._reserve = Reserve(disk, directory, segment_bytes)
        self._reserve.begin_file(self._size_bytes)
        if not self and self._next_index is not None:
            # All that is left is before what a snapshot covers; begin after the snapshot's end.
            self.clear()

    @staticmethod
    def is_absent(directory: str, disk: Disk) -> bool:
        """Return whether ``directory`` holds no log, or nothing is left of one."""
        return not disk.exists(join(directory, term.NAME))

    # ------------------------------------------------------------------ what PySyncObj calls

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry. In memory at once; stable after the next sync."""
        self._refuse_after_failure()
        if self._next_index is not None and idx != self._next_index:
            self._stop(f"entry {self._next_index} was expected next, entry {idx} came")
        if term > self._term.term:
            self._stop(f"entry {idx} is of term {term}, the term stored is {self._term.term}")
        self.append((command, idx, term))
        self._pending.append((RecordKind.ENTRY, idx, term, command))
        self._next_index = idx + 1
        self.bytes_in_memory += len(command)

    def clear(self) -> None:
        """Forget all entries; the next one may have any index (a snapshot was installed)."""
        self._refuse_after_failure()
        super().clear()
        self._next_index = None
        self.bytes_in_memory = 0
        self._first_needed = 0
        self._pending.append((RecordKind.START, 0, 0, b""))
        self._forget_durable_from(0)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Cut the entries at this position and after it: they conflict with the leader's."""
        self._refuse_after_failure()
        if entryFrom < 0:
            self._stop(f"a cut at position {entryFrom}")
        cut = self[entryFrom:]
        if not cut:
            return
        index = cut[0][1]
        del self[entryFrom:]
        self._next_index = index
        self.bytes_in_memory -= sum(len(entry[0]) for entry in cut)
        self._pending.append((RecordKind.CUT, index, 0, b""))
        self._forget_durable_from(index)

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Drop the first ``entryTo`` entries; the snapshot that covers them must be stable."""
        self._refuse_after_failure()
        if entryTo < 0:
            self._stop(f"compaction to position {entryTo}")
        dropped = self[:entryTo]
        del self[:entryTo]
        self.bytes_in_memory -= sum(len(entry[0]) for entry in dropped)
        self._first_needed = self[0][1] if self else self._next_index or 0
        self._maybe_drop_segments()

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Do nothing: see promise 5."""

    def getRaftCommitIndex(self) -> int:
        """Return 1: the commit index is not stored (promise 5)."""
        return 1

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Set term and vote; they are stable after the next sync."""
        self._refuse_after_failure()
        now = self._term
        if (term, votedForNodeId) == (now.term, now.voted_for):
            return
        if term < now.term or (term == now.term and now.voted_for is not None):
            self._stop(
                f"term {term} with a vote for {votedForNodeId!r} after "
                f"term {now.term} with a vote for {now.voted_for!r}"
            )
        self._set_term(replace(now, term=term, voted_for=votedForNodeId))

    def getCurrentTerm(self) -> int:
        """Return the term, stable or not."""
        return self._term.term

    def getVotedForNodeId(self) -> str | None:
        """Return the member voted for in this term, or None."""
        return self._term.voted_for

    def onOneSecondTimer(self) -> None:
        """Note beside the log how far it is stable, so that the next start tells damage from a
        torn write; not synced."""
        if self.failure is None:
            # It is a hint: without room for it there is none.
            with self._stopping_on_failure(), suppress(DiskFullError):
                self._watermark.note(self._segments[-1].sequence, self._synced_bytes)

    def _destroy(self) -> None:
        """Close the file and release the directory. Does not sync: what was promised is stable."""
        try:
            self.onOneSecondTimer()
            if self.failure is None and self._reserve.under_way is None:
                with suppress(StorageError):  # the next start cuts what this one did not
                    segments.cut_reserve(self._file, self._size_bytes)
            self._watermark.close()
            self._file.close()
        finally:
            self.failure = self.failure or StorageError(f"{self._directory}: the log is closed")
            self._lock.release()

    # ------------------------------------------------------------------ what the engine calls

    @property
    def is_dirty(self) -> bool:
        """True when something added, cut or cleared, or a term set, is not stable yet."""
        if self._pending or self._size_bytes != self._synced_bytes:
            return True
        return self._term is not self._stored_term and self._is_term_due

    def fail(self, error: StorageError) -> None:
        """Accept nothing any more: another file of this disk failed. From any thread."""
        self.failure = self.failure or error

    @property
    def is_unwritten(self) -> bool:
        """True when something waits that no sync under way makes stable."""
        return bool(self._pending) or self._is_term_due

    @property
    def has_room(self) -> bool:
        """Whether there seems to be room for some entries; looks at the disk."""
        with self._stopping_on_failure():
            return self._disk.room_bytes(self._directory) >= _ROOM_BYTES

    @property
    def free_bytes(self) -> float:
        """Free bytes on its file system, for metrics; NaN if the system does not say."""
        try:
            return float(self._disk.room_bytes(self._directory))
        except StorageError:
            return math.nan

    @property
    def is_term_stable(self) -> bool:
        """True when the term and the vote are those on the disk."""
        stored, now = self._stored_term, self._term
        return stored is now or (stored.term, stored.voted_for) == (now.term, now.voted_for)

    @property
    def last_index(self) -> int:
        """Index of the last entry; 0 when there is none."""
        return self[-1][1] if self else 0

    def write(self) -> None:
        """Hand everything buffered to the system in one write; this makes nothing stable.

        The buffer waits while a term, which must be stable first, or a new segment is under way."""
        if self.failure is not None:
            self._refuse_after_failure()
        if not self._pending or self._is_term_due:
            return
        if self._in_flight is not None and self._in_flight.is_rolling:
            return
        salt, first_index = self._segments[-1].salt, self._segments[-1].first_index
        parts: list[bytes] = []
        for kind, index, term_, command in self._pending:
            parts += encode(kind, index, term_, command, salt)
            if kind is not RecordKind.ENTRY:
                first_index = min(first_index, index)
        size_bytes = self._size_bytes + sum(map(len, parts))
        data = b"".join((*parts, fill(size_bytes, self._synced_bytes, salt)))
        try:
            self._file.write_at(self._size_bytes, data)
        except DiskFullError:
            self.is_full = True
            with self._stopping_on_failure():
                self._file.truncate(self._size_bytes)
            return
        except StorageError as error:
            self.failure = self.failure or error
            raise
        self.is_full = False
        self._pending.clear()
        self._segments[-1].first_index = first_index
        self._size_bytes += len(data)
        self._written_index = self.last_index

    def sync(self) -> None:
        """Write, and make everything stable that there is room for, here and now."""
        while (token := self.begin_sync()) is not None:
            token()
            self.end_sync(token)
            if token.is_full:
                return

    def begin_sync(self) -> SyncToken | None:
        """Write; return the sync to be done, or None if there is none, or no room.

        One at a time. A new term is stored by a sync of its own, before anything else."""
        if self._in_flight is not None:
            self._stop("a sync begins while another is under way")
        self.write()
        if not self._is_term_due and self._size_bytes == self._synced_bytes:
            return None
        is_whole = not self._is_term_due and not self._pending
        is_long = self._size_bytes >= self._segment_bytes and self._reserve.under_way is None
        self._in_flight = SyncToken(self, is_whole=is_whole, is_rolling=is_whole and is_long)
        return self._in_flight

    def end_sync(self, token: SyncToken) -> None:
        """Note that ``token`` was called and returned; ``durable_index`` may rise."""
        self._refuse_after_failure()
        if token is not self._in_flight or not token.is_done:
            self._stop("a sync ends that is not under way")
        self._in_flight = None
        if token.term is not None:
            # A term that is stored without room for it says nothing of what waits behind it.
            self.is_full = token.is_full or (self.is_full and not token.has_room)
            if not token.is_full:
                self._stored_term = token.term
                first = token.term.first_sequence
                self._unneeded = [each for each in self._unneeded if each.sequence >= first]
            return
        self._reserve.note_synced(token.size_bytes - self._synced_bytes)
        self._synced_bytes = token.size_bytes
        self._segments[-1].durable_first_index = token.first_index
        self.durable_index = max(self.durable_index, token.last_index)
        if token.next_segment is not None:
            with self._stopping_on_failure():
                self._file.close()
            self._follow(*token.next_segment)
        self._maybe_drop_segments()

    def begin_reserving(self) -> Reservation | None:
        """Return the zeros to be written behind the log now, in any thread, if they are due."""
        path, size_bytes = self._segments[-1].path, self._size_bytes
        return self._reserve.begin(path, size_bytes, lambda: self.failure is None)

    def end_reserving(self) -> None:
        """Note that what ``begin_reserving`` returned was called and has ended."""
        self._reserve.end()

    # ------------------------------------------------------------------ inside

    def _follow(self, segment: Segment, file: DiskFile) -> None:
        """Continue in ``segment``, which is empty and stable."""
        self._segments.append(segment)
        self._file = file
        self._size_bytes = self._synced_bytes = segments.EMPTY_BYTES
        self._reserve.begin_file(self._size_bytes)

    def _forget_durable_from(self, index: int) -> None:
        last = max(0, index - 1)
        self.durable_index = min(self.durable_index, last)
        self._written_index = min(self._written_index, last)
        if self._in_flight is not None:
            self._in_flight.last_index = min(self._in_flight.last_index, last)

    def _maybe_drop_segments(self) -> None:
        """Mark the segments before the one with the first needed entry for removal."""
        needed, (first_needed, looked_at) = 0, self._looked_at
        # Of those that were looked at for the same entry, only the last can be another since.
        begin = max(0, looked_at - 1) if first_needed == self._first_needed else 0
        for position in range(begin, len(self._segments)):
            if self._segments[position].durable_first_index <= self._first_needed:
                needed = position
        self._looked_at = (self._first_needed, len(self._segments) - needed)
        if needed == 0:
            return
        self._unneeded += self._segments[:needed]
        del self._segments[:needed]
        self._set_term(replace(self._term, first_sequence=self._segments[0].sequence))

    def _set_term(self, state: term.TermState) -> None:
        self._term = replace(state, last_sequence=self._segments[-1].sequence)

    @property
    def _is_term_due(self) -> bool:
        # Mostly it is the very one that was stored; comparing the two is looked at in every pass.
        return self._term is not self._stored_term and self._term != self._stored_term

    @contextmanager
    def _stopping_on_failure(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            self.failure = self.failure or error
            raise

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise StorageError(f"the log has stopped: {self.failure}") from self.failure

    def _stop(self, what: str) -> None:
        """A broken invariant: stop as for a failed disk, before anything wrong is written."""
        self._refuse_after_failure()
        self.failure = StorageError(f"{self._directory}: {what}", path=self._directory)
        raise self.failure
