"""Closing a client while others use it: they are told so, and of nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator import connect
from coordinator.client import AsyncClient, Client, HttpTransport, Request, Response, RetryPolicy
from coordinator.errors import (
    ClientClosedError,
    ConnectionLostError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.patience import patient

PATIENT = RetryPolicy(base_ms=60_000, cap_ms=60_000, jitter=0.0)
"""Who waits before it tries again waits for longer than the test."""


@in_memory
async def test_who_waits_for_a_session_is_told_that_the_client_was_closed(
    world: MemoryCluster,
) -> None:
    """Not by a cancellation that nobody sent."""
    network = world.network()
    network.is_cut = True
    async with world.client(network) as client:
        opening = asyncio.create_task(client.session())
        await asyncio.sleep(0.5)

    with pytest.raises(ClientClosedError, match="was closed"):
        await opening


@in_memory
async def test_whose_attempt_opens_the_session_is_told_that_it_may_be_queued(
    world: MemoryCluster,
) -> None:
    """The client was closed while nobody answered: no more is known."""
    network = world.network()
    network.is_cut = True
    async with world.client(network) as client:
        acquiring = asyncio.create_task(Lock(client, "daily").acquire())
        await asyncio.sleep(0.5)

    with pytest.raises(OutcomeUnknownError, match="no answer"):
        await acquiring


@in_memory
async def test_who_releases_is_told_that_the_client_was_closed(world: MemoryCluster) -> None:
    """Whether it has come to it is not known; it goes with the session at the latest."""
    network = world.network()
    async with world.client() as observer:
        async with world.client(network) as client:
            grant = await Lock(client, "daily").acquire()

            async def refuses_releases(request: Request) -> None:
                if "/grants/" in request.target:
                    raise UnavailableError("no leader")

            network.before = refuses_releases
            releasing = asyncio.create_task(grant.release())
            await asyncio.sleep(0.5)

        with pytest.raises(OutcomeUnknownError, match="was closed"):
            await releasing
        assert await world.queue(observer, "daily") == []


@in_memory
async def test_a_write_whose_answer_was_lost_is_unknown_when_the_client_is_closed(
    world: MemoryCluster,
) -> None:
    """It was done; who waits to send it again is told at once, and not that it was not."""
    network = world.network()
    async with world.client() as observer:
        await observer.create("/a", b"old")
        async with world.client(network, retry=PATIENT, timeout=600) as client:
            network.lose_one_reply("PUT", "/a")
            writing = asyncio.create_task(client.set("/a", b"new"))
            await asyncio.sleep(1)
            network.loses_reply_of = lambda request: request.method == "GET"
            reading = asyncio.create_task(client.get("/a"))
            await asyncio.sleep(1)
        await asyncio.wait({writing, reading}, timeout=1)

        with pytest.raises(OutcomeUnknownError, match="lost"):
            writing.result()
        with pytest.raises(ClientClosedError, match="was closed"):
            reading.result()
        assert (await observer.get("/a")).data == b"new"


class LosesAnswers:
    """The network, without the answers to requests of some methods."""

    def __init__(self, *methods: str) -> None:
        self._inner = HttpTransport()
        self._methods = methods
        self.stream = self._inner.stream
        self.close = self._inner.close
        self.is_lost = threading.Event()

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        response = await self._inner.request(endpoint, request, timeout_ms)
        if request.method in self._methods and "/tree/" in request.target:
            self.is_lost.set()
            raise ConnectionLostError("the answer was lost")
        return response


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


def closed_under(client: Client, call: Callable[[], object], began: threading.Event) -> object:
    """Close ``client`` while ``call`` waits in another thread; return what that raises."""
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(call)
        assert began.wait(10)
        client.close()
        return called.exception(timeout=1)


def test_the_sync_face_says_of_a_write_what_the_other_one_says(url: str) -> None:
    """Closed by another thread: what the member has done is not reported as not done."""
    network = LosesAnswers("PUT")
    client = connect(url, transport=network, retry=PATIENT, timeout=600).open()
    client.create("/a", b"old")

    raised = closed_under(client, lambda: client.set("/a", b"new"), network.is_lost)

    assert isinstance(raised, OutcomeUnknownError)
    with connect(url) as observer:
        assert observer.get("/a").data == b"new"


def test_the_sync_face_says_of_a_read_that_the_client_was_closed(url: str) -> None:
    """A read changes nothing, so nothing is unknown: it was only not answered."""
    network = LosesAnswers("GET")
    client = connect(url, transport=network, retry=PATIENT, timeout=600).open()

    raised = closed_under(client, lambda: client.exists("/b"), network.is_lost)

    assert isinstance(raised, ClientClosedError)


def test_work_that_does_not_end_with_its_client_is_unknown(url: str) -> None:
    """It is cancelled in the end, and it may have come to something before that."""
    client = connect(url).open()
    began = threading.Event()

    async def work() -> None:
        began.set()
        await asyncio.sleep(600)

    before_s = time.monotonic()
    raised = closed_under(client, lambda: client.call(work()), began)

    assert isinstance(raised, OutcomeUnknownError)
    assert "was closed" in str(raised)
    assert time.monotonic() - before_s < patient(5)


def test_a_client_that_is_closed_while_it_opens_stays_closed() -> None:
    """Another thread made its first call: that is refused, and no loop and no session lives on."""
    with serving() as url, connect(url) as client:
        is_opening, may_open = threading.Event(), threading.Event()

        async def open_late() -> AsyncClient:
            is_opening.set()
            await asyncio.to_thread(may_open.wait)
            return await connect(url)

        late = Client(open_late)
        before = set(threading.enumerate())
        with ThreadPoolExecutor(1) as pool:
            acquiring = pool.submit(lambda: Lock(late, "a").acquire())
            is_opening.wait()
            late.close()
            may_open.set()
            with pytest.raises(ClientClosedError):
                acquiring.result(patient(10))

        assert client.lock("a").holder is None
        loops = [each for each in threading.enumerate() if each.name == "coordinator client"]
        assert set(loops) <= before
        late.close()
