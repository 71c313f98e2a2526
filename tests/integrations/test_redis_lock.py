"""The lock with redis-py's interface, compared with that of the real library."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator import (
    BadArgumentsError,
    Client,
    Lock,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.testing.cluster import LocalCluster
from tests.patience import patient

redis_lock = pytest.importorskip("redis.lock")
from redis.exceptions import LockError, LockNotOwnedError  # noqa: E402

from coordinator.integrations.redis_lock import RedisLikeLock  # noqa: E402

pytestmark = pytest.mark.usefixtures("unhurried_tries")


def test_it_has_the_methods_and_arguments_of_the_real_one() -> None:
    """Each public one that is no script of Redis; the client is the first argument."""
    theirs = {
        name: list(inspect.signature(method).parameters)
        for name, method in vars(redis_lock.Lock).items()
        if callable(method) and not name.startswith("do_") and name != "register_scripts"
    }

    assert len(theirs) >= 9
    for name, parameters in theirs.items():
        ours = list(inspect.signature(getattr(RedisLikeLock, name)).parameters)
        if name == "__init__":
            assert (parameters.pop(1), ours.pop(1)) == ("redis", "client")
        if name != "__exit__":
            assert ours == parameters, name
        assert len(ours) == len(parameters), name


@pytest.fixture
def client(shared_coordinator_cluster: LocalCluster) -> Iterator[Client]:
    """The client of a program."""
    with shared_coordinator_cluster.connect() as client:
        yield client


@pytest.mark.check
def test_it_is_acquired_and_released_as_the_real_one(
    client: Client, shared_coordinator_cluster: LocalCluster
) -> None:
    """True, False, LockError; with a token, and beside locks of the other kind."""
    lock = RedisLikeLock(client, "report", blocking_timeout=20)
    with lock as entered:
        token = entered.fencing_token
        held = (lock.owned(), lock.locked(), lock.acquire(blocking=False))
        with shared_coordinator_cluster.connect() as other:
            theirs = RedisLikeLock(other, "report", blocking=False)
            refused = (theirs.acquire(), theirs.owned(), theirs.locked())
            assert Lock(other, "report").try_acquire() is None
            with pytest.raises(LockError, match="Unable"), theirs:
                pytest.fail("entered beside the holder")
        with pytest.raises(LockError, match="for itself"):
            RedisLikeLock(client, "report").acquire()

    assert (token > 0, held, refused) == (True, (True, True, False), (False, False, True))
    assert (lock.owned(), lock.locked()) == (False, False)
    for action in (lock.release, lock.reacquire, lambda: lock.extend(1)):
        with pytest.raises(LockError):
            action()
    with pytest.raises(LockNotOwnedError):
        _ = lock.fencing_token
    with pytest.raises(BadArgumentsError, match="max_hold"):
        RedisLikeLock(client, "report", timeout=0.1)


@pytest.mark.check
def test_a_hold_that_ended_is_not_owned_any_more(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """``release`` says so, and the ``with`` only if it is to."""
    hold_s = patient(0.5)  # the grant has to arrive within it
    lock = RedisLikeLock(client, "short", timeout=hold_s)
    assert lock.acquire()
    over = threading.Event()
    assert lock.grant is not None
    lock.grant.on_lost(over.set)
    assert over.wait(20)
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.release()

    quiet = RedisLikeLock(client, "short", timeout=hold_s, raise_on_release_error=False)
    with quiet:
        again = threading.Event()
        assert quiet.grant is not None
        quiet.grant.on_lost(again.set)
        assert again.wait(20)
    assert "no longer owned" in caplog.text


@pytest.mark.check
@pytest.mark.parametrize("is_thread_local", [True, False])
def test_another_thread_may_release_what_is_not_thread_local(
    client: Client, is_thread_local: bool
) -> None:
    """As in redis-py, where the token is kept for the thread unless said otherwise."""
    lock = RedisLikeLock(client, "threads", thread_local=is_thread_local)
    assert lock.acquire()
    raised: list[Any] = []

    def release() -> None:
        try:
            lock.release()
        except LockError as error:
            raised.append(error)

    other = threading.Thread(target=release)
    other.start()
    other.join()

    assert lock.owned() is is_thread_local
    assert bool(raised) is is_thread_local
    if is_thread_local:
        lock.release()


@pytest.mark.check
def test_a_thread_may_wait_for_what_it_acquired_itself(client: Client) -> None:
    """Where another thread may release it meanwhile."""
    lock = RedisLikeLock(client, "passed on", thread_local=False)
    assert lock.acquire()
    other = threading.Timer(0.1, lock.release)
    other.start()

    assert lock.acquire(blocking_timeout=20)
    other.join()
    assert lock.owned()
    lock.release()


def test_who_releases_forgets_no_grant_but_its_own(client: Client) -> None:
    """Another thread may acquire before the releasing one has come to its end."""
    lock = RedisLikeLock(client, "overtaken", thread_local=False)
    assert lock.acquire()
    assert lock.grant is not None
    released = lock.grant.release

    def overtaken() -> bool:
        is_released = released()
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
        return is_released

    lock.grant.release = overtaken  # type: ignore[method-assign]
    lock.release()
    assert lock.owned()
    lock.release()
    assert not lock.locked()


def test_a_grant_that_was_lost_does_not_replace_a_later_one(client: Client) -> None:
    """A thread may be paused between its grant and the note of it."""
    lock = RedisLikeLock(client, "paused", timeout=patient(0.5), thread_local=False)
    paused = lock._contender().acquire()
    over = threading.Event()
    paused.on_lost(over.set)
    assert over.wait(20)
    assert lock.acquire()
    later = lock.grant
    lock._keep(paused)
    assert lock.grant is later


@pytest.mark.check
@pytest.mark.parametrize("kind", ["RedisLikeLock", "Lock"])
@pytest.mark.parametrize("transport", ["http", "stream"])
def test_what_could_not_be_released_is_released_in_the_background(
    shared_coordinator_cluster: LocalCluster, kind: str, transport: str
) -> None:
    """The ``with`` of a thread says that it is not known; soon after that it is free."""
    cluster, name = shared_coordinator_cluster, f"cut off {kind} {transport}"
    with cluster.connect(timeout=0.3, session_timeout=60, transport=transport) as client:
        lock: Any = RedisLikeLock(client, name) if kind == "RedisLikeLock" else Lock(client, name)
        with pytest.raises((UnavailableError, OutcomeUnknownError)), lock:
            cut = cluster.cut_off(client)
        cut.end()
        with cluster.connect() as other:
            assert RedisLikeLock(other, name, blocking_timeout=20).acquire()
