"""Refused deadlocks, as a member reports them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from coordinator.model.fields import Count, Positive, described


class CycleStep(Struct, frozen=True):
    """One owner of a cycle: it holds one lock, and waits for, or asked for, another."""

    owner: Annotated[str, described("its name, or the path of a contender without one")]
    session_id: str
    holds: str
    waits_for: str


class RefusedDeadlock(Struct, frozen=True):
    """A request that was refused, for it would have closed this cycle."""

    at_ms: Annotated[Count, described("wall time of the member that took the request")]
    message: str
    cycle: tuple[CycleStep, ...]
    cycle_length: Annotated[Positive, described("of the cycle; a long one is shown in part")]


class DeadlockList(Struct, frozen=True):
    """The reply of GET /v1/deadlocks: the latest, the oldest first."""

    deadlocks: tuple[RefusedDeadlock, ...]
