"""The grants that a write depends on: ``if_held`` from its query and its body."""

from __future__ import annotations

from typing import Any

from coordinator.service.locks.contenders import ELECTIONS, LOCKS
from coordinator.state.commands import IfHeld
from coordinator.wire.messages import if_held as shapes
from coordinator.wire.routes.queries import CONDITIONS, Query

IF_HELD = frozenset({shapes.IF_HELD_FIELD})
"""The field of a body that carries conditions, beside those of the route."""


def conditions(query: Query, body: Any = None) -> tuple[IfHeld, ...]:
    """Return every condition of a write, those of the query first.

    Raises:
        BadArgumentsError: one of them is none, or there are too many.
    """
    found = [
        shapes.IfHeld.from_query(name, value) for name in CONDITIONS for value in query.texts(name)
    ]
    if body:
        found.extend(shapes.read_if_held(body))
    return tuple([_condition(each) for each in shapes.checked_if_held(tuple(found))])


def _condition(shape: shapes.IfHeld) -> IfHeld:
    recipe = ELECTIONS if shape.is_election else LOCKS
    return IfHeld(recipe.directory(shape.lock), shape.fencing_token)
