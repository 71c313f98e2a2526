"""The grants that a write depends on: ``if_held`` from its query and its body."""

from __future__ import annotations

from typing import Any

from coordinator.model import acquire
from coordinator.service.locks.contenders import ELECTIONS, LOCKS
from coordinator.state.commands import HeldCondition
from coordinator.wire.if_held import IF_HELD_FIELD, checked_if_held, if_held_in, read_if_held
from coordinator.wire.routes.queries import CONDITIONS, Query


def conditions(query: Query, body: Any = None) -> tuple[HeldCondition, ...]:
    """Return every condition of a write, those of the query first.

    Raises:
        BadArgumentsError: one of them is none, or there are too many.
    """
    if query.is_empty and (not body or IF_HELD_FIELD not in body):
        return ()
    found = [if_held_in(name, value) for name in CONDITIONS for value in query.texts(name)]
    if body:
        found.extend(read_if_held(body))
    return tuple([_condition(each) for each in checked_if_held(tuple(found))])


def _condition(condition: acquire.IfHeld) -> HeldCondition:
    recipe = ELECTIONS if condition.is_election else LOCKS
    return HeldCondition(recipe.directory(condition.lock), condition.fencing_token)
