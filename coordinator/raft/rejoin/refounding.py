"""The founding of a cluster again from one member's data, when it can have no leader. Offline.

Votes are lost for good when the disks of a majority are lost, when members accuse each other of
older copies, or when terms were driven so high that none is left. Then an operator chooses the best
remaining data, and the cluster begins again from them:

1. A new directory is made beside the old one, with the state after the last entry of its log, the
   numbers of that entry, an owner with a new cluster id, and the stage ``founding``. The old
   directory is not changed; the two swap their names at the end. Between the two renames neither
   has the name of the data directory: a member that is started then must not begin an empty one.
2. Terms begin again after that of the last entry, and after 1 if that one is absurd. This breaks no
   earlier promise: a member that made one has the former cluster id and is not heard.
3. What was acknowledged and is not in these data is lost. So the replica skips more numbers than
   can have been used meanwhile, and ends all sessions (``coordinator.node.recovery``): fencing
   tokens never repeat.
4. All other members, whose directories are empty, elect the founding member, as in a first election
   (``elections``). It is proven once enough others hold its data (``recovering``). If a member dies
   before that, it is still founding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coordinator.errors import StorageError
from coordinator.raft.engine import Replica
from coordinator.raft.entries import NO_OP, REGULAR, unpack_group
from coordinator.raft.rejoin import recovering
from coordinator.raft.storage import ownership, quarantine
from coordinator.raft.storage.disk import Disk, join, replace_file
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.ownership import Owner
from coordinator.raft.storage.segments import Entry
from coordinator.raft.storage.snapshot_store import SnapshotReader, SnapshotStore
from coordinator.raft.term_bounds import TERM_JUMP_MAX

NOTE = "recovered"
"""The file that records when, by whom and why a directory was founded."""
TERM_KEPT_MAX = TERM_JUMP_MAX // 2
"""Above it terms begin again: no cluster holds so many elections, and those that are emptied would
not believe it (``term_bounds``)."""
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Position:
    """The last entry of a log."""

    index: int
    term: int


class HeldData:
    """The data directory of a member that does not run; locked until ``close``."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        log_directory = join(data_dir, "log")
        refuse_unfinished(disk, data_dir)
        owner = ownership.load(disk, data_dir)
        is_empty = Journal.is_absent(log_directory, disk) and not _is_founding(disk, data_dir)
        if owner is None or is_empty:
            raise StorageError(
                f"{data_dir}: expected the data of a member, found none: name the configuration of"
                " the member whose data are the best",
                path=data_dir,
            )
        self._disk = disk
        self.data_dir = data_dir
        self.owner = owner
        self.has_vote = not disk.exists(join(data_dir, recovering.NAME))
        self.differs = disk.exists(join(data_dir, quarantine.NAME))
        """Whether its state differed from that of a quorum (``quarantine``)."""
        self._log = Journal(log_directory, disk)
        try:
            self._store = SnapshotStore(join(data_dir, "snapshots"), disk, piece_bytes=PIECE_BYTES)
        except BaseException:
            self._log._destroy()
            raise
        self.term: int = self._log.getCurrentTerm()

    def close(self) -> None:
        """Release the directory."""
        self._log._destroy()

    def replay(self, replica: Replica) -> Position:
        """Bring the empty ``replica`` to the state after the last entry; return that entry."""
        at = self._restore(replica)
        log = self._log
        if len(log) and log[0][1] > at.index + 1 and log[0][1] != 1:
            raise StorageError(
                f"{self.data_dir}: the log begins at entry {log[0][1]}, expected"
                f" {at.index + 1}: these data are not whole: name another member",
                path=self.data_dir,
            )
        return apply_entries(replica, at, log[:])

    def snapshot(self) -> SnapshotReader | None:
        """Open the newest snapshot; close it when done. None if there is none."""
        info = self._store.latest()
        return None if info is None else self._store.open(info)

    def entries(self) -> list[Entry]:
        """Return the entries of the log, those that the snapshot covers as well."""
        return self._log[:]

    def _restore(self, replica: Replica) -> Position:
        reader = self.snapshot()
        if reader is None:
            return Position(0, 0)
        try:
            reader.decoded(replica.prepare_restore)()
        finally:
            reader.close()
        return Position(reader.info.index, reader.info.term)


def apply_entries(replica: Replica, at: Position, entries: Iterable[Entry]) -> Position:
    """Apply the entries behind ``at``, in order; return the last one."""
    for entry, index, term in entries:
        if index > at.index:
            at = Position(index, term)
            if entry[:1] == REGULAR:
                for command in unpack_group(entry[1:]):
                    replica.apply(index, term, command)
    return at


def _is_founding(disk: Disk, data_dir: str) -> bool:
    """Say whether ``data_dir`` was made by ``write``, and its member was not started since."""
    path = join(data_dir, recovering.NAME)
    return disk.exists(path) and disk.read(path) == recovering.RecoveryStage.FOUNDING.encode()


def unfinished(data_dir: str) -> str:
    """Return the name of the new directory until it has that of the old one."""
    return f"{data_dir.rstrip('/')}.recovered"


def refuse_unfinished(disk: Disk, data_dir: str) -> None:
    """Raise StorageError if the last rename of a founding is missing: the data are there."""
    new, log_directory = unfinished(data_dir), join(data_dir, "log")
    is_empty = Journal.is_absent(log_directory, disk) and not _is_founding(disk, data_dir)
    if is_empty and disk.exists(join(new, NOTE)):
        raise StorageError(
            f"{data_dir}: expected the data of a member, found none, but those of a recovery that"
            f" was interrupted: rename {new} to {data_dir} to finish it (or the former data, which"
            " have .before-recovery- in their name, to undo it); to begin with an empty directory,"
            f" move {new} away",
            path=data_dir,
        )


def write(
    disk: Disk,
    directory: str,
    owner: Owner,
    at: Position,
    pieces: Iterator[bytes],
    note: dict[str, object],
) -> None:
    """Make ``directory``, which is not there, that of a member that founds with this state."""
    disk.make_directory(directory)
    ownership.save(disk, directory, owner)
    replace_file(disk, directory, recovering.NAME, recovering.RecoveryStage.FOUNDING.encode())
    store = SnapshotStore(join(directory, "snapshots"), disk, piece_bytes=PIECE_BYTES)
    term = at.term if at.term <= TERM_KEPT_MAX else 1
    writer = store.begin_write((NO_OP, at.index, term), (NO_OP, at.index - 1, 0))
    for piece in pieces:
        writer.write(piece)
    writer.finish()
    line = json.dumps(note, sort_keys=True).encode() + b"\n"
    replace_file(disk, directory, NOTE, line)


def read_note(disk: Disk, data_dir: str) -> str:
    """Return the note of a founding; "" if there was none."""
    path = join(data_dir, NOTE)
    return disk.read(path).decode("utf-8", "replace").strip() if disk.exists(path) else ""
