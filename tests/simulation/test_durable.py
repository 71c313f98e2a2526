"""What is stored is told from what is only written, on each disk and on a quorum of them."""

from __future__ import annotations

import pytest

from coordinator.raft.storage.journal import Journal
from tests.raft.storage.simulated_disk import SimulatedDisk, SimulatedFile
from tests.simulation.durable import check_quorum, is_stable
from tests.simulation.world import Settings, simulate

FOUND = {"on the disks of a quorum"}
TERM = 0


def a_log(*, is_synced: bool = True) -> SimulatedDisk:
    """Return a disk with a log of three entries of one term, the last of which is 'three'."""
    disk = SimulatedDisk(1)
    disk.make_directory("log")
    journal = Journal("log", disk, segment_bytes=4_096, draw_salt=lambda: 7)
    for index, payload in enumerate((b"one", b"two"), 1):
        journal.add(payload, index, TERM)
    journal.sync()
    journal.add(b"three", 3, TERM)
    if is_synced:
        journal.sync()
    return disk


def test_what_is_synced_is_stable_and_nothing_else() -> None:
    """Each entry by its index, its term and what it says."""
    disk = a_log(is_synced=False)

    assert is_stable(disk, 2, TERM, b"two")
    assert not is_stable(disk, 3, TERM, b"three"), "it is only written"
    assert not is_stable(disk, 2, TERM + 1, b"two"), "it is of another term"
    assert not is_stable(disk, 2, TERM, b"one"), "it says something else"
    assert is_stable(a_log(), 3, TERM, b"three")


@pytest.mark.parametrize(("synced", "found"), [(3, set()), (2, set()), (1, FOUND), (0, FOUND)])
def test_an_entry_that_no_quorum_has_stored_is_found(synced: int, found: set[str]) -> None:
    """Two disks of three are enough, whichever they are; one is not."""
    members = [[a_log(is_synced=number < synced)] for number in range(3)]

    assert {promise for promise, _ in check_quorum(members, 3, TERM, b"three")} == found


def test_a_disk_that_was_lost_afterwards_counts() -> None:
    """Its member had stored the entry when it said so."""
    members = [[a_log()], [SimulatedDisk(2), a_log()], [SimulatedDisk(3)]]

    assert not list(check_quorum(members, 3, TERM, b"three"))


def test_a_world_of_disks_that_store_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing needs to crash for that."""
    monkeypatch.setattr(SimulatedFile, "sync", lambda _file: None)

    verdict = simulate(1, Settings(seconds=5.0, stops_at_first=True))

    assert verdict.violations[0].promise == "on the disks of a quorum"
