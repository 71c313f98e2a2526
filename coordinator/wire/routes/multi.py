"""/v1/multi: several operations as one write, all or nothing, also under conditions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from coordinator.model.operations import Guarded, Multi, ReadDone, ZnodeResult
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import HeldCondition
from coordinator.wire.codec import to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.multi import read_multi
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.auditing import attributed
from coordinator.wire.routes.bodies import MANY
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import CONDITIONS, Query
from coordinator.wire.routes.route import Route

Conditions = tuple[HeldCondition, ...]


class MultiRoutes:
    """One route for both forms; the body says which."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of several operations as one."""
        return (Route("POST", "/v1/multi", self.submit, "multi"),)

    async def submit(self, request: IncomingRequest) -> Answer:
        """Do all operations or none; of a guarded write, those of the branch that applies."""
        door = self._door
        query = Query(request.query, CONDITIONS)
        operation, if_held = await door.body_read(request, lambda body: _read(query, body), MANY)
        if isinstance(operation, Multi) and operation.by:
            operation = replace(operation, by=attributed(request, operation.by))
        committed = await door.member.proposer.submit(
            operation,
            RequestContext(
                door.request_id(request),
                door.deadline_ms(request),
                caller=request.caller,
                if_held=if_held,
            ),
        )
        done: Any = committed.outcome.unwrap()
        encoding = door.reply_encoding(request)
        body: dict[str, Any] = {
            "results": [_result_body(each, encoding) for each in done.results],
            "zxid": committed.outcome.zxid,
        }
        if isinstance(operation, Guarded):
            body["branch"] = "then" if done.is_then else "otherwise"
        return door.reply(request, body, zxid=committed.outcome.zxid, index=committed.index)


def _read(query: Query, body: Any) -> tuple[Multi | Guarded, Conditions]:
    operation = read_multi(body)
    return operation, conditions(query, body)


def _result_body(result: ZnodeResult, encoding: Encoding) -> dict[str, Any]:
    body: dict[str, Any] = to_body(result, encoding)
    if isinstance(result, ReadDone) and result.stat is None:
        del body["data" if "data" in body else "data_base64"]  # of no znode
    return body
