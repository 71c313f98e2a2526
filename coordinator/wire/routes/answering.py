"""The answering of requests, whichever door they came through.

1. An error of the tree becomes its problem details, with its status.
2. Anything else is our mistake: 500 with the code ``Error`` and no details, and one traceback in
   the log. Its outcome is unknown, and the problem says so (``definite`` is false).
3. A cancelled handler stays cancelled: its client has gone.
4. A request that names its session renews it, whatever else it comes to
   (``service.sessions.renewals``). But not one that anybody may send, who was not asked who it is.
5. A member that has been found to differ gives no answer any more (``silence``), however far it
   had come with it.
6. Each request is counted, by the operation that it asked for, the status that it got, and its
   door.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from coordinator.errors import CoordinatorError, MethodNotAllowedError, ThrottledError
from coordinator.service.base.tallies import Tally
from coordinator.service.sessions.heartbeats import LeaseRenewal
from coordinator.wire.client_turns import LONG_BYTES
from coordinator.wire.request import Answer, Answered, IncomingRequest
from coordinator.wire.routes.auditing import note_answer
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.etags import refuse_preconditions
from coordinator.wire.routes.gate import Gate, may_label, shown_error
from coordinator.wire.routes.renewing import SESSION_ID, begin_renewal, say_renewed
from coordinator.wire.routes.route import Check, Route
from coordinator.wire.routes.silence import silenced
from coordinator.wire.routes.table import RouteTable

logger = logging.getLogger("coordinator.http")

NO_ROUTE: Final = "none"
GONE: Final = "gone"
"""Instead of a status: the client had gone before it was answered."""

ChecksOf = Callable[[Route], Iterable[Check]]
Begin = Callable[[], Awaitable[None]]


def own_checks(route: Route) -> tuple[Check, ...]:
    """Return what refuses a request of this route, at every door."""
    return (refuse_preconditions,) if route.ignores_preconditions else ()


class Answering:
    """One door's way from a request to its answer.

    ``name`` is what its requests are counted under; ``checks_of`` says what refuses them first."""

    def __init__(
        self,
        door: Door,
        routes: Iterable[Route],
        name: str,
        checks_of: ChecksOf = own_checks,
    ) -> None:
        self.door = door
        self._gate = Gate(door)
        self._name = name
        self._table = RouteTable(routes)
        self._checks = {route.operation_id: tuple(checks_of(route)) for route in routes}
        self._tallies = door.member.metrics.requests
        self._counted: dict[tuple[str, str], Tally] = {}
        """By operation and status."""

    async def answer(
        self, request: IncomingRequest, full: str = "", begin: Begin | None = None
    ) -> Answered:
        """Return the answer, or the response that went on and has ended.

        ``full`` is why the connection is one too many, of a spare one. ``begin`` waits until the
        request may begin, once its route is known.

        Raises:
            ConnectionError: nobody is left to answer, or what was begun cannot be finished.
        """
        operation_id, status = NO_ROUTE, GONE
        route: Route | None = None
        renewal: LeaseRenewal | None = None
        refusal: CoordinatorError | None = None
        is_admitted = False
        try:
            try:
                route = self._table.find(request.method, request.target)
                operation_id = route.operation_id
                for check in self._checks[operation_id]:
                    check(request)
                if begin is not None:
                    await begin()
                answered: Answered | None = None
                if full:
                    answered = await self._gate.admit_spare(request, route, full)
                elif not self._gate.knows(request, route):
                    await self._gate.find_out(request)
                if answered is None:
                    is_admitted = not route.is_open
                    if is_admitted and SESSION_ID in request.headers:
                        renewal = begin_renewal(self.door, request)
                    answered = await route.handler(request)
            except CoordinatorError as error:
                refusal = shown_error(error, request)
                answered = self._problem(refusal, request)
            except ConnectionError:
                raise
            except Exception:
                answered = self._failed(request, operation_id)
            answered = self._finished(request, route, answered, refusal, is_admitted=is_admitted)
            if renewal is not None:
                await say_renewed(answered, renewal)
                if self.door.member.difference and route is not None:
                    answered, _ = silenced(self.door, request, route, answered, refusal)
            status = str(answered.status)
            return answered
        finally:
            if renewal is not None:
                renewal.stop()
            self._count(operation_id, status)

    def refuse(self, request: IncomingRequest, error: CoordinatorError) -> Answer:
        """Return what a request is refused with of which no route is looked at, and count it."""
        try:
            operation_id = self._table.find(request.method, request.target).operation_id
        except CoordinatorError:
            operation_id = NO_ROUTE
        answer = self._problem(error, request)
        self._count(operation_id, str(answer.status))
        return answer

    def _finished(
        self,
        request: IncomingRequest,
        route: Route | None,
        answered: Answered,
        refusal: CoordinatorError | None,
        *,
        is_admitted: bool,
    ) -> Answered:
        """Return the answer as this member may give it, noted and labelled."""
        door, member = self.door, self.door.member
        if member.difference and route is not None:
            answered, refusal = silenced(door, request, route, answered, refusal)
        if member.audit.is_kept:
            operation_id = NO_ROUTE if route is None else route.operation_id
            note_answer(door, request, operation_id, answered, refusal)
        if isinstance(answered, Answer):
            if answered.status == ThrottledError.http_status:
                door.turns.note_quick()
            if answered.body is not None and len(answered.body) > LONG_BYTES:
                door.turns.note_long(len(answered.body))
            answered.is_labelled = may_label(door, answered, is_admitted=is_admitted)
        return answered

    def _count(self, operation_id: str, status: str) -> None:
        tally = self._counted.get((operation_id, status)) or self._tally(operation_id, status)
        tally.value += 1

    def _tally(self, operation_id: str, status: str) -> Tally:
        tally = self._tallies.labels(operation_id, status, self._name)
        self._counted[operation_id, status] = tally
        return tally

    def _problem(self, error: CoordinatorError, request: IncomingRequest) -> Answer:
        headers = None
        if isinstance(error, MethodNotAllowedError):
            headers = {"Allow": ", ".join(error.fields["allowed"])}
        return self.door.problem(error, headers, encoding=request.encoding)

    def _failed(self, request: IncomingRequest, operation_id: str) -> Answer:
        logger.exception("unexpected failure in %r %s", request.method, operation_id)
        if request.has_begun:
            # What was begun cannot become another response; its end says enough.
            raise ConnectionResetError("the response had begun") from None
        error = CoordinatorError("an unexpected failure; see the member's log")
        return self.door.problem(error, encoding=request.encoding)
