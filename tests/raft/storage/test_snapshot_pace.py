"""When snapshots are made: little by little, and not by all members at the same entry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

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


async def test_the_pieces_of_a_snapshot_are_drawn_some_time_apart() -> None:
    """Requests that come meanwhile wait for one piece, not for all."""
    store = Store()
    exchange = exchange_with(
        store=store,
        log=[(b"", 1, 1), (b"", 2, 1)],
        replica=Pieces(),
        raft=RaftConfig(snapshot_every_bytes=1),
    )
    exchange.due.note_applied(1)
    exchange.maybe_make(2)
    making: Any = exchange._making
    await making

    apart_s = [after - before for before, after in pairwise(store.written_s)]
    assert len(apart_s) == 3
    assert min(apart_s) >= PIECE_EVERY_MS / 1000 - 0.0005, "as exact as the loop's clock"
    assert exchange.made_total == 1


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
