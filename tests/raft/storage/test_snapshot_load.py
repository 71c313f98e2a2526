"""What a member begins with: its newest snapshot, and a log that goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from coordinator.raft.engine import Replace
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.snapshot_store import SnapshotStore
from tests.raft.storage.exchanges import exchange_with
from tests.raft.storage.simulated_disk import SimulatedDisk


class Blank:
    """A replica whose state is nothing."""

    def apply(self, index: int, term: int, command: bytes) -> Any:
        raise AssertionError("there is nothing to apply")

    def snapshot(self) -> Iterator[bytes]:
        return iter((b"",))

    def prepare_restore(self, pieces: Iterable[bytes]) -> Replace:
        list(pieces)
        return lambda *, is_needed=True: None


def test_a_snapshot_of_a_term_that_was_not_stable_yet_is_begun_with() -> None:
    """Others had committed what it holds, on a disk so slow that the term was not written."""
    disk = SimulatedDisk()
    log = Journal("data", disk)
    log.setCurrentTerm(1, "2")
    log.sync()
    store = SnapshotStore("data/snapshots", disk, piece_bytes=512)
    writer = store.begin_write((b"b", 150, 2), (b"a", 149, 1))
    writer.write(b"state")
    writer.finish()
    exchange = exchange_with(store=store, log=log, replica=Blank())

    assert exchange.load() == 150
    assert (log.getCurrentTerm(), log.getVotedForNodeId()) == (2, None)
    assert log[0][1:] == (150, 2)
    disk.crash()
    assert Journal("data", disk).getCurrentTerm() == 2
