"""The application of aiohttp: one middleware that answers everything, over one member."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from coordinator.clock import Clock
from coordinator.errors import ThrottledError
from coordinator.node.config import HttpConfig
from coordinator.service.member import Member
from coordinator.wire.admission import Admission
from coordinator.wire.http.adapter import DOOR, ROUTES, answered_by, continuing
from coordinator.wire.http.hosts import Names
from coordinator.wire.http.keys import STREAM, Speaking
from coordinator.wire.http.served import Served, checks_of, served
from coordinator.wire.routes.answering import Answering
from coordinator.wire.stream.connection import StreamConnection
from coordinator.wire.stream.door import StreamDoor

_EVERY = "/{path:(?s:.*)}"


def create_app(member: Member, http_config: HttpConfig, clock: Clock) -> web.Application:
    """Return the application of a member in this process, for who asks it without a socket."""
    what = served(member, http_config, clock)
    app = application(Answering(what.door, what.routes, "http", checks_of))
    app[DOOR], app[ROUTES] = what
    app[STREAM] = partial(_speaking, what, http_config)
    return app


def application(answering: Answering, names: Names | None = None) -> web.Application:
    """Return the application that ``HttpServer`` listens for; ``names`` are those of its member."""
    door = answering.door
    app = web.Application(
        client_max_size=door.config.body_bytes_max, middlewares=[answered_by(answering, names)]
    )
    app.router.add_route("*", _EVERY, _unrouted, expect_handler=continuing(door))
    return app


async def _unrouted(_request: web.Request) -> web.StreamResponse:
    raise AssertionError("the middleware answers")


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
