"""A sync body that is interrupted when its grant is lost."""

from __future__ import annotations

import signal
import threading
import time
from functools import partial

import pytest

from coordinator import BadArgumentsError, Lock, LockLostError
from coordinator.testing import LocalCluster


def test_a_sleeping_body_is_interrupted(coordinator_cluster: LocalCluster) -> None:
    """The loss is raised where the body is, and the handler of before is there again."""
    before = signal.getsignal(signal.SIGURG)
    with coordinator_cluster.connect(session_timeout=2) as client:
        client.session()
        threading.Timer(1, coordinator_cluster.expire, [client]).start()
        began = time.monotonic()
        with pytest.raises(LockLostError), Lock(client, "job") as grant, grant.interrupting():
            time.sleep(600)

        assert time.monotonic() - began < 600
        assert signal.getsignal(signal.SIGURG) is before


def test_a_body_that_ends_in_time_is_left_alone(coordinator_cluster: LocalCluster) -> None:
    """Nothing comes after the block, though the grant is lost then."""
    with coordinator_cluster.connect(session_timeout=2) as client:
        lock = Lock(client, "job")
        grant = lock.acquire()
        with grant.interrupting():
            pass
        coordinator_cluster.expire(client)
        while not grant.is_lost:
            time.sleep(0.05)


def test_one_that_was_lost_before_is_told_at_once(coordinator_cluster: LocalCluster) -> None:
    """Entering does not hide a loss."""
    with coordinator_cluster.connect(session_timeout=2) as client:
        grant = Lock(client, "job").acquire()
        coordinator_cluster.expire(client)
        while not grant.is_lost:
            time.sleep(0.05)
        with pytest.raises(LockLostError), grant.interrupting():
            time.sleep(60)


def test_of_two_the_lost_one_is_named(coordinator_cluster: LocalCluster) -> None:
    """Blocks may stand in each other; each watches over its own grant."""
    connect = partial(coordinator_cluster.connect, session_timeout=2)
    with connect() as client, connect() as other:
        outer, inner = Lock(client, "outer").acquire(), Lock(other, "inner").acquire()
        threading.Timer(1, coordinator_cluster.expire, [client]).start()
        with pytest.raises(LockLostError) as caught, outer.interrupting(), inner.interrupting():
            time.sleep(60)
        assert caught.value.fields["lock"] == "outer"
        assert inner.release()


def test_other_threads_are_refused_with_what_to_do(coordinator_cluster: LocalCluster) -> None:
    """Only the main thread hears signals."""
    with coordinator_cluster.connect(session_timeout=2) as client:
        grant = Lock(client, "job").acquire()
        notices: list[BaseException] = []

        def enter() -> None:
            try:
                with grant.interrupting():
                    pass
            except BadArgumentsError as error:
                notices.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert "on_lost" in str(notices[0])
