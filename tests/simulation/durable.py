"""What is on the disks: what a power cut at this moment leaves at the very least.

It is read from the bytes that were synced, below names that were synced, without asking any part of
the product whether it believes them to be stable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from coordinator.raft.rejoin import incarnation_record as incarnations
from coordinator.raft.rejoin import recovering
from coordinator.raft.storage.records import HEADER_BYTES, MAGIC
from tests.raft.storage.simulated_disk import Directory, Inode, SimulatedDisk

Found = Iterator[tuple[str, str]]

_PLACE = struct.Struct("<QQ")
"""Index and term: the end of the header of a record of the log."""
_LENGTH_AT, _MASK_AT = 12, 17
NEWEST = (1, 4, 16, None)
"""How many files of each log are searched, until that is enough: there are hundreds, and what was
stored just now is in the last of them."""


def is_stable(
    disk: SimulatedDisk, index: int, term: int, payload: bytes, newest: int | None = None
) -> bool:
    """Say whether an entry of the log with ``payload`` in it is stored on ``disk``.

    ``newest``: look at no more than so many files of a directory, those that came last.
    """
    place = _PLACE.pack(index, term)
    for directory in disk.directories.values():
        names = (name for name in reversed(directory.stable) if name.endswith(".log"))
        for name in islice(names, newest):
            if _holds(directory.stable[name].stable, place, payload):
                return True
    return False


def check_quorum(
    members: Sequence[Iterable[SimulatedDisk]], index: int, term: int, payload: bytes
) -> Found:
    """An entry that is applied is stored by a quorum; of each member on any disk that it ever had.

    Since what one acknowledged may be counted after its disk was lost, which is one failure.
    """
    for newest in NEWEST:
        holding = 0
        for has in members:
            holding += any(is_stable(disk, index, term, payload, newest) for disk in has)
            if 2 * holding > len(members):
                return
    yield (
        "on the disks of a quorum",
        f"entry {index} of term {term} is applied, and stable on {holding} disks of "
        f"{len(members)}: {payload[:80]!r}",
    )


def is_marked(disk: SimulatedDisk) -> bool:
    """Say whether it is stable that the member of this disk may have forgotten something."""
    return recovering.NAME in _files(disk)


def incarnation_of(disk: SimulatedDisk) -> int:
    """Return the incarnation that the member of this disk is in, as far as it is stable."""
    return _incarnations(disk).number


def incarnation_met(disk: SimulatedDisk, member_id: str) -> int:
    """Return the last incarnation of ``member_id`` that the member of this disk will remember."""
    met = _incarnations(disk).met.get(member_id)
    return 0 if met is None else met.number


def _incarnations(disk: SimulatedDisk) -> incarnations.IncarnationRecord:
    stable = SimulatedDisk()
    stable.directories["data"] = Directory(_files(disk))
    return incarnations.load(stable, "data")


def _files(disk: SimulatedDisk) -> dict[str, Inode]:
    """Return the files of a member as far as they are stable, those of its log aside."""
    found = disk.directories.get("data")
    stable = {} if found is None else found.stable
    return {name: Inode(inode.stable, inode.stable) for name, inode in stable.items()}


def _holds(stable: bytearray, place: bytes, payload: bytes) -> bool:
    at = stable.rfind(place)
    while at >= 0:
        start = at + len(place) - HEADER_BYTES
        if start >= 0 and stable.startswith(MAGIC, start):
            length = int.from_bytes(stable[start + _LENGTH_AT : start + _LENGTH_AT + 4], "little")
            body_at = at + len(place)
            if stable[start + _MASK_AT] or stable.find(payload, body_at, body_at + length) >= 0:
                return True
        at = stable.rfind(place, 0, at)
    return False
