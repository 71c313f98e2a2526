"""The application: every route behind one middleware, over one member."""

from __future__ import annotations

import platform
from typing import Any

from aiohttp import web

from coordinator.clock import Clock
from coordinator.config import HttpConfig
from coordinator.service.member import Member
from coordinator.service.status import product_version
from coordinator.wire.http.admin import OperationRoutes
from coordinator.wire.http.door import DOOR, Door
from coordinator.wire.http.elections import ElectionRoutes
from coordinator.wire.http.etags import unconditional
from coordinator.wire.http.grants import GrantRoutes
from coordinator.wire.http.hosts import refuse_simple_post
from coordinator.wire.http.limits import LimitRoutes
from coordinator.wire.http.lock_admin import HoldingRoutes
from coordinator.wire.http.locks import LockRoutes
from coordinator.wire.http.multi import MultiRoutes
from coordinator.wire.http.paths import TREE_PREFIX
from coordinator.wire.http.problems import problem_middleware
from coordinator.wire.http.routes import Handler, Route
from coordinator.wire.http.sessions import SessionRoutes
from coordinator.wire.http.tree import TreeRoutes
from coordinator.wire.http.watch import WatchRoutes


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
    for route in routes:
        app.router.add_route(
            route.method, route.pattern, _handler_of(route), expect_handler=door.maybe_continue
        )
    return app


def _handler_of(route: Route) -> Handler:
    """Return what answers a route: those of the tree judge preconditions, reads may ignore them."""
    is_read = route.method == "GET" or route.operation_id == "watch_many"
    is_judge = route.template.startswith(TREE_PREFIX)
    handler = route.handler if is_read or is_judge else unconditional(route.handler)
    return _asked_for_first(handler) if route.method == "POST" else handler


def _asked_for_first(handler: Handler) -> Handler:
    """Return ``handler``, behind the refusal of what a page may send without asking."""

    async def handle(request: web.Request) -> web.StreamResponse:
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
