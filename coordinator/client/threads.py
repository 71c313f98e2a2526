"""The verbs of a client for threads that use its stream: no event loop between them and the socket.

``Verbs`` runs the methods of ``AsyncClient`` in the thread that calls: they are the same
coroutines, over a ``CallDelivery`` whose waits are those of threads, so they never suspend. What
lives in the client's event loop (sessions, watches, locks) is asked for there.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from coordinator.client.async_client import AsyncClient
from coordinator.client.blocking_delivery import BlockingDelivery
from coordinator.client.loop_thread import LoopThread
from coordinator.client.session import Session
from coordinator.client.settling import run_here
from coordinator.client.stream.blocking import BlockingTransport
from coordinator.client.stream.leader import KnownLeader
from coordinator.client.transport import Request, Response
from coordinator.errors import CoordinatorError, SessionExpiredError

T = TypeVar("T")


class Verbs(AsyncClient):
    """The verbs of ``core`` for threads; ``loop`` runs what they need of it.

    Each is run by ``run_here``, and waits in the thread that calls.
    """

    def __init__(self, core: AsyncClient, loop: LoopThread) -> None:
        leader = KnownLeader()
        label, tls = core.settings.label, core.settings.tls
        transport = BlockingTransport(core.clock, leader, label, self._by_loop, tls)
        self.settings = core.settings
        self._beside = self._counted_by = core.delivery
        self._delivery = BlockingDelivery(core.delivery, transport, leader)
        self._core = core
        self._thread = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one of the verbs."""
        self._thread.refuse(work)
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

    def _note_end(self, session: Session, error: SessionExpiredError) -> None:
        async def note_end() -> None:
            session.note_end(error)

        self._thread.run(note_end())

    @property
    def _takes_calls(self) -> bool:
        return not self._delivery.is_closed

    def _by_loop(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        return self._thread.run(self._beside.send(endpoint, request, timeout_ms))
