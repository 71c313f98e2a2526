"""What operators and their machines ask: status, health, metrics, and the routes themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from coordinator.model.status import Health
from coordinator.wire.http.door import Door
from coordinator.wire.http.queries import Query
from coordinator.wire.http.routes import Route
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
        return (
            Route("GET", "/v1/status", self.status, "status"),
            Route("GET", "/health/live", self.live, "health_live"),
            Route("HEAD", "/health/live", self.live, "health_live_head"),
            Route("GET", "/health/ready", self.ready, "health_ready"),
            Route("HEAD", "/health/ready", self.ready, "health_ready_head"),
            Route("GET", "/metrics", self.metrics, "metrics"),
            Route("GET", "/openapi.json", self.openapi, "openapi"),
        )

    async def status(self, request: web.Request) -> web.Response:
        """Return what this member knows of itself and the others, now and without asking them."""
        Query(request.rel_url.raw_query_string)
        now = self._door.member.status()
        return self._door.reply(request, now, zxid=now.zxid, index=now.applied_index)

    async def live(self, request: web.Request) -> web.Response:
        """Answer while the event loop turns; a member that fails this should be restarted."""
        return self._door.reply_now(request, Health("live", ""))

    async def ready(self, request: web.Request) -> web.Response:
        """Say whether to send requests here: not while starting, stopping or without a leader."""
        door = self._door
        if door.is_closing:
            reason = "this member is stopping"
        else:
            reason = "" if door.member.is_ready else door.member.not_ready_reason()
        if not reason:
            return door.reply_now(request, Health("ready", ""))
        response = door.reply_now(request, Health("not ready", reason), status=503)
        response.headers["Retry-After"] = "1"
        return response

    async def metrics(self, request: web.Request) -> web.Response:
        """Return the metrics in the text format of Prometheus."""
        headers = {"Content-Type": _METRICS_TYPE, **self._door.labels()}
        return web.Response(body=self._door.member.render_metrics(), headers=headers)

    async def openapi(self, request: web.Request) -> web.Response:
        """Return the description of every route."""
        if not self._described:
            self._described = await asyncio.to_thread(lambda: encode_json(self._document()))
        headers = {"Content-Type": "application/json", **self._door.labels()}
        return web.Response(body=self._described, headers=headers)
