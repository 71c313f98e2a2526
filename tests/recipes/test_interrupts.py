"""Ctrl-C in the instant in which a sync caller gets its grant: it is given back, whatever fails."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from coordinator import connect
from coordinator.client import Client, HttpTransport, Request, Response, RetryPolicy
from coordinator.errors import DeadlockError, NoNodeError, UnavailableError
from coordinator.recipes import Election, Lock, MultiLock, ReentrantLock, TreeLock
from tests.client.server_thread import serving
from tests.patience import patient

T = TypeVar("T")

CONTENDERS: dict[str, Callable[[Client, str], Any]] = {
    "Lock": Lock,
    "TreeLock": TreeLock,
    "MultiLock": lambda client, name: MultiLock(client, f"{name}-also", name),
    "Election": Election,
    "ReentrantLock": ReentrantLock,
}


def enter(contender: Any) -> None:
    with contender:
        raise AssertionError("the body ran")


def acquire(contender: Any) -> None:
    if isinstance(contender, Election):
        contender.campaign()
    else:
        contender.acquire()


def try_acquire(contender: Any) -> None:
    if isinstance(contender, Election):
        contender.campaign(timeout=0)
    else:
        contender.try_acquire()


class RefusesReleases:
    """A network on which nothing is given back for a while."""

    def __init__(self) -> None:
        self._inner = HttpTransport()
        self.stream = self._inner.stream
        self.close = self._inner.close
        self.is_refusing = False

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        if self.is_refusing and request.method == "DELETE":
            raise UnavailableError("no leader")
        return await self._inner.request(endpoint, request, timeout_ms)


class Interrupted(Client):
    """Is interrupted once, in the instant in which a call has its result and has not returned."""

    is_to_interrupt = False

    def call(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        if not self.is_to_interrupt:
            return super().call(work, undo)
        self.is_to_interrupt = False
        main = threading.main_thread().ident
        assert main is not None

        async def interrupted() -> T:
            result = await work
            signal.pthread_kill(main, signal.SIGINT)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return result
            raise AssertionError("nobody interrupted")

        return super().call(interrupted(), undo)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


def standing(client: Client, name: str) -> list[str]:
    """Return who holds, or stands in the queue, by this name."""
    found: list[str] = []
    for each in (f"/locks/{name}", f"/locks/{name}-also", f"/elections/{name}"):
        try:
            found += client.children(each).names
        except NoNodeError:
            pass
    return found


def is_free_in_time(client: Client, name: str) -> bool:
    deadline_s = time.monotonic() + patient(8)
    while standing(client, name) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return not standing(client, name)


def enter_in_time(contender: Any) -> None:
    """Enter an object whose client may not have read yet that what it held is released."""
    deadline_s = time.monotonic() + patient(8)
    while True:
        try:
            enter(contender)
        except DeadlockError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("takes", [enter, acquire, try_acquire])
@pytest.mark.parametrize("kind", CONTENDERS)
def test_what_cannot_be_given_back_at_once_is_given_back_as_soon_as_it_can(
    url: str, kind: str, takes: Callable[[Any], None]
) -> None:
    """The interrupt is what is raised, with the failure as its note; nothing stays."""
    name, network = f"{kind}-{takes.__name__}", RefusesReleases()
    connector = connect(url, transport=network, retry=RetryPolicy(tries=1))
    with Interrupted(connector.open_async) as client, connect(url) as observer:
        contender = CONTENDERS[kind](client, name)
        client.is_to_interrupt = network.is_refusing = True

        with pytest.raises(KeyboardInterrupt) as raised:
            takes(contender)

        assert "no leader" in raised.value.__notes__[0]
        assert standing(observer, name) != []
        network.is_refusing = False
        assert is_free_in_time(observer, name)
        with pytest.raises(AssertionError, match="the body ran"):
            enter_in_time(contender)  # the object is free, too


def test_an_interrupted_acquire_gives_back_nothing_of_the_body_around_it(url: str) -> None:
    """What is undone is what was obtained, and not whatever its owner holds."""
    with Interrupted(connect(url).open_async) as client, connect(url) as observer:
        lock = ReentrantLock(client, "nested")
        with lock as outer:
            client.is_to_interrupt = True
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()

            assert lock.count == 1
            outer.check()
            assert Lock(observer, "nested").try_acquire() is None
