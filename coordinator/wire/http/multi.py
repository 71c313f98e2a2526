"""/v1/multi: several operations as one write, all or nothing, also under conditions."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from coordinator.state.commands import IfHeld, Operation
from coordinator.wire.http.bodies import MANY
from coordinator.wire.http.conditions import conditions
from coordinator.wire.http.convert import multi_command, result_body
from coordinator.wire.http.door import Door
from coordinator.wire.http.queries import CONDITIONS, Query
from coordinator.wire.http.routes import Route
from coordinator.wire.messages.operations import Guarded, Multi, read_multi

Conditions = tuple[IfHeld, ...]


class MultiRoutes:
    """One route for both forms; the body says which."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        return (Route("POST", "/v1/multi", self.submit, "multi"),)

    async def submit(self, request: web.Request) -> web.Response:
        """Do all operations or none; of a guarded write, those of the branch that applies."""
        door = self._door
        query = Query(request.rel_url.raw_query_string, CONDITIONS)
        shape, operation, if_held = await door.body_read(
            request, lambda body: _read(query, body), MANY
        )
        committed = await door.member.submit(
            operation,
            request=door.request_id(request),
            if_held=if_held,
            deadline_ms=door.deadline_ms(request),
        )
        done: Any = committed.outcome.unwrap()
        encoding = door.reply_encoding(request)
        body: dict[str, Any] = {
            "results": [result_body(each, encoding) for each in done.results],
            "zxid": committed.outcome.zxid,
        }
        if isinstance(shape, Guarded):
            body["branch"] = "then" if done.is_then else "otherwise"
        return door.reply(request, body, zxid=committed.outcome.zxid, index=committed.index)


def _read(query: Query, body: Any) -> tuple[Multi | Guarded, Operation, Conditions]:
    shape = read_multi(body)
    return shape, multi_command(shape), conditions(query, body)
