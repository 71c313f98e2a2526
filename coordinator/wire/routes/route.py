"""A route as data: the router and the OpenAPI document are both made from the same tuples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coordinator.wire.request import Answered, IncomingRequest
from coordinator.wire.routes.paths import TREE_PREFIX

Handler = Callable[[IncomingRequest], Awaitable[Answered]]
Check = Callable[[IncomingRequest], None]
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
    is_open: bool = False
    """Whether anybody may ask it, without a credential, from anywhere: health, and the pages."""

    @property
    def is_of_member(self) -> bool:
        """Whether it says something of the member itself, and nothing of what it holds."""
        of_member = ("/v1/status", "/v1/members")
        return self.template in of_member or not self.template.startswith("/v1/")

    @property
    def ignores_preconditions(self) -> bool:
        """Whether it is a change that judges no precondition, and so must refuse those it is given.

        Those of the tree judge them; reads may ignore them."""
        is_read = self.method in ("GET", "HEAD") or self.operation_id == "watch_many"
        return not is_read and not self.template.startswith(TREE_PREFIX)
