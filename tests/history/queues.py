"""Checks of locks against the order of the server, from its own list of changes.

The holder of a lock at a zxid is the contender with the lowest number then; nothing else is
asked of the service, so a service that tells the wrong client is caught.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.history.properties import CREATED, DELETED, StoreChange, Violation


@dataclass(frozen=True, slots=True)
class LockEvent:
    """A lock was granted under ``token``, or freed from it; in the order of the server."""

    lock: str
    token: int
    is_grant: bool
    owner: str = ""


def grants_do_not_overlap(events: Iterable[LockEvent]) -> list[Violation]:
    """At most one grant of a lock at a time, and each token larger than all before."""
    promise = "a lock has one holder at a time"
    holders: dict[str, LockEvent] = {}
    tokens: dict[str, int] = {}
    violations = []
    for event in events:
        holder = holders.get(event.lock)
        if not event.is_grant:
            if holder is None or holder.token != event.token:
                violations.append(Violation(promise, f"{event}, but the holder was {holder}"))
            else:
                del holders[event.lock]
            continue
        if holder is not None:
            violations.append(Violation(promise, f"{event} while {holder}"))
        if event.token <= tokens.get(event.lock, 0):
            before = tokens[event.lock]
            violations.append(Violation("tokens grow", f"{event} after token {before}"))
        tokens[event.lock] = max(event.token, tokens.get(event.lock, 0))
        holders[event.lock] = event
    return violations


@dataclass(frozen=True, slots=True)
class Grant:
    """A client was told that it holds ``lock`` (the path of the queue) under ``token``.

    ``zxid`` is the store's when the service decided it.
    """

    lock: str
    token: int
    zxid: int
    owner: str = ""


def grants_follow_the_queue(
    grants: Iterable[Grant], changes: Iterable[StoreChange]
) -> list[Violation]:
    """Each grant was of the lowest contender at its zxid; and the tokens of the lowest grow."""
    waiting = sorted(grants, key=lambda grant: grant.zxid)
    locks = {grant.lock for grant in waiting}
    queues: dict[str, dict[str, tuple[int, int]]] = {lock: {} for lock in locks}
    highest: dict[str, int] = {}
    violations = []
    position = 0
    for change in sorted(changes, key=lambda change: change.zxid):
        while position < len(waiting) and waiting[position].zxid < change.zxid:
            violations += _judged(waiting[position], queues)
            position += 1
        for lock in _changed(change, queues):
            token = min(queues[lock].values(), default=(0, 0))[1]
            if 0 < token < highest.get(lock, 0):
                message = f"{lock}: token {token} at zxid {change.zxid} after {highest[lock]}"
                violations.append(Violation("tokens grow", message))
            highest[lock] = max(token, highest.get(lock, 0))
    for grant in waiting[position:]:
        violations += _judged(grant, queues)
    return violations


def _changed(change: StoreChange, queues: dict[str, dict[str, tuple[int, int]]]) -> list[str]:
    """Apply the events of a change to the queues; return the locks whose queue changed."""
    changed = []
    for event in change.events:
        lock, _, name = event.path.rpartition("/")
        number = name.rpartition("-")[2]
        if lock not in queues or not number.isdecimal():
            continue
        if event.type == CREATED:
            queues[lock][name] = (int(number), event.czxid)
        elif event.type == DELETED:
            queues[lock].pop(name, None)
        changed.append(lock)
    return changed


def _judged(grant: Grant, queues: dict[str, dict[str, tuple[int, int]]]) -> list[Violation]:
    first = min(queues[grant.lock].values(), default=None)
    if first is not None and first[1] == grant.token:
        return []
    found = "nobody waited" if first is None else f"the first in the queue had token {first[1]}"
    return [Violation("a lock has one holder at a time", f"{grant}, but {found}")]
