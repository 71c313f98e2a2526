"""Term and vote on a disk: replaced as a whole, with room kept for them on a full one."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.engine import Role
from coordinator.raft.storage import hard_state as term
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.hard_state import FILE_BYTES, NAME, SPARE, TermState
from tests.raft.simulated_cluster import with_full_follower
from tests.raft.simulated_loop import run
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk

FIRST = TermState(term=1, voted_for=None, first_sequence=1, last_sequence=1)


def a_disk(seed: int = 0, *, is_orderly: bool = True) -> SimulatedDisk:
    """Return a disk with a term file and its spare."""
    disk = SimulatedDisk(seed, is_orderly=is_orderly)
    disk.make_directory("data")
    term.save(disk, "data", FIRST)
    term.prepare(disk, "data")
    return disk


def stored(disk: SimulatedDisk) -> TermState | None:
    return term.load(disk, "data")


def test_what_was_saved_is_read() -> None:
    """Each field, a vote or none, on a disk with room and on one without."""
    disk = a_disk()
    states = [
        TermState(term=7, voted_for=None, first_sequence=1, last_sequence=3),
        TermState(term=7, voted_for="2", first_sequence=2, last_sequence=3),
        TermState(term=1 << 40, voted_for="é" * 32, first_sequence=9, last_sequence=9),
    ]
    for state in states:
        assert term.save(disk, "data", state) is True
        assert stored(disk) == state
    disk.fill()
    for state in states:
        assert term.save(disk, "data", state) is False
        assert stored(disk) == state


def test_a_full_disk_takes_one_term_after_the_other() -> None:
    """Two files change places; what was saved survives the loss of power each time."""
    disk = a_disk()
    disk.fill()
    for number in range(2, 40):
        state = TermState(term=number, voted_for=str(number % 3), first_sequence=1, last_sequence=1)
        term.save(disk, "data", state)
        if number % 3 == 0:
            capacity, disk.capacity_bytes = disk.capacity_bytes, None
            disk.crash()
            term.prepare(disk, "data")
            disk.capacity_bytes = capacity
        assert stored(disk) == state
        assert disk.room_bytes() == 0


@pytest.mark.parametrize("is_orderly", [True, False])
@pytest.mark.parametrize("is_full", [True, False])
def test_a_crash_at_any_step_leaves_what_was_saved_or_what_was_being_saved(
    is_orderly: bool, is_full: bool
) -> None:
    """Whole; and afterwards there is a spare again, which is not the file itself."""
    for seed in range(300):
        disk = a_disk(seed, is_orderly=is_orderly)
        if seed % 2:
            disk.fill()
            term.save(disk, "data", FIRST)
            disk.capacity_bytes = None
        if is_full:
            disk.fill()
        before, after = (
            stored(disk),
            TermState(term=5, voted_for="3", first_sequence=1, last_sequence=2),
        )
        disk.crash_at_step = disk.step_count + 1 + seed % 12
        with_crash = False
        try:
            term.save(disk, "data", after)
        except SimulatedCrashError:
            with_crash = True
        disk.crash()
        disk.capacity_bytes = None

        assert stored(disk) in ((before, after) if with_crash else (after,)), f"seed {seed}"
        term.prepare(disk, "data")
        names = disk.directories["data"].names
        assert names[NAME] is not names[SPARE]
        found = stored(disk)
        disk.crash()
        assert stored(disk) == found
        disk.fill()
        term.save(disk, "data", replace(after, term=9))
        disk.crash()
        assert stored(disk) == replace(after, term=9), f"seed {seed}"


@pytest.mark.parametrize("operation", ["link", "rename", "write"])
def test_where_the_spare_does_not_help_nothing_has_changed(operation: str) -> None:
    """No room for a second name, or copy on write: as a full disk without a spare; then it helps
    again."""
    disk = a_disk()
    disk.fill()
    skip = 1 if operation == "write" else 0  # the first is that of the new file
    disk.fail(operation, error=errno.ENOSPC, skip=skip)

    with pytest.raises(DiskFullError):
        term.save(disk, "data", TermState(term=2, voted_for="2", first_sequence=1, last_sequence=1))

    assert stored(disk) == FIRST
    disk.copy().crash()
    assert stored(disk) == FIRST
    assert (
        term.save(disk, "data", TermState(term=2, voted_for="2", first_sequence=1, last_sequence=1))
        is False
    )
    disk.crash()
    assert stored(disk) == TermState(term=2, voted_for="2", first_sequence=1, last_sequence=1)


def test_files_of_one_name_have_no_spare() -> None:
    """Some file systems know no second names: the disk is full, and nothing has changed."""
    disk = a_disk()
    disk.has_one_name_only = True
    disk.fill()

    with pytest.raises(DiskFullError):
        term.save(disk, "data", TermState(term=2, voted_for="2", first_sequence=1, last_sequence=1))

    assert stored(disk) == FIRST


def test_a_lost_name_of_the_spare_is_no_failure() -> None:
    """The term is stable before the file of before becomes the spare."""
    disk = a_disk()
    disk.fill()
    disk.fail("rename", error=errno.ENOSPC, skip=1)

    assert (
        term.save(disk, "data", TermState(term=2, voted_for="2", first_sequence=1, last_sequence=1))
        is False
    )
    with pytest.raises(DiskFullError):
        term.save(disk, "data", TermState(term=3, voted_for="2", first_sequence=1, last_sequence=1))

    disk.crash()
    assert stored(disk) == TermState(term=2, voted_for="2", first_sequence=1, last_sequence=1)
    disk.capacity_bytes = None
    term.prepare(disk, "data")
    disk.fill()
    assert (
        term.save(disk, "data", TermState(term=3, voted_for="2", first_sequence=1, last_sequence=1))
        is False
    )


def test_a_spare_without_room_for_it_is_left_out() -> None:
    """A member starts with what there is."""
    disk = SimulatedDisk()
    disk.make_directory("data")
    term.save(disk, "data", FIRST)
    disk.fill()

    term.prepare(disk, "data")

    assert disk.list_directory("data") == [NAME]


def test_nothing_depends_on_the_spare() -> None:
    """Damaged or lost, it is not missed."""
    disk = a_disk()
    disk.overwrite(f"data/{SPARE}", b"not what it was")
    assert stored(disk) == FIRST
    disk.remove(f"data/{SPARE}")
    term.prepare(disk, "data")
    assert len(disk.content(f"data/{SPARE}")) == FILE_BYTES


def test_a_failed_sync_of_the_spare_is_a_failed_sync() -> None:
    """It is no full disk: the member stops, as after any other."""
    disk = a_disk()
    disk.fill()
    disk.fail("sync", path_part=SPARE)

    with pytest.raises(StorageError, match="made to fail") as failure:
        term.save(disk, "data", TermState(term=2, voted_for="2", first_sequence=1, last_sequence=1))

    assert not isinstance(failure.value, DiskFullError)


def test_the_same_on_a_real_disk(tmp_path: Path) -> None:
    """Files with two names for a moment, and never one that is written over as the term file."""

    class FullDisk(OsDisk):
        """Nothing new can be made."""

        is_full = False

        def create(self, path: str):  # type: ignore[no-untyped-def]
            if self.is_full:
                raise DiskFullError(f"open {path}: No space left on device")
            return super().create(path)

    disk, directory = FullDisk(), str(tmp_path)
    term.save(disk, directory, FIRST)
    term.prepare(disk, directory)
    disk.is_full = True
    for number in range(2, 9):
        state = TermState(term=number, voted_for="2", first_sequence=1, last_sequence=1)
        assert term.save(disk, directory, state) is False
        assert term.load(OsDisk(), directory) == state
        assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, SPARE]
        assert (tmp_path / NAME).stat().st_nlink == 1


def test_a_member_without_one_byte_of_room_votes_and_follows() -> None:
    """The others need its vote: there is a leader in a new term, which it hears and answers."""

    async def scenario() -> None:
        cluster, leader, full = await with_full_follower()
        (other,) = {*cluster.others(leader)} - {full}
        await leader.kill()

        await cluster.until(lambda: other.engine.status().role is Role.LEADER)
        await cluster.until(lambda: full.engine.status().leader_id == other.member_id)

        await asyncio.sleep(5)
        assert other.engine.status().role is Role.LEADER, "it is answered"
        assert not full.failures
        full.disk.capacity_bytes = None
        await other.engine.propose(b"after")
        await leader.start()
        assert await cluster.equal() == [b"before", b"after"]
        await cluster.stop()

    run(scenario())
