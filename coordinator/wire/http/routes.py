"""A route as data: the router and the OpenAPI document are both made from the same tuples."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """``template`` is the path as OpenAPI writes it; ``operation_id`` finds its description.

    The parameter ``{path}`` takes any number of segments, every other one takes one. Both take
    what their handlers then refuse with reasons (an encoded line end, for one)."""

    method: str
    template: str
    handler: Handler
    operation_id: str

    @property
    def pattern(self) -> str:
        """Return the template in the router's language."""
        return _PARAMETER.sub(_parameter_pattern, self.template)


def _parameter_pattern(match: re.Match[str]) -> str:
    name = match.group(1)
    return f"{{{name}:(?s:.*)}}" if name == "path" else f"{{{name}:[^/]+}}"
