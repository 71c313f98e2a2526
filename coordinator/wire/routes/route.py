"""A route as data: the router and the OpenAPI document are both made from the same tuples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coordinator.wire.request import Answered, Request
from coordinator.wire.routes.paths import TREE_PREFIX

Handler = Callable[[Request], Awaitable[Answered]]
Check = Callable[[Request], None]
"""Refuses a request by raising."""


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
    def ignores_preconditions(self) -> bool:
        """Whether it is a change that judges no precondition, and so must refuse those it is given.

        Those of the tree judge them; reads may ignore them."""
        is_read = self.method == "GET" or self.operation_id == "watch_many"
        return not is_read and not self.template.startswith(TREE_PREFIX)
