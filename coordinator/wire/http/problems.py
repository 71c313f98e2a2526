"""The one place where whatever went wrong becomes a response.

1. An error of the tree becomes its problem details, with its status.
2. What aiohttp refuses by itself (no route, wrong method, body too large) becomes one of the tree.
3. Anything else is our mistake: 500 with the code ``Error`` and no details, and one traceback in
   the log. Its outcome is unknown, and the problem says so (``definite`` is false).
4. A cancelled handler stays cancelled: its client has gone.
5. Each request is counted, by the operation that it asked for and the status that it got.
6. A request to another's name, or from another site, is refused before any route is looked at.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from aiohttp import HttpVersion10, web
from aiohttp.typedefs import Middleware

from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    DataTooLargeError,
    MethodNotAllowedError,
    UnknownRouteError,
    forget_frames,
)
from coordinator.wire.http.adapter import NAMES, response_of
from coordinator.wire.http.hosts import refuse_foreign_host, refuse_other_sites
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.paths import target_path
from coordinator.wire.strict_json import shortened

logger = logging.getLogger("coordinator.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_NO_ROUTE = "none"
_DOOR = "http"
_GONE = "gone"
"""Instead of a status: the client had gone before it was answered."""
_SAFE_METHODS = frozenset({"GET", "HEAD"})


def problem_middleware(door: Door, operation_ids: Mapping[tuple[str, str], str]) -> Middleware:
    """Return the middleware around every route, and around the lack of one.

    ``operation_ids`` are those of the routes by method and template; requests are counted by them.
    """
    counted = door.member.metrics.requests.labels
    lacks_name = _nameless({template for _, template in operation_ids})

    def count(request: web.Request, status: str) -> None:
        resource = request.match_info.route.resource
        template = "" if resource is None else resource.canonical
        counted(operation_ids.get((request.method, template), _NO_ROUTE), status, _DOOR).inc()

    def problem(error: CoordinatorError, headers: Mapping[str, str] | None = None) -> web.Response:
        return response_of(door.problem(error, headers), door.member_id)

    @web.middleware
    async def answer_and_count(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await answer_with_problems(request, handler)
        except BaseException:
            count(request, _GONE)
            raise
        count(request, str(response.status))
        if getattr(request.protocol, "full", ""):
            response.force_close()  # a spare connection asks once
        return response

    async def answer_with_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.version < HttpVersion10:
                raise BadArgumentsError("request: expected HTTP/1.1 (RFC 9112), found no version")
            names = request.app.get(NAMES)
            if names is not None:
                refuse_foreign_host(request, names)
            if request.method not in _SAFE_METHODS:
                refuse_other_sites(request, names)
            return await handler(request)
        except CoordinatorError as error:
            return problem(error)
        except web.HTTPException as refusal:
            answer = problem(*_problem_of(door, request, refusal, lacks_name))
            forget_frames(refusal)
            return answer
        except ConnectionError:
            raise  # nobody is left to answer
        except Exception:
            route = request.match_info.route.resource
            shown = route.canonical if route is not None else "no route"
            logger.exception("unexpected failure in %r %s", request.method, shown)
            if request.writer.output_size > 0:
                # A stream that was begun cannot become another response; its end says enough.
                raise ConnectionResetError("the response had begun") from None
            return problem(CoordinatorError("an unexpected failure; see the member's log"))

    return answer_and_count


def _nameless(templates: Iterable[str]) -> Callable[[str], bool]:
    """Return what says of a path that only a name is missing to make it one of ``templates``."""
    patterns = [re.compile(re.sub(r"\{\w+\}", "[^/]+", each)) for each in templates]

    def lacks_name(path: str) -> bool:
        first, *names = path.split("/")
        filled = "/".join([first, *(each or "name" for each in names)])
        return "" in names and any(each.fullmatch(filled) for each in patterns)

    return lacks_name


def _problem_of(
    door: Door,
    request: web.Request,
    refusal: web.HTTPException,
    lacks_name: Callable[[str], bool],
) -> tuple[CoordinatorError, Mapping[str, str] | None]:
    path = shortened(ascii(target_path(request.path_qs))[1:-1])
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refusal.allowed_methods))
        method = shortened(ascii(request.method)[1:-1])
        error: CoordinatorError = MethodNotAllowedError(
            f"{path}: expected {allowed}, found {method}", allowed=sorted(refusal.allowed_methods)
        )
        return error, {"Allow": allowed}
    if isinstance(refusal, web.HTTPNotFound) and lacks_name(target_path(request.path_qs)):
        error = BadArgumentsError(f"{path}: expected a name, found an empty one")
    elif isinstance(refusal, web.HTTPNotFound):
        error = UnknownRouteError(f"{path}: no such route; the routes are in /openapi.json")
    elif isinstance(refusal, web.HTTPRequestEntityTooLarge):
        maximum = door.config.body_bytes_max
        error = DataTooLargeError(
            f"body: expected at most {maximum} bytes, found more", limit=maximum
        )
    else:
        error = BadArgumentsError(f"request: {refusal.reason}")
    return error, None
