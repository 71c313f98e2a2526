"""A received snapshot is checked and decoded elsewhere, and replaces the state in one step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coordinator.raft.network import messages as say
from coordinator.raft.rejoin.incarnations import INCARNATION_MS
from coordinator.raft.storage.snapshot_store import SnapshotStore
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run

SLOW_MS = 2_000.0


async def lagging(cluster: SimulatedCluster) -> tuple[Member, Member]:
    """Return the leader and a member that is down and misses more than the log keeps."""
    await cluster.start()
    leader = await cluster.leader()
    member = cluster.others(leader)[0]
    await leader.engine.propose(b"seen")
    await cluster.equal()
    await member.stop()
    for number in range(450):
        await leader.engine.propose(b"%d" % number)
    return leader, member


def small(piece_bytes: int = 1_000) -> SimulatedCluster:
    return SimulatedCluster(
        3,
        snapshot_every_entries=100,
        keep_entries_after_snapshot=20,
        snapshot_piece_bytes=piece_bytes,
    )


def test_a_member_answers_and_shows_its_old_state_while_it_decodes() -> None:
    """For seconds of work no heartbeat is missed; then the whole new state is there at once."""

    async def scenario() -> None:
        cluster = small()
        leader, member = await lagging(cluster)
        cluster.sync_ms_max = SLOW_MS
        await member.start()
        term = leader.term
        seen: set[int] = set()
        replies: list[float] = []
        loop = asyncio.get_running_loop()

        def note(source: str, _target: str, message: say.Message) -> bool:
            if source == member.member_id and isinstance(message, say.ProbeReply):
                replies.append(loop.time())
            return True

        cluster.network.on_message = note
        while not member.replica.restored_total:
            seen.add(len(member.replica.commands))
            await asyncio.sleep(0.001)
        took_s = replies[-1] - replies[0]

        assert seen <= {0, 1}, "the old state, and then the new one"
        assert len(member.replica.commands) > 300
        assert took_s > SLOW_MS / 1000 / 4
        assert len(replies) > took_s * 1000 / cluster.raft.heartbeat_interval_ms / 4
        assert leader.term == term
        cluster.sync_ms_max = 0.0
        assert len(await cluster.equal(20_000)) == 451
        await cluster.stop()

    run(scenario())


def test_one_that_is_being_made_is_given_up_when_a_newer_one_is_installed() -> None:
    """It would be dropped at its end, and the former state is freed only when it is let go of: a
    member that was paused while it wrote a large one would be busy with that for a minute."""

    async def scenario() -> None:
        cluster = small()
        _leader, member = await lagging(cluster)
        await member.start()
        snapshots = member.engine._passes.snapshots  # type: ignore[union-attr]
        is_let_go = asyncio.Event()

        def pieces() -> Iterator[bytes]:
            try:
                while True:
                    yield b"piece"
            finally:
                is_let_go.set()

        last = member.engine._log[-1]
        making = snapshots._make(pieces(), last, (b"", last[1] - 1, 0))
        snapshots._making = asyncio.get_running_loop().create_task(making)
        while not member.replica.restored_total:
            assert not is_let_go.is_set()
            await asyncio.sleep(0.001)
        await asyncio.wait_for(is_let_go.wait(), 0.1)

        assert snapshots._making is None
        assert len(await cluster.equal(20_000)) == 451
        assert not member.failures
        await cluster.stop()

    run(scenario())


def test_one_that_was_given_up_before_it_began_is_not_the_last() -> None:
    """It never ran, so it could not say that it is over."""

    async def scenario() -> None:
        cluster = await small().start()
        leader = await cluster.leader()
        snapshots = leader.engine._passes.snapshots  # type: ignore[union-attr]
        last = leader.engine._log[-1]
        given_up = snapshots._make(iter(()), last, (b"", last[1] - 1, 0))
        snapshots._making = asyncio.get_running_loop().create_task(given_up)
        snapshots._making.cancel()
        await asyncio.sleep(0)
        made = snapshots.made_total

        for number in range(450):
            await leader.engine.propose(b"%d" % number)

        assert snapshots.made_total > made
        await cluster.stop()

    run(scenario())


def test_a_member_that_has_come_further_meanwhile_stays_as_it_is() -> None:
    """The replica never goes back to a snapshot that was overtaken while it was decoded."""

    async def scenario() -> None:
        cluster = small(piece_bytes=8_000)
        _leader, member = await lagging(cluster)
        await member.start()
        await cluster.equal()
        store: SnapshotStore = member.engine._passes.snapshots._store  # type: ignore[union-attr]
        info = store.latest()
        assert info is not None
        consensus = member.engine._consensus
        assert consensus is not None
        reader = store.open(info)
        data = reader.read(0, info.size_bytes)
        reader.close()
        # Begun before the member had come so far: what is in the file says how old it is.
        began_at = consensus.core.commit_index + 1
        piece = say.SnapshotPiece(
            term=consensus.core.term,
            snapshot_index=began_at,
            total_bytes=info.size_bytes,
            sha256=info.sha256,
            offset=0,
            data=data,
        )
        before = member.replica.restored_total

        member.engine._passes.snapshots.receive(  # type: ignore[union-attr]
            consensus, consensus.leader_id or "1", piece
        )
        await asyncio.sleep(0.1)

        assert member.replica.restored_total == before
        assert len(member.replica.commands) == 451
        assert member.replica.let_go_total == 1, "what was read is freed, not dropped at once"
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("after_ms", [50, 500, 1_500, 3_000])
@pytest.mark.parametrize("is_orderly", [False, True])
def test_an_end_in_the_midst_of_installing_leaves_what_the_next_start_understands(
    after_ms: int, is_orderly: bool
) -> None:
    """Stopped or killed at any stage of it, the member comes back and gets the rest."""

    async def scenario() -> None:
        cluster = small()
        _leader, member = await lagging(cluster)
        cluster.sync_ms_max = SLOW_MS
        await member.start()
        await asyncio.sleep(after_ms / 1000)
        if is_orderly:
            await member.stop()
        else:
            await member.kill()
        cluster.sync_ms_max = 0.0

        await member.start()

        assert len(await cluster.equal(20_000)) == 451
        await cluster.stop()

    run(scenario())


def note_pieces(cluster: SimulatedCluster) -> list[int]:
    """Return where the offsets of the pieces that arrive from now on are noted."""
    offsets: list[int] = []

    def note(_source: str, _target: str, message: say.Message) -> bool:
        if isinstance(message, say.SnapshotPiece):
            offsets.append(message.offset)
        return True

    cluster.network.on_message = note
    return offsets


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_piece_that_came_before_its_leader_counted_is_sent_again_when_it_does(
    is_emptied: bool,
) -> None:
    """One that was away for long has to note who leads, one that recovers to learn the terms."""

    async def scenario() -> None:
        cluster = small()
        cluster.sync_ms_max = 2.0
        leader, member = await lagging(cluster)
        await asyncio.sleep(INCARNATION_MS / 1000 + 1)
        await leader.engine.propose(b"last")
        await asyncio.sleep(1)
        if is_emptied:
            await member.lose_disk()
        offsets = note_pieces(cluster)
        loop = asyncio.get_running_loop()
        began = loop.time()

        await member.start()
        await cluster.equal()

        assert loop.time() - began < 2
        assert len(offsets) <= len(set(offsets)) + 1, "no piece but the first is sent again"
        await cluster.stop()

    run(scenario())


def test_a_piece_that_was_sent_again_does_not_double_all_that_follow() -> None:
    """Of two answers to the same piece, one is enough."""

    async def scenario() -> None:
        cluster = small(50)
        _leader, member = await lagging(cluster)
        offsets: list[int] = []

        def note(source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, say.SnapshotPiece):
                offsets.append(message.offset)
                if offsets == [0]:
                    cluster.network.carry(source, target, message)
            return True

        cluster.network.on_message = note

        await member.start()
        await cluster.until(lambda: member.replica.restored_total > 0)

        assert len(set(offsets)) > 20
        assert len(offsets) == len(set(offsets)) + 1
        await cluster.equal()
        await cluster.stop()

    run(scenario())
