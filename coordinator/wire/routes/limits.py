"""/v1/limits: how much there may be of everything, for all members alike."""

from __future__ import annotations

from coordinator.errors import BadArgumentsError
from coordinator.model.limits import LimitsChange, LimitsView
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.limits import LimitsRecord
from coordinator.wire.codec import from_body
from coordinator.wire.if_held import IF_HELD
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.auditing import attributed
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import CONDITIONS, READ_MODES, Query
from coordinator.wire.routes.route import Route


class LimitRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of the limits."""
        return (
            Route("GET", "/v1/limits", self.read, "get_limits"),
            Route("PATCH", "/v1/limits", self.change, "set_limits"),
        )

    async def read(self, request: IncomingRequest) -> Answer:
        """Return the limits that hold, and who set them."""
        door = self._door
        query = Query(request.query, READ_MODES)
        read = await door.member.limits.read(
            query.read_mode(), door.deadline_ms(request), caller=request.caller
        )
        return door.reply_read(request, _view(read.value), read)

    async def change(self, request: IncomingRequest) -> Answer:
        """Set those that are named, and return all of them."""
        door = self._door
        query = Query(request.query, CONDITIONS)
        body = await door.body(request)
        shape = from_body(LimitsChange, body, beside=IF_HELD)
        if not shape.limits:
            raise BadArgumentsError("body.limits: expected a limit to set, found none")
        done = await door.member.limits.change(
            tuple(shape.limits.items()),
            attributed(request, shape.by),
            shape.expected_version,
            RequestContext(
                door.request_id(request),
                door.deadline_ms(request),
                caller=request.caller,
                if_held=conditions(query, body),
            ),
        )
        view = _view(done.record)
        return door.reply(request, view, zxid=done.zxid, index=done.index)


def _view(record: LimitsRecord) -> LimitsView:
    return LimitsView(
        dict(record.limits.items()), record.version, record.changed_by, record.changed_ms
    )
