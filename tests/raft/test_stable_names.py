"""A name that something depends on is stable when whoever made it goes on (disk, 3)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.raft.rejoin import incarnation_record as incarnation_record
from coordinator.raft.rejoin import recovering
from coordinator.raft.rejoin.recovering import Proof, Recovering
from coordinator.raft.storage import hard_state as term
from coordinator.raft.storage import ownership, quarantine, segments
from coordinator.raft.storage.disk import OsDisk, replace_file
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.ownership import Owner
from coordinator.raft.storage.snapshot_store import SnapshotStore
from tests.raft.storage.simulated_disk import SimulatedDisk

HINTS = frozenset({"synced", "term.spare", "term.before"})
"""Names that nothing depends on."""


def loose_names(disk: SimulatedDisk) -> set[str]:
    """Return the names that a power cut could undo: set, or taken away for good."""
    found = set()
    for path, directory in disk.directories.items():
        for put, unset in directory.changes:
            found |= {f"{path}/{name}" for name in {*put, *unset} - HINTS}
    return {each for each in found if not each.endswith(".tmp")}


def a_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    for path in ("data", "data/log", "data/snapshots"):
        disk.make_directory(path)
    return disk


def replaced(disk: SimulatedDisk) -> None:
    replace_file(disk, "data", "a", b"one")
    replace_file(disk, "data", "a", b"another")


def a_segment(disk: SimulatedDisk) -> None:
    segments.create(disk, "data/log", 1, 0, 7)


def a_new_log(disk: SimulatedDisk) -> None:
    Journal("data/log", disk)


def a_log_that_rolls(disk: SimulatedDisk) -> None:
    journal = Journal("data/log", disk, segment_bytes=200)
    for index in range(1, 9):
        journal.add(b"x" * 150, index, 0)
        journal.sync()
    assert len(disk.list_directory("data/log")) > 6


def a_vote(disk: SimulatedDisk) -> None:
    term.save(disk, "data/log", term.TermState(3, "2"))


def a_vote_without_room(disk: SimulatedDisk) -> None:
    term.save(disk, "data/log", term.TermState(3, "2"))
    term.prepare(disk, "data/log")
    disk.fill()
    assert not term.save(disk, "data/log", term.TermState(4, "3"))


def recovery_begun_and_ended(disk: SimulatedDisk) -> None:
    own = Recovering(disk, directory="data", member_id="1", member_count=3, is_new=True)
    own.note_history()
    own.note_caught_up(Proof(1, 1))
    own.maybe_end(1, 0)
    assert own.is_proven


def recovery_begun(disk: SimulatedDisk) -> None:
    Recovering(disk, directory="data", member_id="1", member_count=3, is_new=False).begin("a test")


def recovery_begun_without_room(disk: SimulatedDisk) -> None:
    incarnation_record.save(disk, "data", b"")
    own = Recovering(disk, directory="data", member_id="1", member_count=3, is_new=False)
    disk.fill()
    own.begin("a test")
    assert disk.exists(f"data/{recovering.NAME}")


def an_owner(disk: SimulatedDisk) -> None:
    ownership.save(disk, "data", Owner("c", "1"))


def a_quarantine(disk: SimulatedDisk) -> None:
    quarantine.quarantine(disk, "data", "a test")


def a_snapshot(disk: SimulatedDisk) -> None:
    store = SnapshotStore("data/snapshots", disk, piece_bytes=100)
    for index in (5, 9):
        writer = store.begin_write((b"", index, 1), (b"", index - 1, 1))
        writer.write(b"piece")
        writer.finish()


DEEDS = (
    replaced, a_segment, a_new_log, a_log_that_rolls, a_vote, a_vote_without_room,
    recovery_begun_and_ended, recovery_begun, recovery_begun_without_room, an_owner,
    a_quarantine, a_snapshot,
)  # fmt: skip


@pytest.mark.parametrize("act", DEEDS)
def test_what_was_done_is_stable_when_it_is_done(act: Callable[[SimulatedDisk], None]) -> None:
    """A power cut right after it takes no name back."""
    disk = a_disk()

    act(disk)

    assert loose_names(disk) == set()


def test_a_directory_is_stable_in_each_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is in its parent: that one is synced, for each level that is made."""
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    OsDisk().make_directory(str(tmp_path / "a" / "b" / "c"))

    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]


def test_syncing_a_directory_asks_the_system_for_that_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the directory itself, not of a file in it."""
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )

    OsDisk().sync_directory(str(tmp_path))

    assert synced == [str(tmp_path)]
