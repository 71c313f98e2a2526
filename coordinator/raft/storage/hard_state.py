"""The hard state: term, vote and the log's segments, in one small file that is replaced as a whole.

``magic 8 · crc 4 · format 4 · term 8 · first sequence 8 · last sequence 8 · vote length 4 · vote``,
then zeros up to ``FILE_BYTES``.

1. ``save`` returns when the new file is stable under its name: written beside, synced, renamed,
   directory synced (a vote that is not stable can be given twice; Raft paper, section 5.2).
2. A file that cannot be read is an error, never "term 0, no vote".
3. Segments before ``first_sequence`` are not needed any more; ``last_sequence`` and those between
   were there when this was written, so a missing one is noticed.
4. A full disk does not stop a vote. A *spare* file of the same size is kept beside it: without room
   for a new file the spare is overwritten, which needs no room, and synced; then the two swap their
   names. The spare is never read, and it is overwritten only while it is stably not the term file.
   If it was lost, or files cannot have two names, or overwriting needs room (copy on write),
   ``save`` raises DiskFullError and has changed nothing.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.storage.disk import Disk, join, replace_file, write_file

NAME = "term"
SPARE = "term.spare"
FILE_BYTES = 512
_BEFORE = "term.before"
_MAGIC = b"coordtrm"
_FORMAT = 1
_NO_VOTE = 0xFFFF_FFFF
_VOTE_BYTES_MAX = 400
_FIELDS = struct.Struct("<IQQQI")
_PREFIX_BYTES = len(_MAGIC) + 4


@dataclass(frozen=True, slots=True)
class TermState:
    """The content of the file."""

    term: int = 0
    voted_for: str | None = None
    first_sequence: int = 1
    last_sequence: int = 0


def save(disk: Disk, directory: str, state: TermState) -> bool:
    """Replace the file; returns when that is stable: True when there was room for a new file."""
    data = _encode(state)
    try:
        replace_file(disk, directory, NAME, data)
    except DiskFullError:
        if not _write_over_spare(disk, directory, data):
            raise
        return False
    return True


def prepare(disk: Disk, directory: str) -> None:
    """Make the spare if it is missing and there is room; at the start, after ``load``."""
    spare, before = join(directory, SPARE), join(directory, _BEFORE)
    if disk.exists(before):
        disk.remove(before)  # of an exchange that was not finished
    if disk.exists(spare):
        return
    try:
        write_file(disk, spare, bytes(FILE_BYTES))
        disk.sync_directory(directory)
    except DiskFullError:
        if disk.exists(spare):
            disk.remove(spare)


def load(disk: Disk, directory: str) -> TermState | None:
    """Return the content, None if there is no file; StorageError if it is damaged."""
    path = join(directory, NAME)
    if not disk.exists(path):
        return None
    data = disk.read(path)
    body = data[_PREFIX_BYTES:]
    if data[: len(_MAGIC)] != _MAGIC or len(body) < _FIELDS.size:
        raise _unsound(path, f"{len(data)} bytes that begin with {data[:8].hex() or 'nothing'}")
    expected = int.from_bytes(data[len(_MAGIC) : _PREFIX_BYTES], "little")
    if crc32(body) != expected:
        raise _unsound(path, f"crc {crc32(body):08x} instead of {expected:08x}")
    format_number, term, first, last, vote_length = _FIELDS.unpack_from(body)
    if format_number != _FORMAT:
        raise _unsound(path, f"format {format_number} instead of {_FORMAT}")
    length = 0 if vote_length == _NO_VOTE else vote_length
    vote, rest = body[_FIELDS.size :][:length], body[_FIELDS.size :][length:]
    if len(vote) != length or any(rest):
        raise _unsound(path, f"a vote of {len(vote)} bytes, then {len(rest)}")
    voted_for = None if vote_length == _NO_VOTE else vote.decode("utf-8", "replace")
    return TermState(term, voted_for, first, last)


def _encode(state: TermState) -> bytes:
    vote = b"" if state.voted_for is None else state.voted_for.encode("utf-8")
    if len(vote) > _VOTE_BYTES_MAX:
        raise StorageError(f"a vote of {len(vote)} bytes, expected at most {_VOTE_BYTES_MAX}")
    fields = _FIELDS.pack(
        _FORMAT,
        state.term,
        state.first_sequence,
        state.last_sequence,
        _NO_VOTE if state.voted_for is None else len(vote),
    )
    body = (fields + vote).ljust(FILE_BYTES - _PREFIX_BYTES, b"\0")
    return _MAGIC + crc32(body).to_bytes(4, "little") + body


def _write_over_spare(disk: Disk, directory: str, data: bytes) -> bool:
    """Let the spare become the file and the file the spare; False where that cannot be done.

    The names change so that a crash leaves one of the two, whole, under ``NAME``: the file gets a
    second name, the spare takes its first, and when that is stable the second becomes ``SPARE``."""
    path, spare = join(directory, NAME), join(directory, SPARE)
    before = join(directory, _BEFORE)
    if not disk.exists(spare):
        return False
    try:
        file = disk.open_append(spare)
        try:
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
        if disk.exists(before):
            disk.remove(before)  # of an exchange that was not finished
        if not disk.link(path, before):
            return False
        disk.rename(spare, path)
    except DiskFullError:
        return False
    disk.sync_directory(directory)
    with suppress(DiskFullError):  # then there is no spare any more
        disk.rename(before, spare)
    return True


def _unsound(path: str, found: str) -> StorageError:
    return StorageError(
        f"{path}: expected a term file, found {found}; this member's term and vote are lost, "
        "so it must not vote: replace the member",
        path=path,
    )
