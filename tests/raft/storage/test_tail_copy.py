"""A start that dies while it repairs the log's tail, and what the next one finds."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk
from tests.raft.storage.test_journal_damage import Entry, batch_log, open_journal, opened

BEFORE: list[Entry] = [(b"first", 1, 0), (b"b" * 600, 2, 0)]


def torn_before_a_whole_batch(after: str) -> SimulatedDisk:
    """The power went while two batches were written: of the first one the second entry is spoilt,
    and the second batch, in the next block, is whole."""
    disk, path, _ = batch_log([])
    journal = open_journal(disk, 10_000_000)
    journal.add(BEFORE[1][0], 2, 0)
    journal.add(b"c" * 600, 3, 0)
    journal.write()
    if after == "a cut":
        journal.deleteEntriesFrom(2)
        journal.add(b"other", 3, 0)
    else:
        journal.add(b"fourth", 4, 0)
    journal.write()
    disk.kill()
    whole = disk.content(path)
    spoilt = whole.index(b"c" * 600) // 512 * 512 + 512
    noise = random.Random(1).randbytes(512)
    disk.overwrite(path, whole[:spoilt] + noise + whole[spoilt + 512 :])
    disk.overwrite("data/synced", b"")
    return disk


@pytest.mark.parametrize("is_power_cut", [True, False])
@pytest.mark.parametrize("after", ["an entry", "a cut"])
def test_a_start_that_dies_does_not_bring_back_what_it_cut(after: str, is_power_cut: bool) -> None:
    """It fills the last block, so what a torn write left behind that would be read on: an entry
    that does not follow, for which the member would have to be replaced."""
    disk = torn_before_a_whole_batch(after)
    assert opened(disk) == BEFORE
    for step in range(1, 16):
        for seed in range(20):
            disk.random.seed(seed)
            copy = disk.copy()
            copy.is_spoiling = True
            copy.crash_at_step = step
            with suppress(SimulatedCrashError):
                open_journal(copy)
            if is_power_cut:
                copy.crash()
            else:
                copy.kill()

            assert opened(copy) == BEFORE, f"step {step}, seed {seed}"


def test_a_copy_that_a_killed_start_left_is_stable_before_it_is_used() -> None:
    """Its name may not be yet, and the power may go while the log is written from it."""
    disk = torn_before_a_whole_batch("an entry")
    for killed_at in range(1, 10):
        for cut_at in range(1, 10):
            for seed in range(10):
                disk.random.seed(seed)
                copy = disk.copy()
                copy.is_spoiling = True
                copy.crash_at_step = killed_at
                with suppress(SimulatedCrashError):
                    open_journal(copy)
                copy.kill()
                copy.crash_at_step = copy.step_count + cut_at
                with suppress(SimulatedCrashError):
                    open_journal(copy)
                copy.crash()

                assert opened(copy) == BEFORE, f"steps {killed_at} and {cut_at}, seed {seed}"


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_copy_is_gone_for_good_before_anything_is_added(is_orderly: bool) -> None:
    """The log ends where the copy does: one that came back would cut what was acknowledged."""
    for seed in range(40):
        disk = torn_before_a_whole_batch("an entry")
        disk.is_orderly = is_orderly
        disk.random.seed(seed)
        journal = open_journal(disk)
        journal.add(b"added", 3, 0)
        journal.sync()
        disk.crash()

        assert opened(disk) == [*BEFORE, (b"added", 3, 0)]
