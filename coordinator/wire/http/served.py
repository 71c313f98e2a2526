"""The door and the routes of one member, as its HTTP doors serve them. Nothing is of aiohttp."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

from coordinator.clock import Clock
from coordinator.node.config import HttpConfig
from coordinator.service.member import Member
from coordinator.service.reporting.status import product_version
from coordinator.wire.http.hosts import refuse_simple_post
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.etags import refuse_preconditions
from coordinator.wire.routes.route import Check, Route
from coordinator.wire.routes.table import all_routes


class Served(NamedTuple):
    """The door of a member, and what can be asked there."""

    door: Door
    routes: tuple[Route, ...]


def served(member: Member, http_config: HttpConfig, clock: Clock) -> Served:
    """Return what ``member`` serves; it is started or not, and asked by every route.

    Args:
        member: asked by every route.
        http_config: the limits and deadlines of the door.
        clock: the member's clock, on which deadlines are counted.
    """
    door = Door(member, http_config, clock)
    member.metrics.what_runs = lambda: (product_version(), platform.python_version())
    return Served(door, all_routes(door, document))


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
