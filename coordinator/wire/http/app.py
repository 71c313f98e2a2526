"""The application: every route behind one middleware, over one member."""

from __future__ import annotations

import asyncio
import platform
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from aiohttp import web

from coordinator.clock import Clock
from coordinator.config import HttpConfig
from coordinator.errors import ThrottledError
from coordinator.service.member import Member
from coordinator.service.status import product_version
from coordinator.wire.admission import Admission
from coordinator.wire.http.adapter import DOOR, ROUTES, adapted, continuing
from coordinator.wire.http.hosts import refuse_simple_post
from coordinator.wire.http.keys import STREAM, Speaking
from coordinator.wire.http.problems import problem_middleware
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.etags import refuse_preconditions
from coordinator.wire.routes.route import Check, Route
from coordinator.wire.routes.table import all_routes
from coordinator.wire.stream.connection import StreamConnection
from coordinator.wire.stream.door import StreamDoor

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
    routes = all_routes(door, document)
    operation_ids = {(each.method, each.template): each.operation_id for each in routes}
    app = web.Application(
        client_max_size=http_config.body_bytes_max,
        middlewares=[problem_middleware(door, operation_ids)],
    )
    app[DOOR] = door
    app[ROUTES] = routes
    app[STREAM] = partial(_speaking, door, routes, http_config)
    maybe_continue = continuing(door)
    for route in routes:
        app.router.add_route(
            route.method,
            router_pattern(route.template),
            adapted(route, door, checks_of(route)),
            expect_handler=maybe_continue,
        )
    return app


def _speaking(door: Door, routes: Sequence[Route], config: HttpConfig) -> Speaking:
    """Return what makes the server's end of the stream, of a client in this process."""
    admission = Admission(config)
    streams = StreamDoor(door, routes, admission, config)

    def speak() -> asyncio.Protocol:
        place = admission.enter("")
        if isinstance(place, str):
            raise ThrottledError(place)
        place.is_local = True
        return StreamConnection(streams, place, asyncio.get_running_loop().time())

    return speak


def router_pattern(template: str) -> str:
    """Return the template of a route in the language of aiohttp's router."""
    return _PARAMETER.sub(_parameter_pattern, template)


def _parameter_pattern(match: re.Match[str]) -> str:
    name = match.group(1)
    return f"{{{name}:(?s:.*)}}" if name == "path" else f"{{{name}:[^/]+}}"


def checks_of(route: Route) -> tuple[Check, ...]:
    """Return what refuses a request of this route before it is answered."""
    checks: list[Check] = [refuse_simple_post] if route.method == "POST" else []
    if route.ignores_preconditions:
        checks.append(refuse_preconditions)
    return tuple(checks)


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    # A tenth of what a member loads, for a page that few ask for: not while it starts.
    from coordinator.wire.http.openapi import openapi_document

    return openapi_document(product_version())
