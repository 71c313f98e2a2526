"""When snapshots are made: little by little, and not by all members at the same entry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from coordinator.config import RaftConfig
from coordinator.raft.storage.snapshot_exchange import PIECE_EVERY_MS
from coordinator.raft.storage.snapshot_store import SnapshotInfo
from tests.raft.simulated_cluster import SimulatedCluster
from tests.raft.simulated_loop import run
from tests.raft.storage.exchanges import exchange_with


class Store:
    """Notes when the pieces come."""

    def __init__(self) -> None:
        self.written_s: list[float] = []

    def begin_write(self, _last: object, _previous: object) -> Store:
        return self

    def write(self, _piece: bytes) -> None:
        self.written_s.append(asyncio.get_running_loop().time())

    def finish(self) -> SnapshotInfo:
        return SnapshotInfo(index=2, term=1, size_bytes=0, sha256=b"", path="")


class Pieces:
    """A replica with a snapshot of some pieces."""

    def snapshot(self) -> Iterator[bytes]:
        return iter([b"piece"] * 4)


@pytest.mark.parametrize(("is_next_due", "passes"), [(False, PIECE_EVERY_MS), (True, 0)])
def test_the_pieces_of_a_snapshot_are_drawn_some_time_apart(is_next_due: bool, passes: int) -> None:
    """Requests that come meanwhile wait for one piece, not for all; the log does not wait long."""

    async def scenario() -> None:
        store = Store()
        exchange = exchange_with(
            store=store,
            log=[(b"", 1, 1), (b"", 2, 1)],
            replica=Pieces(),
            raft=RaftConfig(snapshot_every_bytes=10),
        )
        exchange.due.note_applied(10)
        exchange.maybe_make(2)
        exchange.due.note_applied(10 if is_next_due else 9)
        making: Any = exchange._making
        await making

        apart_s = [after - before for before, after in pairwise(store.written_s)]
        assert apart_s == pytest.approx(3 * [passes / 1000])
        assert exchange.made_total == 1

    run(scenario())


def test_members_make_their_snapshots_at_different_entries() -> None:
    """A cluster whose members all worked on theirs at once would be slow as a whole."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, snapshot_every_bytes=30_000).start()
        leader = await cluster.leader()
        for _ in range(45):
            await leader.engine.propose(bytes(1_000))
        await cluster.until(
            lambda: all(each.engine.metrics()["snapshots_made_total"] for each in cluster.members)
        )
        made = [each.engine.status().snapshot_index for each in cluster.members]

        apart = sorted(made)
        assert apart[1] - apart[0] >= 5, made
        assert apart[2] - apart[1] >= 5, made
        await cluster.stop()

    run(scenario())
