"""A data directory is one member's of one cluster, and says so before it says anything else."""

from __future__ import annotations

import contextlib
import random

import pytest

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.entries import FOUNDING
from coordinator.raft.storage import hard_state, ownership
from coordinator.raft.storage.disk import write_file
from coordinator.raft.storage.ownership import Owner, Ownership
from tests.raft.simulated_cluster import SimulatedCluster, settled
from tests.raft.simulated_loop import run
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk

ONE = Owner("coordinator", "1")
MEMBER_IDS = ("1", "2", "3")


def taken(disk: SimulatedDisk, owner: Owner = ONE) -> Ownership:
    draw = random.Random(0)
    return ownership.take(disk, "data", owner, MEMBER_IDS, draw=lambda: draw.getrandbits(32))


def an_empty_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directory("data")
    return disk


@pytest.mark.parametrize("seed", range(4))
def test_the_first_file_says_whose_the_directory_is_after_any_crash(seed: int) -> None:
    """A start that ends at any step leaves nothing but what the owner's next start takes over."""

    def names_after(steps: int) -> set[str]:
        async def scenario() -> set[str]:
            (member,) = SimulatedCluster(1, seed=seed).members
            member.disk.crash_at_step = steps
            with contextlib.suppress(SimulatedCrashError, StorageError):  # the power went off
                await member.start()
            await member.kill()
            return set(member.disk.directories["data"].names)

        found: set[str] = run(scenario())
        return found

    found = [names_after(steps) - {"owner.tmp"} for steps in range(1, 40)]

    assert all(not names or "owner" in names for names in found)
    assert {"owner"} in found
    assert any("unproven" in names for names in found)


def test_two_directories_that_were_exchanged_are_refused() -> None:
    """Each by its own member at its start, in one sentence, and nothing is changed there."""

    async def scenario() -> None:
        cluster, _ = await settled()
        first, second, _third = cluster.members
        for member in (first, second):
            await member.kill()
        first.disk, second.disk = second.disk, first.disk
        before = dict(first.disk.directories["data"].names)

        for member, other in ((first, "2"), (second, "1")):
            with pytest.raises(StorageError, match=f"found those of member '{other}' of cluster"):
                await member.start()

        assert before == first.disk.directories["data"].names
        first.disk, second.disk = second.disk, first.disk
        for member in (first, second):
            await member.start()
        await cluster.equal()
        assert not any(member.is_unproven for member in cluster.members)
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("is_owned", [True, False])
def test_a_log_from_before_the_first_release_is_refused(is_owned: bool) -> None:
    """Its owner file, if it has one, has no format; the sentence says what to do."""
    disk = an_empty_disk()
    if is_owned:
        line = b'{"cluster": "coordinator", "member": "1", "cluster_id": ""}'
        write_file(disk, "data/owner", line + b"\n" + ownership._checksum(line) + b"\n")
    else:
        disk.make_directory("data/log")
        hard_state.save(disk, "data/log", hard_state.TermState(3, "1"))
    before = dict(disk.directories["data"].names)

    with pytest.raises(StorageError, match="from before the first release") as refused:
        taken(disk)

    assert "start with empty ones" in str(refused.value)
    assert before == disk.directories["data"].names


def test_data_of_a_later_format_are_refused() -> None:
    """Only the release that wrote them, or a later one, reads them."""
    disk = an_empty_disk()
    line = b'{"format": 2, "anything": "else"}'
    write_file(disk, "data/owner", line + b"\n" + ownership._checksum(line) + b"\n")

    with pytest.raises(StorageError, match="expected data of format 1, found format 2"):
        taken(disk)


def ids_of(cluster: SimulatedCluster) -> set[bytes]:
    owners = [ownership.load(member.disk, "data") for member in cluster.members]
    return {owner.cluster_id for owner in owners if owner is not None}


@pytest.mark.parametrize("owner", [Owner("coordinator", "2"), Owner("another", "1")])
def test_the_directory_of_another_name_is_refused(owner: Owner) -> None:
    """Of another member, or of another cluster; the sentence says what to do."""
    disk = an_empty_disk()
    taken(disk, owner)

    with pytest.raises(StorageError, match=r"set member\.data_dir") as refused:
        taken(disk)

    assert str(ONE) in str(refused.value)
    assert str(owner) in str(refused.value)
    assert ownership.load(disk, "data") == owner


@pytest.mark.parametrize("change", ["flip", "cut", "empty"])
def test_a_damaged_owner_is_refused(change: str) -> None:
    """It can not be told whose the data are."""
    disk = an_empty_disk()
    taken(disk)
    data = disk.directories["data"].names["owner"].data
    if change == "flip":
        data[12] ^= 1
    else:
        del data[20 if change == "cut" else 0 :]

    with pytest.raises(StorageError, match="owner: damaged"):
        taken(disk)


def test_members_agree_on_one_id_and_keep_it() -> None:
    """The first leader puts it into the log; no later one puts another there."""

    async def scenario() -> None:
        cluster, _ = await settled()
        (cluster_id,) = ids_of(cluster)
        for _ in range(3):
            for member in cluster.members:
                await member.kill()
            for member in cluster.members:
                await member.start()
            await cluster.leader()
            await cluster.equal()

        assert ids_of(cluster) == {cluster_id}
        for member in cluster.members:
            founding = [entry for entry in member.engine._log[:] if entry[0][:1] == FOUNDING]
            assert [entry[0][1:] for entry in founding] == [cluster_id]
        await cluster.stop()

    run(scenario())


def test_an_id_that_was_not_committed_is_the_one_of_whoever_leads_next() -> None:
    """A leader that has it in its log, and not applied, draws no second one."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, seed=5).start()
        await cluster.until(lambda: any(len(m.engine._log[:]) > 1 for m in cluster.members))
        first = next(m for m in cluster.members if len(m.engine._log[:]) > 1)
        await first.kill()
        await cluster.leader()
        await first.start()
        await cluster.equal()

        for member in cluster.members:
            founding = [entry for entry in member.engine._log[:] if entry[0][:1] == FOUNDING]
            assert len(founding) == 1
        await cluster.until(lambda: len(ids_of(cluster)) == 1)
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("is_compacted", [False, True])
def test_an_emptied_member_learns_the_id(is_compacted: bool) -> None:
    """Of the log, or, where it gets a snapshot instead, of the leader that it follows."""

    async def scenario() -> None:
        limits = {"snapshot_every_entries": 10, "keep_entries_after_snapshot": 2}
        cluster, leader = await settled(**(limits if is_compacted else {}))
        for number in range(40):
            await leader.engine.propose(b"more %d" % number)
        assert leader.engine._log[0][1] > 2 or not is_compacted
        emptied = cluster.others(leader)[0]
        await emptied.lose_disk()
        await emptied.start()
        await cluster.equal()

        await cluster.until(lambda: not emptied.is_unproven)
        assert len(ids_of(cluster)) == 1
        await cluster.stop()

    run(scenario())


def test_the_directory_of_another_cluster_harms_nobody_but_who_runs_on_it() -> None:
    """Both clusters have the same name and the same members; their ids differ. Nobody is accused,
    and with the right directory all is well again."""

    async def scenario() -> None:
        cluster, leader = await settled()
        elsewhere = await SimulatedCluster(3, seed=77).start()
        for number in range(20):
            await (await elsewhere.leader()).engine.propose(b"of another cluster %d" % number)
        await elsewhere.equal()
        await elsewhere.stop()
        victim = cluster.others(leader)[0]
        await victim.kill()
        own = victim.disk
        victim.disk = elsewhere.members[int(victim.member_id) - 1].disk
        await victim.start()

        for number in range(20):
            await leader.engine.propose(b"without it %d" % number)
        others = [each for each in cluster.members if each is not victim]
        assert not any(member.is_unproven for member in others)
        assert not victim.engine.status().is_ready
        assert len(victim.replica.commands) == 0
        refused = victim.engine.status().refused
        assert set(refused) == {other.member_id for other in others}
        assert all("the cluster's id" in why for why in refused.values())

        await victim.kill()
        victim.disk = own
        await victim.start()
        assert len(await cluster.equal()) == 25
        assert not any(member.is_unproven for member in cluster.members)
        await cluster.stop()

    run(scenario())


def test_the_log_of_another_cluster_under_this_owner_stops_the_member() -> None:
    """What the log says was agreed on is compared with the file."""
    disk = an_empty_disk()
    own = taken(disk)
    own.confirm(bytes(16))

    with pytest.raises(Exception, match="the log is of cluster 0101"):
        own.confirm(b"\x01" * 16)


def test_without_room_the_id_is_learned_again_in_the_next_life() -> None:
    """It holds in this life, and nothing stops for it."""
    disk = an_empty_disk()
    own = taken(disk)
    disk.fill()

    own.learn(b"\x01" * 16)

    assert own.cluster_id == b"\x01" * 16
    disk.capacity_bytes = None
    assert taken(disk).cluster_id == b""


def test_the_entry_with_the_id_is_kept_until_there_is_room_for_the_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a member that leads in its next life draws a second id, and all the others stop."""
    has_room = False
    save = ownership.save

    def save_if_there_is_room(disk: SimulatedDisk, directory: str, owner: Owner) -> None:
        if owner.cluster_id and not has_room:
            raise DiskFullError("no room", path=directory, operation="write")
        save(disk, directory, owner)

    monkeypatch.setattr(ownership, "save", save_if_there_is_room)

    async def scenario() -> None:
        nonlocal has_room
        limits = {
            "snapshot_every_entries": 10, "keep_entries_after_snapshot": 2, "segment_bytes": 4096,
        }  # fmt: skip
        cluster, _ = await settled(**limits)

        async def write(count: int) -> None:
            leader = await cluster.leader()
            for number in range(count):
                await leader.engine.propose(b"%d" % number)
            await cluster.equal()

        def known() -> set[bytes]:
            return {member.engine._ownership.cluster_id for member in cluster.members}

        await write(100)
        assert ids_of(cluster) == {b""}
        (cluster_id,) = known()
        for member in cluster.members:
            await member.kill()
        for member in cluster.members:
            await member.start()
        await write(100)
        assert known() == {cluster_id}

        has_room = True
        await cluster.until(
            lambda: all(member.engine._ownership.is_noted for member in cluster.members)
        )
        await write(100)
        assert ids_of(cluster) == {cluster_id}
        assert all(member.engine._log[0][1] > 100 for member in cluster.members)
        await cluster.stop()

    run(scenario())
