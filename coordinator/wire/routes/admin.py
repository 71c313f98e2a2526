"""The routes for operators and their machines: status, health, metrics, and the API itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coordinator.model.access import METRICS, Verb
from coordinator.model.members import HandoverRequest, LogLevelRequest
from coordinator.model.status import Health
from coordinator.wire.codec import from_body
from coordinator.wire.request import Answer, IncomingRequest
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
        self._may_render = False
        """Whether what renders the metrics has been loaded."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of status, health and metrics."""
        return (
            Route("GET", "/v1/status", self.status, "status"),
            Route("GET", "/v1/members", self.members, "list_members"),
            Route("POST", "/v1/members/handover", self.hand_over, "hand_over"),
            Route("PUT", "/v1/members/log-level", self.set_log_level, "set_log_level"),
            Route("GET", "/health/live", self.live, "health_live", is_open=True),
            Route("HEAD", "/health/live", self.live, "health_live_head", is_open=True),
            Route("GET", "/health/ready", self.ready, "health_ready", is_open=True),
            Route("HEAD", "/health/ready", self.ready, "health_ready_head", is_open=True),
            Route("GET", "/metrics", self.metrics, "metrics"),
            Route("GET", "/openapi.json", self.openapi, "openapi"),
        )

    async def status(self, request: IncomingRequest) -> Answer:
        """Return what this member knows of itself and the others, now and without asking them."""
        Query(request.query)
        now = self._door.member.status()
        return self._door.reply(request, now, zxid=now.zxid, index=now.applied_index)

    async def members(self, request: IncomingRequest) -> Answer:
        """Return what every member says of itself, as far as this one reaches them."""
        Query(request.query)
        return self._door.reply_now(request, await self._door.member.reports.all())

    async def hand_over(self, request: IncomingRequest) -> Answer:
        """Have another member lead."""
        Query(request.query)
        from_body(HandoverRequest, await self._door.body(request))
        reply = await self._door.member.reports.hand_over(request.caller)
        return self._door.reply_now(request, reply)

    async def set_log_level(self, request: IncomingRequest) -> Answer:
        """Change what members log, until their next start."""
        Query(request.query)
        shape = from_body(LogLevelRequest, await self._door.body(request))
        reply = await self._door.member.log_levels.set(
            shape.level, shape.member_id, request.caller
        )
        return self._door.reply_now(request, reply)

    async def live(self, request: IncomingRequest) -> Answer:
        """Answer while the event loop turns; a member that fails this should be restarted."""
        return self._door.reply_now(request, Health("live", ""))

    async def ready(self, request: IncomingRequest) -> Answer:
        """Say whether to send requests here: not while starting, stopping or without a leader."""
        door = self._door
        if door.closing.has_begun:
            reason = "this member is stopping"
        else:
            reason = "" if door.member.is_ready else door.member.not_ready_reason()
        if not reason:
            return door.reply_now(request, Health("ready", ""))
        health = Health("not ready", reason)
        return door.reply_now(request, health, status=503, headers={"Retry-After": "1"})

    async def metrics(self, request: IncomingRequest) -> Answer:
        """Return the metrics in the text format of Prometheus."""
        member = self._door.member
        member.access.check(request.caller, Verb.READ, METRICS)
        if not self._may_render:
            await asyncio.to_thread(member.metrics.load)
            self._may_render = True
        return self._door.reply_encoded(member.render_metrics(), _METRICS_TYPE)

    async def openapi(self, request: IncomingRequest) -> Answer:
        """Return the description of every route."""
        if not self._described:
            self._described = await asyncio.to_thread(lambda: encode_json(self._document()))
        return self._door.reply_encoded(self._described, "application/json")
