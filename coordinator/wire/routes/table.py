"""The table of routes, by method and path; all of them in the documentation's order.

A router of segments: a literal of the template is compared unquoted (``%6Cocks`` is ``locks``), a
parameter takes one segment that is not empty, ``{path}`` takes the rest, also an empty one. Names
are unquoted and checked by the routes themselves, from the target as it was sent (``paths``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import unquote

from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    MethodNotAllowedError,
    UnknownRouteError,
)
from coordinator.wire.routes.access import AccessRoutes
from coordinator.wire.routes.admin import OperationRoutes
from coordinator.wire.routes.backup import BackupRoutes
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.elections import ElectionRoutes
from coordinator.wire.routes.explaining import ExplanationRoutes
from coordinator.wire.routes.grants import GrantRoutes
from coordinator.wire.routes.limits import LimitRoutes
from coordinator.wire.routes.lock_admin import HoldingRoutes
from coordinator.wire.routes.locks import LockRoutes
from coordinator.wire.routes.multi import MultiRoutes
from coordinator.wire.routes.pages import PageRoutes
from coordinator.wire.routes.paths import TREE_PREFIX, target_path
from coordinator.wire.routes.route import Route
from coordinator.wire.routes.sessions import SessionRoutes
from coordinator.wire.routes.tree import TreeRoutes
from coordinator.wire.routes.upgrade import UpgradeRoutes
from coordinator.wire.routes.watch import WatchRoutes
from coordinator.wire.strict_json import shortened

_REST: Final = "{path}"
_BELOW_TREE: Final = f"{TREE_PREFIX}/"


def all_routes(door: Door, document: Callable[[], dict[str, Any]]) -> tuple[Route, ...]:
    """Return every route, in the order of the documentation.

    ``document`` makes the description that one of them answers with."""
    return (
        *TreeRoutes(door).routes(),
        *MultiRoutes(door).routes(),
        *WatchRoutes(door).routes(),
        *SessionRoutes(door).routes(),
        *LockRoutes(door).routes(),
        *HoldingRoutes(door).routes(),
        *GrantRoutes(door).routes(),
        *ExplanationRoutes(door).routes(),
        *ElectionRoutes(door).routes(),
        *LimitRoutes(door).routes(),
        *AccessRoutes(door).routes(),
        *BackupRoutes(door).routes(),
        *UpgradeRoutes(door).routes(),
        *OperationRoutes(door, document).routes(),
        *PageRoutes(door).routes(),
    )


class _Node:
    """Where a path has come so far."""

    __slots__ = ("any", "below", "rest", "routes")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.rest: _Node | None = None
        self.routes: dict[str, Route] = {}

    def complete(self) -> None:
        """Give each literal what it lacks of the parameter beside it: a name may be spelled so."""
        for each in self.below.values():
            if self.any is not None:
                each.routes = {**self.any.routes, **each.routes}
                each.below = {**self.any.below, **each.below}
                each.any = each.any or self.any.any
                each.rest = each.rest or self.any.rest
            each.complete()
        if self.any is not None:
            self.any.complete()

    def under(self, segment: str) -> _Node:
        """Return the node for a segment of a template, made if need be."""
        if segment == _REST:
            self.rest = self.rest or _Node()
            return self.rest
        if segment.startswith("{"):
            self.any = self.any or _Node()
            return self.any
        return self.below.setdefault(segment, _Node())


class RouteTable:
    """The routes, found by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.template.split("/")[1:]:
                node = node.under(segment)
            node.routes[route.method] = route
        self._root.complete()
        self._tree = self._below_all(TREE_PREFIX)

    def _below_all(self, prefix: str) -> _Node | None:
        """Return the node of all paths below ``prefix``, if it has the same routes for each."""
        node: _Node | None = self._root
        for segment in prefix.split("/")[1:]:
            node = None if node is None else node.below.get(segment)
        return None if node is None or node.below or node.any is not None else node.rest

    def find(self, method: str, target: str) -> Route:
        """Return the route of a request.

        Raises:
            MethodNotAllowedError: the path has routes, for other methods.
            UnknownRouteError: it has none.
            BadArgumentsError: it would have one if no name in it was empty.
        """
        path = target
        node = self._tree if target.startswith(_BELOW_TREE) else None  # as most are
        if node is None:
            path = target_path(target) if "?" in target or target[:1] != "/" else target
            node = self._at(path.split("/")[1:])
        if node is None:
            raise self.no_route(path)
        route = node.routes.get(method)
        if route is None:
            raise no_method(target_path(path), method, node.routes)
        return route

    def _at(self, segments: list[str]) -> _Node | None:
        node = self._root
        for segment in segments:
            below = node.below.get(unquote(segment) if "%" in segment else segment)
            if below is None and segment:
                below = node.any
            if below is None:
                return node.rest
            node = below
        return node if node.routes else None

    def no_route(self, path: str) -> CoordinatorError:
        """Return what is wrong with a path that has no route."""
        shown = shortened(ascii(path)[1:-1])
        segments = path.split("/")[1:]
        if "" in segments and self._at([each or "name" for each in segments]) is not None:
            return BadArgumentsError(f"{shown}: expected a name, found an empty one")
        return UnknownRouteError(f"{shown}: no such route; the routes are in /openapi.json")


def no_method(path: str, method: str, allowed: Iterable[str]) -> MethodNotAllowedError:
    """Return what is wrong with a path that has routes for other methods alone."""
    names = sorted(allowed)
    shown, found = shortened(ascii(path)[1:-1]), shortened(ascii(method)[1:-1])
    return MethodNotAllowedError(
        f"{shown}: expected {', '.join(names)}, found {found}", allowed=names
    )
