"""/v1/upgrade: which member runs which release, and the end of an upgrade."""

from __future__ import annotations

from coordinator.model.upgrade import FinishUpgrade
from coordinator.service.writes.proposals import RequestContext
from coordinator.wire.codec import from_body
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.auditing import attributed
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import Query
from coordinator.wire.routes.route import Route


class UpgradeRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of upgrades."""
        return (
            Route("GET", "/v1/upgrade", self.status, "upgrade_status"),
            Route("POST", "/v1/upgrade/finish", self.finish, "finish_upgrade"),
        )

    async def status(self, request: IncomingRequest) -> Answer:
        """Return how far the upgrade is."""
        Query(request.query)
        return self._door.reply_now(
            request, await self._door.member.upgrades.status(request.caller)
        )

    async def finish(self, request: IncomingRequest) -> Answer:
        """Raise the level of the cluster, if every member reads the next one."""
        door = self._door
        Query(request.query)
        body = from_body(FinishUpgrade, await door.body(request))
        # A repeat finds the level raised, so it needs no number.
        context = RequestContext(None, door.deadline_ms(request), caller=request.caller)
        done = await door.member.upgrades.finish(attributed(request, body.by), context)
        return door.reply(request, done.view, zxid=done.zxid, index=done.index)
