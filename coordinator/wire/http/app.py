"""The application: every route behind one middleware, over one member."""

from __future__ import annotations

import platform
import re
from typing import Any

from aiohttp import web

from coordinator.clock import Clock
from coordinator.config import HttpConfig
from coordinator.service.member import Member
from coordinator.service.status import product_version
from coordinator.wire.http.adapter import DOOR, adapted, continuing
from coordinator.wire.http.hosts import refuse_simple_post
from coordinator.wire.http.problems import problem_middleware
from coordinator.wire.request import Answered, Request
from coordinator.wire.routes.admin import OperationRoutes
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.elections import ElectionRoutes
from coordinator.wire.routes.etags import unconditional
from coordinator.wire.routes.grants import GrantRoutes
from coordinator.wire.routes.limits import LimitRoutes
from coordinator.wire.routes.lock_admin import HoldingRoutes
from coordinator.wire.routes.locks import LockRoutes
from coordinator.wire.routes.multi import MultiRoutes
from coordinator.wire.routes.paths import TREE_PREFIX
from coordinator.wire.routes.route import Handler, Route
from coordinator.wire.routes.sessions import SessionRoutes
from coordinator.wire.routes.tree import TreeRoutes
from coordinator.wire.routes.watch import WatchRoutes

_PARAMETER = re.compile(r"\{(\w+)\}")


def create_app(member: Member, http_config: HttpConfig, clock: Clock) -> web.Application:
    """Return the application that serves ``member``; ``HttpServer`` listens for it.

    Args:
        member: started or not; asked by every route.
        http_config: the limits and deadlines of the door.
        clock: the member's clock, on which deadlines are counted.
    """
    door = Door(member, http_config, clock)
    member.metrics.build.labels(product_version(), platform.python_version()).set(1)
    routes = all_routes(door)
    operation_ids = {(each.method, each.template): each.operation_id for each in routes}
    app = web.Application(
        client_max_size=http_config.body_bytes_max,
        middlewares=[problem_middleware(door, operation_ids)],
    )
    app[DOOR] = door
    maybe_continue = continuing(door)
    for route in routes:
        app.router.add_route(
            route.method,
            router_pattern(route.template),
            adapted(_handler_of(route), door),
            expect_handler=maybe_continue,
        )
    return app


def router_pattern(template: str) -> str:
    """Return the template of a route in the language of aiohttp's router."""
    return _PARAMETER.sub(_parameter_pattern, template)


def _parameter_pattern(match: re.Match[str]) -> str:
    name = match.group(1)
    return f"{{{name}:(?s:.*)}}" if name == "path" else f"{{{name}:[^/]+}}"


def _handler_of(route: Route) -> Handler:
    """Return what answers a route: those of the tree judge preconditions, reads may ignore them."""
    is_read = route.method == "GET" or route.operation_id == "watch_many"
    is_judge = route.template.startswith(TREE_PREFIX)
    handler = route.handler if is_read or is_judge else unconditional(route.handler)
    return _asked_for_first(handler) if route.method == "POST" else handler


def _asked_for_first(handler: Handler) -> Handler:
    """Return ``handler``, behind the refusal of what a page may send without asking."""

    async def handle(request: Request) -> Answered:
        refuse_simple_post(request)
        return await handler(request)

    return handle


def all_routes(door: Door) -> tuple[Route, ...]:
    """Return every route, in the order of the documentation."""
    return (
        *TreeRoutes(door).routes(),
        *MultiRoutes(door).routes(),
        *WatchRoutes(door).routes(),
        *SessionRoutes(door).routes(),
        *LockRoutes(door).routes(),
        *HoldingRoutes(door).routes(),
        *GrantRoutes(door).routes(),
        *ElectionRoutes(door).routes(),
        *LimitRoutes(door).routes(),
        *OperationRoutes(door, _document).routes(),
    )


def _document() -> dict[str, Any]:
    # A tenth of what a member loads, for a page that few ask for: not while it starts.
    from coordinator.wire.http.openapi import openapi_document

    return openapi_document(product_version())
