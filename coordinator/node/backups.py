"""Backups as files of an operator: written, checked, and restored into a new cluster.

1. A backup is written beside its name, and takes the name once it was read back whole and is stable
   on the disk. So what has the name is a backup, and what a transfer left behind is not lost.
2. A restore is a recovery (``recovery``) from a file instead of a member's data: numbers continue
   above all that were given out, all sessions end, and the cluster has a new id.
3. It goes into a directory that is not there, or is empty. Nothing is overwritten.
"""

from __future__ import annotations

import fcntl
import io
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from coordinator.errors import BadArgumentsError, StorageError
from coordinator.node.config import Config
from coordinator.node.recovery import found, time_now, what_to_do
from coordinator.node.stable_files import sync_directory
from coordinator.raft.backup import HeldBackup, entries_behind, replay
from coordinator.raft.engine import BackupFacts
from coordinator.raft.rejoin.refounding import HeldData, refuse_unfinished
from coordinator.raft.storage.backup_file import BackupFile
from coordinator.raft.storage.backup_file import Header as Header
from coordinator.raft.storage.disk import OsDisk
from coordinator.service.base.replica import MachineReplica
from coordinator.service.reporting.status import product_version
from coordinator.state.machine import StateMachine

_PIECE_BYTES = 256 * 1024


class Draft:
    """A backup on its way to its name; one process at a time writes it.

    Raises:
        StorageError: another process writes it, or the disk refuses.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._draft = f"{path}.part"
        while (file := self._locked()) is None:
            pass
        self._file = file
        self.size_bytes = file.seek(0, os.SEEK_END)

    def _locked(self) -> io.FileIO | None:
        """Return the draft, locked; None if another process has finished it meanwhile, so that what
        is locked is no draft any more."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = io.FileIO(os.open(self._draft, flags, 0o600), "r+")
        except OSError as error:
            raise StorageError(f"{self._draft}: {error.strerror}", path=self.path) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.lstat(self._draft)):
                os.fchmod(file.fileno(), 0o600)
                return file
        except FileNotFoundError:
            pass
        except OSError as error:
            file.close()
            raise StorageError(
                f"{self._draft}: expected that nobody writes it, found: {error.strerror}",
                path=self.path,
            ) from error
        file.close()
        return None

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def begun_id(self) -> str | None:
        """Return the id of the backup that an earlier transfer began; None if there is none."""
        try:
            file = BackupFile(OsDisk(), self._draft)
        except StorageError:
            return None
        file.close()
        return file.header.backup_id

    def begin_again(self) -> None:
        """Forget what is there."""
        self._file.seek(0)
        self._file.truncate()
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise StorageError(f"{self._draft}: {error.strerror}", path=self.path) from error
        self.size_bytes += len(data)

    def finish(self) -> Header:
        """Check all of it, make it stable, and give it its name. One that is not whole is removed:
        StorageError."""
        try:
            os.fsync(self._file.fileno())
            try:
                header = checked(self._draft)
            except StorageError:
                with suppress(OSError):
                    os.unlink(self._draft)
                raise
            os.replace(self._draft, self.path)
            sync_directory(Path(self.path).absolute().parent)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}", path=self.path) from error
        return header


def checked(path: str) -> Header:
    """Read all of a backup, and return its header.

    Raises:
        StorageError: it was cut, or changed at any byte, or cannot be read.
    """
    file = BackupFile(OsDisk(), path)
    try:
        file.check()
    finally:
        file.close()
    return file.header


def write_from_data(data_dir: str, path: str) -> tuple[Header, bool]:
    """Write a backup of the data of a member that does not run: the state after its last entry.

    Its last entries may not be on any other member (``docs/recovery.md``). Returns also whether
    the member has its vote: if not, its data may lack anything that was acknowledged.

    Raises:
        StorageError: the member runs, its data cannot be trusted, or the disk refuses.
    """
    held = HeldData(OsDisk(), data_dir.rstrip("/"))
    reader = None
    try:
        if held.differs:
            raise StorageError(
                f"{data_dir}: expected data that agree with the other members', found that they"
                " differed from a quorum: back up another member",
                path=data_dir,
            )
        machine = StateMachine()
        at = held.replay(MachineReplica(machine))
        reader = held.snapshot()
        facts = BackupFacts(
            backup_id=os.urandom(8).hex(), cluster=held.owner.cluster, release=product_version(),
            level=machine.level, time=time_now(), zxid=machine.zxid,
        )  # fmt: skip
        entries = entries_behind(reader, held.entries(), at.index)
        owner = held.owner
        backup = HeldBackup(reader, entries, facts, owner.member_id, owner.cluster_id.hex())
        for _ in backup.prepare():
            pass
        with Draft(path) as draft:
            draft.begin_again()
            while piece := backup.read(draft.size_bytes, _PIECE_BYTES):
                draft.write(piece)
            return draft.finish(), held.has_vote
    finally:
        if reader is not None:
            reader.close()
        held.close()


def restore(
    config: Config,
    path: str,
    *,
    by: str,
    reason: str,
    data_dir: str | None = None,
    turns_access_off: bool = False,
) -> str:
    """Begin a new cluster from a backup, in the data directory of this member; say what was done.

    Args:
        data_dir: instead of that of ``config``.
        turns_access_off: as for ``recovery.recover``.

    Raises:
        BadArgumentsError: the directory is not empty.
        StorageError: the backup is not whole, this release cannot read it, or the disk refuses.
    """
    if data_dir is not None:
        config = replace(config, member=replace(config.member, data_dir=data_dir))
    data_dir, disk = config.member.data_dir.rstrip("/"), OsDisk()
    refuse_unfinished(disk, data_dir)
    if disk.exists(data_dir) and disk.list_directory(data_dir):
        raise BadArgumentsError(
            f"{data_dir}: expected no directory, or an empty one, found data: move them away, or"
            " name another one"
        )
    file = BackupFile(disk, path)
    try:
        file.check()
        machine = StateMachine()
        at = replay(file, MachineReplica(machine))
    finally:
        file.close()
    header = file.header
    begun = found(
        config, machine, at, by=by, reason=reason, turns_access_off=turns_access_off,
        note={
            "backup": path, "backup_time": header.time,
            "cluster_before": header.cluster, "cluster_id_before": header.cluster_id,
        },
        detail={"backup": path},
    )  # fmt: skip
    return (
        f"{data_dir} begins {begun.in_words()}, as it was at {header.time}. Acknowledged writes"
        f" since then are not in it, and all {begun.sessions_ended} sessions have ended, with"
        f" their locks. Members of the cluster of before are refused. Now {what_to_do(config)}."
    )
