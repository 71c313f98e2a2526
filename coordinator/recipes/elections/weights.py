"""The weights of an election's candidates: the heaviest that waits is to be elected.

A candidate says its weight by an ephemeral znode, before it queues up: its name is that of its
session, a number and the weight, so one listing tells all. A candidate without one weighs 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from coordinator.client import AsyncClient, Candidate, Create
from coordinator.errors import BadArgumentsError
from coordinator.recipes.base.ephemeral import make, remove, unique_name
from coordinator.recipes.base.maybe_there import names_below
from coordinator.recipes.base.names import is_integer
from coordinator.recipes.elections.succession import Choice, directory_of

WEIGHT = 1
WEIGHT_MAX = 1_000
OUTWEIGHED = "it weighs more"
"""Why one that was elected gives way to another."""
_PAGE = 1_000


def checked_weight(weight: int | None) -> int | None:
    """Return ``weight``: 0 for one that is never elected, up to 1,000; None: none is said.

    Raises:
        BadArgumentsError: it is something else.
    """
    if weight is not None and not (is_integer(weight) and 0 <= weight <= WEIGHT_MAX):
        raise BadArgumentsError(
            f"weight: expected 0 (never elected) to {WEIGHT_MAX}, or None; found {weight!r}"
        )
    return weight


@asynccontextmanager
async def announced(core: AsyncClient, name: str, weight: int) -> AsyncIterator[None]:
    """Let others see this candidate's weight, while it waits."""
    session = await core.session(core.time_left_ms() / 1000)
    path = f"{directory_of(name)}/{unique_name(core, session)}.{weight}"
    create = Create(path, b"", "ephemeral", session.session_id, parents="container")
    made = await make(core, session, path, [], [create])
    try:
        yield
    finally:
        if made is not None:
            core.background.start(remove(core, made), f"take {path} away")


async def weights_of(core: AsyncClient, name: str) -> dict[str, int]:
    """Return the weights that were said, by session; the heaviest candidate of each."""
    found: dict[str, int] = {}
    for each in await names_below(core, directory_of(name)):
        head, _, weight = each.rpartition(".")
        session_id = head.rpartition("-")[0]
        if session_id and weight.isdecimal() and len(weight) <= len(str(WEIGHT_MAX)):
            found[session_id] = max(int(weight), found.get(session_id, 0))
    return found


def heaviest(weights: Mapping[str, int], above: int = -1) -> Choice:
    """Choose the heaviest, and of equal ones who has waited longest; heavier than ``above``."""

    def choose(waiting: Sequence[Candidate]) -> Candidate:
        def weight(each: Candidate) -> int:
            return weights.get(each.session_id, WEIGHT)

        heavier = [each for each in waiting if weight(each) > above]
        if not heavier:
            raise BadArgumentsError("hand over: expected a candidate that waits, found none")
        return max(heavier, key=lambda each: (weight(each), -each.position))

    return choose
