"""How a request becomes an answer, whichever door it came through.

1. An error of the tree becomes its problem details, with its status.
2. Anything else is our mistake: 500 with the code ``Error`` and no details, and one traceback in
   the log. Its outcome is unknown, and the problem says so (``definite`` is false).
3. A cancelled handler stays cancelled: its client has gone.
4. Each request is counted, by the operation that it asked for, the status that it got, and its
   door.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cache

from coordinator.errors import CoordinatorError, MethodNotAllowedError, ThrottledError
from coordinator.wire.admission import ASKED_OF_A_FULL_MEMBER
from coordinator.wire.request import Answer, Answered, Request
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.etags import refuse_preconditions
from coordinator.wire.routes.route import Check, Route
from coordinator.wire.routes.table import RouteTable

logger = logging.getLogger("coordinator.http")

NO_ROUTE = "none"
GONE = "gone"
"""Instead of a status: the client had gone before it was answered."""

ChecksOf = Callable[[Route], Iterable[Check]]


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
        self._name = name
        self._table = RouteTable(routes)
        self._checks = {route.operation_id: tuple(checks_of(route)) for route in routes}
        self._counted = cache(door.member.metrics.requests.labels)

    async def answer(self, request: Request, full: str = "") -> Answered:
        """Return the answer, or the response that went on and has ended.

        ``full`` is why the connection is one too many, of a spare one.

        Raises:
            ConnectionError: nobody is left to answer, or what was begun cannot be finished.
        """
        operation_id, status = NO_ROUTE, GONE
        try:
            try:
                route = self._table.find(request.method, request.target)
                operation_id = route.operation_id
                if full and (route.method, route.template) not in ASKED_OF_A_FULL_MEMBER:
                    answered: Answered = self.too_many(full, request)
                else:
                    for check in self._checks[operation_id]:
                        check(request)
                    answered = await route.handler(request)
            except CoordinatorError as error:
                answered = self._problem(error, request)
            except ConnectionError:
                raise
            except Exception:
                answered = self._failed(request, operation_id)
            status = str(answered.status)
            return answered
        finally:
            self._counted(operation_id, status, self._name).inc()

    def _problem(self, error: CoordinatorError, request: Request) -> Answer:
        headers = None
        if isinstance(error, MethodNotAllowedError):
            headers = {"Allow": ", ".join(error.fields["allowed"])}
        return self.door.problem(error, headers, encoding=request.encoding)

    def too_many(self, full: str, request: Request) -> Answer:
        """Return the answer to a spare connection that asks for what it may not ask for."""
        answer = self.door.problem(ThrottledError(full), encoding=request.encoding, status=503)
        answer.closes = True
        return answer

    def _failed(self, request: Request, operation_id: str) -> Answer:
        logger.exception("unexpected failure in %r %s", request.method, operation_id)
        if request.has_begun:
            # What was begun cannot become another response; its end says enough.
            raise ConnectionResetError("the response had begun") from None
        error = CoordinatorError("an unexpected failure; see the member's log")
        return self.door.problem(error, encoding=request.encoding)
