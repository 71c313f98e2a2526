"""/v1/locks/NAME/why and /v1/diagnosis: why a lock is as it is, and what is wrong, in words."""

from __future__ import annotations

from coordinator.model.diagnosis import CheckResult, Diagnosis
from coordinator.wire.codec import to_body
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import READ_MODES, Query
from coordinator.wire.routes.queues import name_in
from coordinator.wire.routes.route import Route

LIMIT_MAX = 10_000
PAGE_MAX = 100
"""A page of a greater limit is shorter than asked for, and goes on behind its ``next``."""


class ExplanationRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of explanations."""
        return (
            Route("GET", "/v1/locks/{name}/why", self.why, "explain_lock"),
            Route("GET", "/v1/diagnosis", self.diagnosis, "diagnose"),
        )

    async def why(self, request: IncomingRequest) -> Answer:
        """Return who holds a lock, for how long that is safe, and why others wait."""
        door, query = self._door, Query(request.query, READ_MODES)
        read = await door.member.explanations.why(
            name_in(request), query.read_mode(), door.deadline_ms(request), caller=request.caller
        )
        return door.reply_read(request, read.value, read)

    async def diagnosis(self, request: IncomingRequest) -> Answer:
        """Return what is wrong with the cluster and its locks, and what to do."""
        door = self._door
        query = Query(request.query, {*READ_MODES, "lock", "after", "limit", "checks"})
        checks: tuple[CheckResult, ...] | None = None
        if query.flag("checks"):
            checks = await door.member.examinations.checks(request.caller)
        limit = query.integer("limit", minimum=1, maximum=LIMIT_MAX)
        read = await door.member.explanations.diagnosis(
            query.read_mode(),
            door.deadline_ms(request),
            lock=query.text("lock"),
            after=query.text("after"),
            limit=PAGE_MAX if limit is None else min(limit, PAGE_MAX),
            caller=request.caller,
        )
        found = read.value
        body = to_body(Diagnosis(found.cluster, (), found.next, checks))
        return await door.reply_listed(request, body, {"locks": (found.locks, to_body)}, read)
