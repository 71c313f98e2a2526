"""The test kit's faults of members: killed, stopped, cut off from each other, with wrong clocks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordinator import connect
from coordinator.errors import (
    BadArgumentsError,
    LockTimeoutError,
    NoLeaderError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes import Grant, Lock
from coordinator.testing import LocalCluster, local_cluster
from tests.patience import patient
from tests.recipes.cancelling import standing


def test_a_lock_outlives_the_leader_that_granted_it(coordinator_cluster: LocalCluster) -> None:
    """Killed just after the answer: the next leader knows the grant."""
    with coordinator_cluster.connect() as client, coordinator_cluster.connect() as other:
        grant = Lock(client, "report").acquire()

        killed = coordinator_cluster.kill()

        assert coordinator_cluster.leader != killed
        assert grant.verify() > 0
        with pytest.raises(LockTimeoutError):
            Lock(other, "report").acquire(timeout=0)


def test_a_restarted_member_has_what_it_had(coordinator_cluster: LocalCluster) -> None:
    """Its log is read again; all members may be killed, one after the other or at once."""
    with coordinator_cluster.connect() as client:
        grant = Lock(client, "report").acquire()
        for member_id in coordinator_cluster.members:
            coordinator_cluster.kill(member_id)
            coordinator_cluster.restart(member_id)
        assert grant.verify() > 0

        for member_id in coordinator_cluster.members:
            coordinator_cluster.kill(member_id)
        assert coordinator_cluster.running == ()
        coordinator_cluster.heal()

        assert grant.verify() > 0
        assert coordinator_cluster.running == coordinator_cluster.members


def test_an_orderly_stop_hands_the_leadership_over(coordinator_cluster: LocalCluster) -> None:
    """No election has to be waited for, and the lock is where it was."""
    with coordinator_cluster.connect() as client, Lock(client, "report") as grant:
        stopped = coordinator_cluster.stop()

        assert coordinator_cluster.leader != stopped
        assert grant.verify() > 0


def test_a_leader_cut_off_from_the_others_is_replaced(coordinator_cluster: LocalCluster) -> None:
    """The majority elects another one; the grant keeps its token."""
    with coordinator_cluster.connect() as client:
        grant = Lock(client, "report").acquire()
        old = coordinator_cluster.leader

        with coordinator_cluster.cut_off(old):
            with coordinator_cluster.cut_off(client, old):
                view = client.lock("report", fencing_token=grant.fencing_token)

            assert view.is_current
            alone = connect(coordinator_cluster.url(old), timeout=2)
            with alone as client_of_old, pytest.raises(NoLeaderError):
                client_of_old.lock("report")
        assert grant.verify() > 0


def test_without_a_quorum_nothing_is_granted_until_it_heals(
    coordinator_cluster: LocalCluster,
) -> None:
    """Every member alone: the same error everywhere, and no manual step afterwards."""
    with coordinator_cluster.connect(timeout=0.5) as client:
        client.session()
        parted = coordinator_cluster.partition(*([each] for each in coordinator_cluster.members))

        with pytest.raises((UnavailableError, OutcomeUnknownError)):
            Lock(client, "report", timeout=0.5).acquire()

        parted.end()
        with Lock(client, "report", timeout=30) as grant:
            assert grant.fencing_token > 0


def test_stepped_wall_clocks_of_members_change_nothing(coordinator_cluster: LocalCluster) -> None:
    """An hour forward or back, on the leader and on a follower."""
    with coordinator_cluster.connect() as client, coordinator_cluster.connect() as other:
        grant = Lock(client, "report").acquire()
        for member_id in coordinator_cluster.members:
            for by_ms in (3_600_000, -7_200_000):
                coordinator_cluster.step_clock(member_id, by_ms)

                assert grant.verify() > 9_000
                with pytest.raises(LockTimeoutError):
                    Lock(other, "report").acquire(timeout=0)


def test_healing_sets_all_clocks_right(coordinator_cluster: LocalCluster) -> None:
    """A cluster that is used again tells the time again."""
    with coordinator_cluster.connect() as client:
        before = client.create("/before")
        for who in (*coordinator_cluster.members, client):
            coordinator_cluster.step_clock(who, -86_400_000)
            coordinator_cluster.set_clock_rate(who, 1.005)
        assert client.create("/wrong").stat.ctime_ms < before.stat.ctime_ms

        coordinator_cluster.heal()

        assert client.create("/right").stat.ctime_ms >= before.stat.ctime_ms
        assert client.clock.wall_ms() >= before.stat.ctime_ms


def test_a_synced_disk_may_be_asked_for_and_kept(tmp_path: Path) -> None:
    """Every write synced, and the directory kept for a second cluster on the same data."""
    with (
        local_cluster(members=1, directory=tmp_path, syncs_to_disk=True) as cluster,
        cluster.connect() as client,
    ):
        client.create("/kept", b"yes")

    with local_cluster(members=1, directory=tmp_path) as again, again.connect() as client:
        assert client.get("/kept").data == b"yes"


def test_only_members_that_are_there_can_be_named(coordinator_cluster: LocalCluster) -> None:
    """A typing mistake in a test is said."""
    with pytest.raises(BadArgumentsError, match="1, 2, 3"):
        coordinator_cluster.kill("4")
    with pytest.raises(BadArgumentsError, match="1, 2, 3"):
        coordinator_cluster.partition(["1"], ["9"])
    with pytest.raises(BadArgumentsError):
        local_cluster(members=0)


async def test_attempts_cancelled_while_leaders_die_leave_nothing(
    coordinator_cluster: LocalCluster,
) -> None:
    """Cancelled at some moment around the death of the leader that they asked."""
    async with coordinator_cluster.connect() as client, coordinator_cluster.connect() as other:
        await client.session()
        for number in range(6):
            attempts = [
                asyncio.create_task(Lock(client, f"report-{each % 3}", timeout=30).acquire())
                for each in range(9)
            ]
            await asyncio.sleep(0.003 * number)
            killed = await asyncio.to_thread(coordinator_cluster.kill)
            await asyncio.sleep(0.01 * number)
            for attempt in attempts:
                attempt.cancel()
            for done in await asyncio.gather(*attempts, return_exceptions=True):
                if isinstance(done, Grant):
                    await done.release()
            await asyncio.to_thread(coordinator_cluster.restart, killed)

        async with asyncio.timeout(patient(30)):
            while await standing(other):  # noqa: ASYNC110 - there is nobody to set an event
                await asyncio.sleep(0.1)
