"""Every state that a power cut may leave of small files, byte by byte.

``SimulatedDisk.crash`` draws one of many; here are all, for files that are written whole, as the
notes of a member are. Of each file that was not synced, any first bytes of the new content may be
there, or zeros up to its length; of the names that were not synced, any. One file is torn at a
time, the others are there whole or not at all; what has no name yet that anybody reads (``.tmp``)
is not torn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeVar

from tests.raft.storage.simulated_disk import (
    Directory,
    Inode,
    SimulatedCrashError,
    SimulatedDisk,
)

T = TypeVar("T")
Files = dict[str, dict[str, bytes]]
"""Contents by name, by directory."""
_CHANGES_MAX = 6


def cut_at_each_step(
    run: Callable[[SimulatedDisk], object],
    before: Files,
    said: Callable[[], T],
) -> Iterator[tuple[Files, T]]:
    """Run it on these files, and cut the power before each step, and after the last.

    Yields:
        Every state that is left, with what ``said`` returns after that run; each pair once.
    """
    seen: set[str] = set()
    step = 0
    while True:
        step += 1
        disk = disk_of(before)
        disk.crash_at_step = step
        is_over = False
        try:
            run(disk)
            is_over = True
        except SimulatedCrashError:
            pass
        then = said()
        for files in left_by(disk):
            key = repr((files, then))
            if key not in seen:
                seen.add(key)
                yield files, then
        if is_over:
            return


def disk_of(files: Files) -> SimulatedDisk:
    """Return a disk with these files, all stable."""
    disk = SimulatedDisk(0)
    for path, names in files.items():
        inodes = {name: Inode(bytearray(data), bytearray(data)) for name, data in names.items()}
        disk.directories[path] = Directory(inodes, dict(inodes))
    return disk


def left_by(disk: SimulatedDisk) -> Iterator[Files]:
    """Yield the states that a power cut may leave now."""
    trees = [_names_left(directory) for directory in disk.directories.values()]
    for tree in product(*trees):
        inodes: dict[Inode, bool] = {}
        for name, inode in (item for names in tree for item in names.items()):
            inodes[inode] = inodes.get(inode, False) or not name.endswith(".tmp")
        for contents in _contents_left(inodes):
            yield {
                path: {name: contents[inode] for name, inode in names.items()}
                for path, names in zip(disk.directories, tree, strict=True)
            }


def _names_left(directory: Directory) -> list[dict[str, Inode]]:
    assert len(directory.changes) <= _CHANGES_MAX, "too many to go through all"
    found = []
    for chosen in product((False, True), repeat=len(directory.changes)):
        names = dict(directory.stable)
        for (put, unset), is_kept in zip(directory.changes, chosen, strict=True):
            if is_kept:
                for name in unset:
                    names.pop(name, None)
                names.update(put)
        found.append(names)
    return found


def _contents_left(inodes: dict[Inode, bool]) -> Iterator[dict[Inode, bytes]]:
    """``inodes``: whether each has a name that is read."""
    stable = {inode: bytes(inode.stable) for inode in inodes}
    whole = {inode: bytes(inode.data) for inode in inodes}
    yield stable
    yield whole
    for inode, is_read in inodes.items():
        if is_read and inode.data != inode.stable:
            for torn in _torn(inode):
                yield {**whole, inode: torn}
                yield {**stable, inode: torn}


def _torn(inode: Inode) -> Iterator[bytes]:
    new, old = bytes(inode.data), bytes(inode.stable)
    for length in range(len(new)):
        yield new[:length] + old[length:]
        yield new[:length] + bytes(len(new) - length)
