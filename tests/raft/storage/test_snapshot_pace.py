"""When snapshots are made: little by little, and not by all members at the same entry."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.blocking import Result
from coordinator.raft.storage.snapshot_exchange import DIRTY_BYTES_MAX, PIECE_EVERY_MS
from coordinator.raft.storage.snapshot_store import SnapshotInfo
from tests.raft.simulated_cluster import SimulatedCluster
from tests.raft.simulated_loop import run
from tests.raft.storage.exchanges import exchange_with


class Store:
    """Notes when the pieces come, and before how many of them the disk was to begin."""

    def __init__(self) -> None:
        self.written_s: list[float] = []
        self.written_out: list[int] = []

    def begin_write(self, _last: object, _previous: object) -> Store:
        return self

    def write(self, _piece: bytes) -> None:
        self.written_s.append(asyncio.get_running_loop().time())

    def write_out(self) -> None:
        self.written_out.append(len(self.written_s))

    def abort(self) -> None:
        self.written_out.append(-1)

    def finish(self) -> SnapshotInfo:
        return SnapshotInfo(index=2, term=1, size_bytes=0, sha256=b"", path="")


async def in_place(call: Callable[[], Result], /) -> Result:
    """Run it at once: the simulated loop knows no threads."""
    return call()


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
            run_blocking=in_place,
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


def test_the_disk_begins_with_a_large_snapshot_before_its_end() -> None:
    """What is left for the sync at the end holds up the syncs of the log."""

    async def scenario() -> None:
        store = Store()
        exchange = exchange_with(store=store, log=[(b"", 1, 1), (b"", 2, 1)], run_blocking=in_place)
        pieces = [bytes(DIRTY_BYTES_MAX // 4)] * 10
        await exchange._make(pieces, (b"", 2, 1), (b"", 1, 1))

        assert store.written_out == [4, 8]
        assert exchange.made_total == 1

    run(scenario())


async def test_one_given_up_while_the_disk_works_is_dropped_when_it_is_done() -> None:
    """Its file is not closed while a thread uses it."""
    started, may_end = threading.Event(), threading.Event()

    class Slow(Store):
        def write_out(self) -> None:
            started.set()
            may_end.wait(10)
            super().write_out()

    store = Slow()
    exchange = exchange_with(store=store, log=[(b"", 1, 1), (b"", 2, 1)])
    pieces = [bytes(DIRTY_BYTES_MAX)] * 2
    exchange._making = asyncio.ensure_future(exchange._make(pieces, (b"", 2, 1), (b"", 1, 1)))
    await asyncio.to_thread(started.wait, 10)
    stopping = asyncio.ensure_future(exchange.stop())
    await asyncio.sleep(0.05)
    exchange._making.cancel()  # once more
    await asyncio.sleep(0.05)
    assert store.written_out == []
    may_end.set()
    await stopping

    assert store.written_out == [1, -1]


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
