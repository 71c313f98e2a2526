"""The term, the vote, and which segments belong to the log: one small file, replaced as a whole.

``magic 8 · crc 4 · format 4 · term 8 · first sequence 8 · last sequence 8 · vote length 4 · vote``

1. ``save`` returns when the new file is stable under its name: written beside, synced, renamed,
   directory synced (a vote that is not stable can be given twice; Raft paper, section 5.2).
2. A file that cannot be read is an error, never "term 0, no vote".
3. Segments before ``first_sequence`` are not needed any more; ``last_sequence`` and those between
   were there when this was written, so a missing one is noticed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from coordinator.errors import StorageError
from coordinator.raft.disk import Disk, join

NAME = "term"
_TEMPORARY = "term.tmp"
_MAGIC = b"COORDTRM"
_FORMAT = 1
_NO_VOTE = 0xFFFF_FFFF
_VOTE_BYTES_MAX = 1024
_FIELDS = struct.Struct("<IQQQI")
_PREFIX_BYTES = len(_MAGIC) + 4


@dataclass(frozen=True, slots=True)
class TermState:
    """What the file says."""

    term: int = 0
    voted_for: str | None = None
    first_sequence: int = 1
    last_sequence: int = 0


def save(disk: Disk, directory: str, state: TermState) -> None:
    """Replace the file; returns when that is stable."""
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
    body = fields + vote
    temporary = join(directory, _TEMPORARY)
    file = disk.create(temporary)
    try:
        file.write(_MAGIC + crc32(body).to_bytes(4, "little") + body)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, join(directory, NAME))
    disk.sync_directory(directory)


def load(disk: Disk, directory: str) -> TermState | None:
    """Return what the file says, None when there is none; StorageError when it is not sound."""
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
    vote = body[_FIELDS.size :]
    if format_number != _FORMAT:
        raise _unsound(path, f"format {format_number} instead of {_FORMAT}")
    if len(vote) != (0 if vote_length == _NO_VOTE else vote_length):
        raise _unsound(path, f"a vote of {len(vote)} bytes")
    voted_for = None if vote_length == _NO_VOTE else vote.decode("utf-8", "replace")
    return TermState(term, voted_for, first, last)


def _unsound(path: str, found: str) -> StorageError:
    return StorageError(
        f"{path}: expected a term file, found {found}; this member's term and vote are lost, "
        "so it must not vote: replace the member",
        path=path,
    )
