"""The verbs of a client for threads that use its stream: no event loop between them and the socket.

``Verbs`` runs the methods of ``AsyncClient`` in the thread that calls: they are the same
coroutines, over a ``Delivery`` whose waits are those of threads, so they never suspend. What lives
in the client's event loop (sessions, watches, locks) is asked for there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from coordinator.client.async_client import AsyncClient
from coordinator.client.calls import Call
from coordinator.client.delivery import Delivery
from coordinator.client.loop_thread import LoopThread
from coordinator.client.request_ids import RequestIdPool, RequestIds
from coordinator.client.session import Session
from coordinator.client.stream.blocking import BlockingTransport, run_here
from coordinator.client.stream.leader import KnownLeader
from coordinator.client.transport import Request, Response
from coordinator.errors import (
    ClientClosedError,
    CoordinatorError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.wire.encoding import Encoding

T = TypeVar("T")

_WRITES_AT_ONCE_MAX = 128


class _Lending:
    """An id for one write of a thread, as ``request_ids.Lending`` is for one of a task."""

    __slots__ = ("_ids", "_pool", "_wait_ms", "_writes")

    def __init__(
        self, pool: RequestIdPool, writes: threading.BoundedSemaphore, wait_ms: int
    ) -> None:
        self._pool = pool
        self._writes = writes
        self._wait_ms = wait_ms
        self._ids: RequestIds | None = None

    async def __aenter__(self) -> RequestIds:
        if not self._writes.acquire(timeout=max(0, self._wait_ms) / 1000):
            raise UnavailableError(
                f"expected fewer than {_WRITES_AT_ONCE_MAX} writes of this client under way, found "
                f"as many for {self._wait_ms} ms; nothing was sent of this one"
            )
        self._ids = self._pool.take()
        return self._ids

    async def __aexit__(self, *_exception: object) -> None:
        assert self._ids is not None, "left what was not entered"
        self._pool.give_back(self._ids)
        self._writes.release()


class _BlockingPool(RequestIdPool):
    """The ids of the threads of one client."""

    def __init__(self, floor: Callable[[], int]) -> None:
        super().__init__(floor)
        self._threads = threading.BoundedSemaphore(_WRITES_AT_ONCE_MAX)

    def write(self, wait_ms: int) -> Any:
        """Lend an id for one write; waits up to ``wait_ms`` while very many are under way."""
        return _Lending(self, self._threads, wait_ms)


class BlockingDelivery(Delivery):
    """All calls that threads make by themselves; its coroutines never suspend."""

    def __init__(self, beside: Delivery, transport: BlockingTransport, leader: KnownLeader) -> None:
        super().__init__(
            transport,
            (beside.endpoints.current,),
            beside.clock,
            beside.retry,
            leader,
            encoding=Encoding.MSGPACK,
        )
        self.endpoints = beside.endpoints
        self.request_ids = _BlockingPool(lambda: self.index_seen)
        self._is_over = threading.Event()

    async def wait(self, delay_ms: int) -> None:
        """Wait for so long, or until the client is closed."""
        self._is_over.wait(delay_ms / 1000)

    @property
    def is_closed(self) -> bool:
        """Whether no call is sent any more."""
        return self._is_over.is_set()

    async def close(self) -> None:
        """End the calls under way, and the connections."""
        self._is_over.set()
        await self._transport.close()


class Verbs(AsyncClient):
    """The verbs of ``core`` for threads; ``loop`` runs what they need of it.

    Each is run by ``run_here``, and waits in the thread that calls.
    """

    def __init__(self, core: AsyncClient, loop: LoopThread) -> None:
        leader = KnownLeader()
        transport = BlockingTransport(core.clock, leader, core.settings.label, self._by_loop)
        self.settings = core.settings
        self._beside = core.delivery
        self._delivery = BlockingDelivery(core.delivery, transport, leader)
        self._core = core
        self._thread = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one of the verbs."""
        try:
            self._thread.refuse_where_it_cannot_run()
        except BaseException:
            work.close()
            raise
        try:
            return run_here(work)
        except CoordinatorError as error:
            raise error.with_traceback(None)  # noqa: B904 - the caller's lines, as by the loop

    async def session(self, timeout: float | None = None) -> Session:
        """Return the client's session, which lives in the loop."""
        return self._thread.run(self._core.session(timeout))

    async def close(self) -> None:
        """End the calls of threads; the core is closed by its owner."""
        await self._delivery.close()

    def _heed(self, session: Session, error: SessionExpiredError) -> None:
        async def heed() -> None:
            session.note_end(error)

        self._thread.run(heed())

    async def _read(self, call: Call, parse: Callable[[Any], T]) -> T:
        self._refuse_when_closed()
        return await self._delivery.read(call, parse, self.settings.timeout_ms)

    async def _write(
        self, call: Call, parse: Callable[[Any], T], timeout: float | None = None
    ) -> T:
        self._refuse_when_closed()
        self._beside.writes_begun += 1
        timeout_ms = self.settings.timeout_ms if timeout is None else int(timeout * 1000)
        return await self._delivery.write(call, parse, timeout_ms)

    def _refuse_when_closed(self) -> None:
        if self._delivery.is_closed:
            raise ClientClosedError("this client is closed; connect() makes another one")

    def _by_loop(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        return self._thread.run(self._beside.send(endpoint, request, timeout_ms))
