"""The application of aiohttp: every route behind one middleware, over one member."""

from __future__ import annotations

import asyncio
import re
from functools import partial

from aiohttp import web

from coordinator.clock import Clock
from coordinator.config import HttpConfig
from coordinator.errors import ThrottledError
from coordinator.service.member import Member
from coordinator.wire.admission import Admission
from coordinator.wire.http.adapter import DOOR, ROUTES, adapted, continuing
from coordinator.wire.http.keys import STREAM, Speaking
from coordinator.wire.http.problems import problem_middleware
from coordinator.wire.http.served import Served, checks_of, served
from coordinator.wire.stream.connection import StreamConnection
from coordinator.wire.stream.door import StreamDoor

_PARAMETER = re.compile(r"\{(\w+)\}")


def create_app(member: Member, http_config: HttpConfig, clock: Clock) -> web.Application:
    """Return the application of a member in this process, for who asks it without a socket."""
    what = served(member, http_config, clock)
    app = application(what)
    app[STREAM] = partial(_speaking, what, http_config)
    return app


def application(what: Served) -> web.Application:
    """Return the application over these routes; ``HttpServer`` listens for it."""
    door, routes = what
    operation_ids = {(each.method, each.template): each.operation_id for each in routes}
    app = web.Application(
        client_max_size=door.config.body_bytes_max,
        middlewares=[problem_middleware(door, operation_ids)],
    )
    app[DOOR] = door
    app[ROUTES] = routes
    maybe_continue = continuing(door)
    for route in routes:
        app.router.add_route(
            route.method,
            router_pattern(route.template),
            adapted(route, door, checks_of(route)),
            expect_handler=maybe_continue,
        )
    return app


def _speaking(what: Served, config: HttpConfig) -> Speaking:
    """Return what makes the server's end of the stream, of a client in this process."""
    admission = Admission(config)
    streams = StreamDoor(what.door, what.routes, admission, config)

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
