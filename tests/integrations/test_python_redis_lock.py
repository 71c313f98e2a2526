"""The lock with python-redis-lock's interface, and the real one: the same tests of both."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coordinator import BadArgumentsError
from coordinator.testing.cluster import LocalCluster
from tests.guards import servers
from tests.patience import patient

theirs: Any = pytest.importorskip("redis_lock")

from coordinator.integrations import python_redis_lock as ours  # noqa: E402

pytestmark = pytest.mark.usefixtures("unhurried_tries")


@dataclass
class Library:
    """One of the two: its module, and two clients of its service."""

    module: ModuleType
    client: Any
    other: Any

    def lock(self, name: str, **options: Any) -> Any:
        """A lock of the first client."""
        return self.module.Lock(self.client, name, **options)

    def others(self, name: str, **options: Any) -> Any:
        """A lock of the second client."""
        return self.module.Lock(self.other, name, **options)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Path]:
    """The socket of a Redis server."""
    with servers.redis() as socket:
        yield socket


@pytest.fixture(params=["ours", "theirs"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    """Each of the two, with its service."""
    if request.param == "theirs":
        from redis import StrictRedis

        at = {"unix_socket_path": str(request.getfixturevalue("redis_server"))}
        with StrictRedis(**at) as one, StrictRedis(**at) as two:
            yield Library(theirs, one, two)
            one.flushall()
        return
    cluster: LocalCluster = request.getfixturevalue("shared_coordinator_cluster")
    with ExitStack() as stack:
        clients = [stack.enter_context(cluster.connect()) for _ in range(2)]
        yield Library(ours, *clients)


check = pytest.mark.check


def test_it_has_the_methods_arguments_and_errors_of_the_real_one() -> None:
    """Each public one that is no script of Redis; the client is the first argument."""
    methods = {
        name: list(inspect.signature(method).parameters)
        for name, method in vars(theirs.Lock).items()
        if callable(method) and (name.startswith("__") or not name.startswith("_"))
        if not name.startswith("__annotate")  # Python's own, from 3.14 on
    }
    assert len(methods) >= 9
    for name, parameters in methods.items():
        mine = list(inspect.signature(getattr(ours.Lock, name)).parameters)
        if name == "__init__":
            assert (parameters.pop(1), mine.pop(1)) == ("redis_client", "client")
        assert mine == parameters, name
    errors = [name for name, each in vars(theirs).items() if inspect.isclass(each)]
    for name in {*errors, "reset_all"} - {"StrictRedis"}:
        assert hasattr(ours, name), name


@check
def test_who_holds_it_keeps_others_out(library: Library) -> None:
    """True, False, AlreadyAcquired, NotAcquired; the owner's id is seen."""
    lock, other = library.lock("report", id="ann"), library.others("report")
    assert (lock.locked(), lock.get_owner_id()) == (False, None)
    with lock as entered:
        assert entered is lock
        assert (lock.locked(), other.locked()) == (True, True)
        assert (lock.id, other.get_owner_id()) == ("ann", "ann")
        with pytest.raises(library.module.AlreadyAcquired):
            lock.acquire()
        assert other.acquire(blocking=False) is False
        assert other.acquire(timeout=1) is False
        with pytest.raises(library.module.NotAcquired), library.others("report", blocking=False):
            pytest.fail("entered beside the holder")
        with pytest.raises(library.module.NotAcquired):
            other.release()
        assert lock.get_owner_id() == "ann"
    assert not lock.locked()
    assert other.acquire(timeout=20) is True
    other.release()
    for action in (lock.release, lambda: lock.extend(1)):
        with pytest.raises(library.module.NotAcquired):
            action()


@check
def test_what_makes_no_sense_is_refused(library: Library) -> None:
    """As there, before anything is asked."""
    for options in ({"expire": -1}, {"auto_renewal": True}):
        with pytest.raises(ValueError, match=r"[Ee]xpire"):
            library.lock("wrong", **options)
    with pytest.raises(TypeError, match="id"):
        library.lock("wrong", id=1)
    lock, module = library.lock("wrong", expire=2), library.module
    with pytest.raises(module.TimeoutNotUsable):
        lock.acquire(blocking=False, timeout=1)
    with pytest.raises(module.InvalidTimeout):
        lock.acquire(timeout=-1)
    with pytest.raises(module.TimeoutTooLarge):
        lock.acquire(timeout=3)
    with pytest.raises(TypeError, match="expire"):
        library.lock("wrong").extend()
    with pytest.raises(ValueError, match="negative"):
        lock.extend(-1)
    assert (library.lock("a", id=b"abc").id, library.lock("a", id=b"\xff").id) == ("abc", "/w==")
    assert library.lock("a").id != library.lock("a").id


@check
def test_a_hold_expires_unless_it_is_extended_or_renewed(library: Library) -> None:
    """A waiter gets it then; who held it is not the owner any more."""
    seconds = round(patient(1))  # it is extended within them
    short, extended = (library.lock(each, expire=seconds) for each in ("short", "extended"))
    renewed = library.lock("renewed", expire=seconds, auto_renewal=True)
    endless = library.lock("endless")
    with renewed, endless:
        assert extended.acquire()
        assert extended.extend(30) is None
        with pytest.raises(library.module.NotExpirable):
            endless.extend(5)
        assert renewed.extend() is None
        assert short.acquire()
        other = library.others("short")
        assert other.acquire(timeout=seconds + 20)
        with pytest.raises(library.module.NotAcquired):
            short.release()
        with pytest.raises(library.module.NotAcquired):
            short.extend(5)
        for name in ("renewed", "extended", "endless"):
            assert library.others(name).acquire(blocking=False) is False, name
        other.release()
        extended.release()


@check
def test_what_another_holds_is_released_by_its_id_and_by_force(library: Library) -> None:
    """``reset`` asks for no id, ``reset_all`` for no name; who was reset learns it."""
    module = library.module
    mine = library.lock("handed", id="token-7", expire=30)
    assert mine.acquire()
    passed = library.others("handed", id="token-7")
    with pytest.raises(module.AlreadyAcquired):
        passed.acquire()
    assert passed.extend(60) is None
    passed.release()
    assert not mine.locked()
    with pytest.raises(module.NotAcquired):
        passed.release()
    with pytest.raises(module.NotAcquired):
        mine.release()

    assert mine.acquire()
    library.others("handed").reset()
    assert library.others("handed").acquire(blocking=False)
    assert library.lock("other").acquire()
    module.reset_all(library.other)
    assert not mine.locked()
    assert not library.lock("other").locked()
    library.others("handed").reset()


@check
def test_one_object_serves_several_threads(library: Library) -> None:
    """One of them is in at a time; another than who acquired may release."""
    lock, inside, failed = library.lock("threads"), [0], []

    def work() -> None:
        for _ in range(5):
            while True:
                try:
                    assert lock.acquire(timeout=20)
                except library.module.AlreadyAcquired:
                    continue
                break
            inside[0] += 1
            if inside[0] != 1:
                failed.append(inside[0])
            inside[0] -= 1
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert not lock.locked()
    assert lock.acquire()
    releasing = threading.Thread(target=lock.release)
    releasing.start()
    releasing.join()
    assert not lock.locked()


@check
def test_the_token_grows_and_zero_tries_once(shared_coordinator_cluster: LocalCluster) -> None:
    """What that library does not have; and its locks are ``lock:NAME`` of the cluster."""
    cluster = shared_coordinator_cluster
    with cluster.connect() as client, cluster.connect() as two:
        lock = ours.Lock(client, "tokens")
        with pytest.raises(ours.NotAcquired):
            _ = lock.fencing_token
        with lock:
            first = lock.fencing_token
            assert client.lock("lock:tokens").holder is not None
            assert ours.Lock(two, "tokens").acquire(timeout=0) is False
        with lock:
            assert lock.fencing_token > first
        with pytest.raises(BadArgumentsError):
            ours.Lock(client, "n" * 500).acquire()

