"""A route as data: the router and the OpenAPI document are both made from the same tuples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coordinator.wire.request import Answered, Request

Handler = Callable[[Request], Awaitable[Answered]]


@dataclass(frozen=True, slots=True)
class Route:
    """``template`` is the path as OpenAPI writes it; ``operation_id`` finds its description.

    The parameter ``{path}`` takes any number of segments, every other one takes one. Both take
    what their handlers then refuse with reasons (an encoded line end, for one)."""

    method: str
    template: str
    handler: Handler
    operation_id: str
