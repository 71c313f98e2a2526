"""What operators and their machines ask: status, health, metrics, and the routes themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coordinator.model.status import Health
from coordinator.wire.request import Answer, Request
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import Query
from coordinator.wire.routes.route import Route
from coordinator.wire.strict_json import encode_json

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class OperationRoutes:
    """The routes of one door; ``document`` makes the OpenAPI document, in a thread."""

    def __init__(self, door: Door, document: Callable[[], dict[str, Any]]) -> None:
        self._door = door
        self._document = document
        self._described = b""
        """The document as a body, once it was asked for."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of status, health and metrics."""
        return (
            Route("GET", "/v1/status", self.status, "status"),
            Route("GET", "/health/live", self.live, "health_live"),
            Route("HEAD", "/health/live", self.live, "health_live_head"),
            Route("GET", "/health/ready", self.ready, "health_ready"),
            Route("HEAD", "/health/ready", self.ready, "health_ready_head"),
            Route("GET", "/metrics", self.metrics, "metrics"),
            Route("GET", "/openapi.json", self.openapi, "openapi"),
        )

    async def status(self, request: Request) -> Answer:
        """Return what this member knows of itself and the others, now and without asking them."""
        Query(request.query)
        now = self._door.member.status()
        return self._door.reply(request, now, zxid=now.zxid, index=now.applied_index)

    async def live(self, request: Request) -> Answer:
        """Answer while the event loop turns; a member that fails this should be restarted."""
        return self._door.reply_now(request, Health("live", ""))

    async def ready(self, request: Request) -> Answer:
        """Say whether to send requests here: not while starting, stopping or without a leader."""
        door = self._door
        if door.is_closing:
            reason = "this member is stopping"
        else:
            reason = "" if door.member.is_ready else door.member.not_ready_reason()
        if not reason:
            return door.reply_now(request, Health("ready", ""))
        health = Health("not ready", reason)
        return door.reply_now(request, health, status=503, headers={"Retry-After": "1"})

    async def metrics(self, request: Request) -> Answer:
        """Return the metrics in the text format of Prometheus."""
        return self._door.reply_encoded(self._door.member.render_metrics(), _METRICS_TYPE)

    async def openapi(self, request: Request) -> Answer:
        """Return the description of every route."""
        if not self._described:
            self._described = await asyncio.to_thread(lambda: encode_json(self._document()))
        return self._door.reply_encoded(self._described, "application/json")
