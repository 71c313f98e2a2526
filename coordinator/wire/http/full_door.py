"""The door of aiohttp, for connections that are not plain; loaded when the first of them comes.

aiohttp is a third of what a member loads to start, and 12 MB. Most members are asked over the
stream and by plain requests alone, so they start without it, and elect a leader earlier. It is
loaded in a thread: the loop goes on, and who needs it waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from coordinator.waiting import in_turns
from coordinator.wire.admission import Admission, Place
from coordinator.wire.arrival import Speaker
from coordinator.wire.http.hosts import Names
from coordinator.wire.routes.answering import Answering

if TYPE_CHECKING:
    from aiohttp import web

logger = logging.getLogger("coordinator.http")

_APP = "coordinator.wire.http.app"


class FullDoor:
    """Says who speaks whole HTTP with a connection."""

    def __init__(self, answering: Answering, admission: Admission, names: Names | None) -> None:
        self._answering = answering
        self._admission = admission
        self._names = names
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[Callable[[Speaker | None], None]] = []
        self._runner: web.AppRunner | None = None
        self.speaker: Speaker | None = None
        """Makes who goes on with a connection; None until it is loaded."""

    def ask(self, go_on: Callable[[Speaker | None], None]) -> None:
        """Call ``go_on`` with the speaker, once it is there; with None if it cannot be loaded."""
        self._waiting.append(go_on)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="load the HTTP door")

    async def _open(self) -> None:
        try:
            self.speaker = await self._loaded()
        except Exception:
            logger.exception("aiohttp could not be loaded; the next connection tries again")
            self._opening = None
        waiting, self._waiting = self._waiting, []
        in_turns(waiting, lambda go_on: go_on(self.speaker))

    async def _loaded(self) -> Speaker:
        await asyncio.to_thread(import_module, _APP)
        from aiohttp import web

        from coordinator.wire.http.app import application
        from coordinator.wire.http.connection import HttpConnection

        app = application(self._answering, self._names)
        grace_s = self._admission.config.shutdown_grace_ms / 1_000
        self._runner = runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=grace_s
        )
        await runner.setup()
        manager, loop = runner.server, asyncio.get_running_loop()
        assert manager is not None, "it was set up"

        def speaker(place: Place, at: float) -> HttpConnection:
            return HttpConnection(manager, self._admission, place, at, loop=loop)

        return speaker

    def abort(self) -> None:
        """Break all connections that speak it."""
        if self._runner is None or self._runner.server is None:
            return
        for connection in list(self._runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def close(self) -> None:
        """Let requests finish within the grace."""
        if self._opening is not None:
            await self._opening
        if self._runner is not None:
            await self._runner.cleanup()
