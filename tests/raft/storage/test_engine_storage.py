"""What the engine does when its disk fails, lies or is damaged, and when an invariant breaks."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import (
    DataTooLargeError,
    LeaderChangedError,
    ShuttingDownError,
    StorageError,
)
from coordinator.raft.engine import Role
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run

SNAPSHOTS = {"snapshot_every_entries": 50, "keep_entries_after_snapshot": 10}


def snapshot_path(member: Member) -> str:
    return "data/snapshots/" + member.disk.list_directory("data/snapshots")[-1]


@pytest.mark.parametrize("sync_ms_max", [0.0, 5.0])
def test_a_failed_sync_stops_the_member_for_good(sync_ms_max: float) -> None:
    """Row 1: after EIO the leader acknowledges nothing, is told once, and another one leads."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        cluster.sync_ms_max = sync_ms_max
        await cluster.start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        leader.disk.fail("sync", path_part="data/log")

        with pytest.raises(LeaderChangedError):
            await leader.engine.propose(b"unknown")

        assert len(leader.failures) == 1
        assert isinstance(leader.failures[0], StorageError)
        with pytest.raises(ShuttingDownError):
            await leader.engine.propose(b"never")
        with pytest.raises(ShuttingDownError):
            await leader.engine.read_barrier()
        successor = await cluster.leader(cluster.others(leader))
        await successor.engine.propose(b"after")
        await leader.kill()
        await leader.start()
        commands = await cluster.equal()
        assert commands[0] == b"before"
        assert commands[-1] == b"after"
        await cluster.stop()

    run(scenario())


def test_a_followers_failed_sync_acknowledges_nothing() -> None:
    """A follower that cannot sync says nothing; with the other one down, nothing commits."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        failing, away = cluster.others(leader)
        await leader.engine.propose(b"before")
        await away.kill()
        failing.disk.fail("sync", path_part="data/log")

        with pytest.raises(LeaderChangedError):
            await leader.engine.propose(b"unknown")

        assert len(failing.failures) == 1
        assert leader.engine.status().commit_index == 3
        await cluster.stop()

    run(scenario())


def test_a_corrupt_snapshot_stops_the_member_at_start() -> None:
    """Row 12: a damaged snapshot is refused loudly; it does not become an empty member."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, **SNAPSHOTS).start()
        leader = await cluster.leader()
        for number in range(120):
            await leader.engine.propose(b"%d" % number)
        await leader.kill()
        leader.disk.flip(snapshot_path(leader), 200)

        with pytest.raises(StorageError):
            await leader.start()

        leader.is_up = False
        await cluster.leader(cluster.others(leader))
        await cluster.stop()

    run(scenario())


def test_a_missing_snapshot_stops_the_member_at_start() -> None:
    """A log that begins in the middle is worth nothing without its snapshot."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(1, segment_bytes=500, **SNAPSHOTS).start()
        (member,) = cluster.members
        await cluster.leader()
        for number in range(120):
            await member.engine.propose(b"%d" % number)
        await member.stop()
        for name in member.disk.list_directory("data/snapshots"):
            member.disk.remove("data/snapshots/" + name)

        with pytest.raises(StorageError, match="no snapshot"):
            await member.start()

        member.is_up = False

    run(scenario())


def test_row_11_a_death_between_snapshot_and_trim_keeps_the_tail() -> None:
    """With a snapshot in the middle of a whole log, the entries after it are applied."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(
            1, snapshot_every_entries=50, keep_entries_after_snapshot=10_000
        ).start()
        (member,) = cluster.members
        await cluster.leader()
        for number in range(102):
            await member.engine.propose(b"%d" % number)
        await member.kill()

        await member.start()
        await cluster.leader()

        assert member.replica.restored_total == 1
        assert member.replica.commands == [b"%d" % number for number in range(102)]
        await cluster.stop()

    run(scenario())


def test_row_29_a_death_while_a_snapshot_is_made_needs_the_whole_log() -> None:
    """Nothing of the log goes before the snapshot that stands for it is stable."""

    async def scenario() -> None:
        cluster = SimulatedCluster(
            1, snapshot_every_entries=50, keep_entries_after_snapshot=0, segment_bytes=4_096
        )
        (member,) = cluster.members
        member.sync_ms = 5.0
        await cluster.start()
        await cluster.leader()
        acknowledged = [b"%0400d" % number for number in range(49)]
        for command in acknowledged[:40]:
            await member.engine.propose(command)
        assert len(member.disk.list_directory("data/log")) > 4, "the log has several segments"
        for command in acknowledged[40:]:
            await member.engine.propose(command)
        await cluster.until(lambda: member.disk.exists("data/snapshots/writing.tmp"))

        await member.kill()
        await member.start()
        await cluster.leader()

        assert member.replica.restored_total == 0
        assert member.replica.commands == acknowledged
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("role", [Role.LEADER, Role.FOLLOWER])
def test_row_16_an_apply_that_raises_stops_the_member_and_is_not_tried_again(role: Role) -> None:
    """A broken invariant in the replica ends the member after one try; the others go on."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        victim = leader if role is Role.LEADER else cluster.others(leader)[0]
        tries: list[bytes] = []

        def refuse(command: bytes) -> None:
            tries.append(command)
            raise AssertionError("an invariant broke")

        victim.replica.on_apply = refuse
        try:
            await leader.engine.propose(b"poison")
        except LeaderChangedError:
            assert role is Role.LEADER
        await cluster.until(lambda: bool(victim.failures))
        await asyncio.sleep(2)

        assert tries == [b"poison"]
        assert len(victim.failures) == 1
        survivor = await cluster.leader(cluster.others(victim))
        await survivor.engine.propose(b"more")
        assert survivor.replica.commands == [b"poison", b"more"]
        await victim.stop()
        await cluster.stop()

    run(scenario())


def test_a_snapshot_is_made_while_the_member_works() -> None:
    """Pieces are drawn between other work; what is applied meanwhile does not show in them."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(1, **SNAPSHOTS).start()
        (member,) = cluster.members
        await cluster.leader()

        for _ in range(40):
            await asyncio.gather(*(member.engine.propose(b"%d" % n) for n in range(100)))

        assert member.engine.metrics()["snapshots_made_total"] == 0
        for _ in range(20):
            await asyncio.gather(*(member.engine.propose(b"%d" % n) for n in range(100)))
        await cluster.until(lambda: member.engine.metrics()["snapshots_made_total"] == 1)
        expected = list(member.replica.commands)
        await member.kill()
        await member.start()
        await cluster.leader()
        assert member.replica.commands == expected
        assert member.replica.restored_total == 1
        await cluster.stop()

    run(scenario())


def test_a_command_too_large_for_a_frame_is_refused_before_it_is_proposed() -> None:
    """DataTooLargeError is definite, and the cluster is none the worse."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()

        with pytest.raises(DataTooLargeError):
            await leader.engine.propose(bytes(5 * 1024 * 1024))

        await leader.engine.propose(bytes(1_500_000))
        assert len(await cluster.equal()) == 1
        await cluster.stop()

    run(scenario())


def test_a_snapshot_damaged_on_its_way_is_refused_and_sent_again() -> None:
    """Row 28: what arrives is verified whole before anything is replaced by it."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, snapshot_piece_bytes=500, **SNAPSHOTS).start()
        leader = await cluster.leader()
        lagging = cluster.others(leader)[0]
        await lagging.kill()
        for number in range(200):
            await leader.engine.propose(b"%d" % number)
        await lagging.start()
        inbox = lagging.transport.listener
        receive, flipped = inbox.on_message, []

        def damage(member_id: str, message: object) -> None:
            if hasattr(message, "sha256") and message.offset > 0 and not flipped:
                flipped.append(message)
                data = bytearray(message.data)  # type: ignore[attr-defined]
                data[len(data) // 2] ^= 1
                message = message._replace(data=bytes(data))  # type: ignore[attr-defined]
            receive(member_id, message)  # type: ignore[arg-type]

        class Damaging:
            on_message = staticmethod(damage)
            on_connected = staticmethod(inbox.on_connected)
            on_disconnected = staticmethod(inbox.on_disconnected)

        lagging.transport.listener = Damaging()

        assert len(await cluster.equal()) == 200
        assert flipped
        assert lagging.replica.restored_total == 1
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("direction", ["to the follower", "to the leader"])
def test_a_one_way_cut_to_one_follower_disturbs_nobody_else(direction: str) -> None:
    """Row 19: half a link does not depose the leader, nor move the term; writes go on."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        follower = cluster.others(leader)[0]
        term = leader.engine.status().term
        link = (leader.member_id, follower.member_id)
        cluster.network.cut(*(link if direction == "to the follower" else reversed(link)))

        for number in range(50):
            await leader.engine.propose(b"%d" % number)
            await asyncio.sleep(0.1)

        assert leader.engine.status().role is Role.LEADER
        assert leader.engine.status().term == term
        cluster.network.heal()
        assert len(await cluster.equal()) == 50
        await cluster.stop()

    run(scenario())


def test_a_healed_member_does_not_depose_the_leader() -> None:
    """A member that was alone for long comes back as a follower, in the same term."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(5).start()
        leader = await cluster.leader()
        lonely = cluster.others(leader)[0]
        term = leader.engine.status().term
        cluster.network.isolate(lonely.member_id)
        await asyncio.sleep(20)

        cluster.network.heal()
        await leader.engine.propose(b"x")

        assert await cluster.equal() == [b"x"]
        assert leader.engine.status().term == term
        await cluster.stop()

    run(scenario())


def test_a_conflicting_suffix_longer_than_a_batch_is_replaced() -> None:
    """Row 6: an old leader's unacknowledged entries, far more than a message, give way."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(
            3, append_batch_bytes=2_000, proposals_in_flight_max=5_000
        ).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"common")
        cluster.network.isolate(leader.member_id)
        doomed = []
        for _ in range(100):
            doomed.append(asyncio.ensure_future(leader.engine.propose(b"lost" + bytes(1_000))))
            await asyncio.sleep(0.001)
        assert leader.engine.status().last_index > 90
        successor = await cluster.leader(cluster.others(leader))
        for number in range(100):
            await successor.engine.propose(b"%d" % number + bytes(1_000))
        before = cluster.network.sent_total

        cluster.network.heal()
        commands = await cluster.equal()

        assert len(commands) == 101
        assert cluster.network.sent_total - before < 250, "no endless loop of refusals"
        results = await asyncio.gather(*doomed, return_exceptions=True)
        assert all(isinstance(one, LeaderChangedError) for one in results)
        await cluster.stop()

    run(scenario())


def test_a_disk_s_error_is_told_in_one_line_and_a_bug_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who reads the log of a member whose disk failed needs its reason, not our source."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        leader.disk.fail("sync", path_part="data/log")
        with pytest.raises(LeaderChangedError):
            await leader.engine.propose(b"unknown")
        second = await cluster.leader(cluster.others(leader))
        second.replica.on_apply = lambda _command: 1 // 0  # type: ignore[assignment, return-value]
        with pytest.raises((LeaderChangedError, ShuttingDownError)):
            await second.engine.propose(b"a bug")
        await cluster.stop()

    run(scenario())

    of_disk, of_bug = [each for each in caplog.records if each.levelname == "CRITICAL"][:2]
    assert "sync data/log" in of_disk.getMessage()
    assert of_disk.exc_info is None
    assert "ZeroDivisionError" in str(of_bug.exc_info)


def test_the_log_behind_a_snapshot_is_bounded_by_bytes() -> None:
    """Entries of 1,000 bytes: what stays in memory is a part of what a snapshot is made after."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(
            1, snapshot_every_bytes=20_000, keep_entries_after_snapshot=10_000
        ).start()
        (member,) = cluster.members
        member.replica.snapshot = lambda: iter([b"small"])  # type: ignore[method-assign]
        await cluster.leader()
        most_bytes = 0
        for number in range(200):
            await member.engine.propose(b"%01000d" % number)
            most_bytes = max(most_bytes, int(member.engine.metrics()["log_bytes"]))

        assert member.disk.list_directory("data/snapshots")
        assert most_bytes <= 2 * 20_000, "some come while the snapshot is written"
        await cluster.stop()

    run(scenario())


def test_a_snapshot_of_a_large_state_waits_for_a_part_of_its_size() -> None:
    """With 400,000 bytes of state, 100 small entries are worth no other snapshot; 400 are."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(
            1, snapshot_every_entries=20, snapshot_every_bytes=100_000
        ).start()
        (member,) = cluster.members
        member.replica.snapshot = lambda: iter([bytes(400_000)])  # type: ignore[method-assign]
        await cluster.leader()
        made = []
        for number in range(600):
            await member.engine.propose(b"%d" % number)
            if number % 100 == 99:
                made.append(int(member.engine.metrics()["snapshots_made_total"]))

        assert made == [1, 1, 1, 1, 2, 2]
        await cluster.stop()

    run(scenario())
