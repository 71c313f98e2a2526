"""The tooz driver, by tooz' own interface, against real members."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator.testing import LocalCluster

coordination: Any = pytest.importorskip("tooz.coordination", exc_type=ImportError)
driver: Any = pytest.importorskip("coordinator.integrations.tooz", exc_type=ImportError)

pytestmark = [pytest.mark.check, pytest.mark.usefixtures("unhurried_tries")]


@pytest.fixture
def cluster(shared_coordinator_cluster: LocalCluster) -> LocalCluster:
    return shared_coordinator_cluster


@contextmanager
def started(cluster: LocalCluster, member: bytes, options: str = "") -> Iterator[Any]:
    """A coordinator as ``get_coordinator`` makes it; by class, as nothing need be installed."""
    from oslo_utils import netutils

    hosts = cluster.endpoints.replace("http://", "")
    url = netutils.urlsplit(f"coordinator://{hosts}{options}")
    made = driver.CoordinatorDriver(member, url, {"session_timeout": ["4"]})
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_locks_are_exclusive_shared_and_broken_by_force(cluster: LocalCluster) -> None:
    """Tokens grow; who was broken is no owner any more."""
    with started(cluster, b"a") as one, started(cluster, b"b") as other:
        lock, theirs = one.get_lock(b"images"), other.get_lock(b"images")
        assert not lock.is_still_owner()
        with lock:
            token = lock.fencing_token
            assert lock.is_still_owner()
            assert not theirs.acquire(blocking=False)
            assert not theirs.acquire(timeout=0.2)
            with pytest.raises(coordination.LockAcquireFailed), theirs(blocking=False):
                pass
        assert not lock.release()
        assert theirs.acquire(shared=True)
        assert theirs.fencing_token > token
        assert lock.acquire(shared=True)
        assert not one.get_lock(b"images").acquire(blocking=False)
        assert lock.release()
        assert lock.break_()
        assert not theirs.is_still_owner()
        assert not theirs.release()
        assert not lock.break_()


def test_a_waiting_thread_gets_what_another_releases(cluster: LocalCluster) -> None:
    """One object may be used by many threads."""
    with started(cluster, b"a") as one:
        lock, got = one.get_lock(b"threads"), threading.Event()

        def wait() -> None:
            if lock.acquire():
                got.set()

        assert lock.acquire()
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.wait(0.2)
        assert lock.release()
        waiting.join(30)
        assert got.is_set()
        assert lock.release()


def test_groups_have_members_with_capabilities(cluster: LocalCluster) -> None:
    """Who comes and goes is told to those who watch; a group that is in use is not deleted."""
    with started(cluster, b"a/1") as one, started(cluster, b"b") as other:
        for wrong in (one.join_group(b"g"), one.get_members(b"g"), one.delete_group(b"g")):
            with pytest.raises(coordination.GroupNotCreated):
                wrong.get()
        one.create_group(b"g").get()
        with pytest.raises(coordination.GroupAlreadyExist):
            other.create_group(b"g").get()
        assert one.get_groups().get() == [b"g"]
        seen: list[Any] = []
        one.watch_join_group(b"g", seen.append)
        one.watch_leave_group(b"g", seen.append)
        one.join_group(b"g", {"cpus": 4}).get()
        other.join_group(b"g", b"old").get()
        with pytest.raises(coordination.MemberAlreadyExist):
            one.join_group(b"g").get()
        other.update_capabilities(b"g", {"cpus": 8}).get()
        assert one.get_members(b"g").get() == {b"a/1", b"b"}
        assert one.get_member_capabilities(b"g", b"b").get() == {"cpus": 8}
        with pytest.raises(coordination.MemberNotJoined):
            one.get_member_capabilities(b"g", b"c").get()
        one.run_watchers()
        with pytest.raises(coordination.GroupNotEmpty):
            one.delete_group(b"g").get()
        other.leave_group(b"g").get()
        one.run_watchers()
        assert [type(each).__name__ for each in seen] == [
            "MemberJoinedGroup", "MemberJoinedGroup", "MemberLeftGroup",
        ]  # fmt: skip
        one.leave_group(b"g").get()
        one.delete_group(b"g").get()


def test_one_member_leads_and_the_next_follows(cluster: LocalCluster) -> None:
    """It is told once; standing down, or its end, lets the other one lead."""
    elected: list[bytes] = []
    with started(cluster, b"b") as other:
        with started(cluster, b"a") as one:
            for each in (one, other):
                each.watch_elected_as_leader(b"g", lambda event: elected.append(event.member_id))
            for _ in range(2):
                one.run_elect_coordinator()
                other.run_elect_coordinator()
            assert elected == [b"a"]
            assert other.get_leader(b"g").get() == b"a"
            assert one.stand_down_group_leader(b"g")
            assert not one.stand_down_group_leader(b"g")
            other.run_elect_coordinator()
            assert elected == [b"a", b"b"]
            assert other.stand_down_group_leader(b"g")
            one.run_elect_coordinator()
        other.run_elect_coordinator()
        assert elected == [b"a", b"b", b"a", b"b"]


def test_a_cluster_that_is_not_there_is_said_at_the_start(cluster: LocalCluster) -> None:
    """As tooz says it."""
    from oslo_utils import netutils

    made = driver.CoordinatorDriver(
        b"a", netutils.urlsplit("coordinator://127.0.0.1:1"), {"timeout": ["1"]}
    )
    with pytest.raises(coordination.ToozConnectionError):
        made.start()
