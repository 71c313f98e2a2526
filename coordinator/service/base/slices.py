"""Work on long lists in slices, so that the loop does other work in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar
from weakref import WeakKeyDictionary

from coordinator.waiting import OneByOne

Item = TypeVar("Item")
Made = TypeVar("Made")

_SORTED_AT_ONCE = 2_000
ITEMS_AT_ONCE = 50
"""Fifty views of contenders, the most expensive items, are a step of about two milliseconds."""


async def in_slices(
    items: Sequence[Item],
    make: Callable[[Item], Made],
    at_once: int = ITEMS_AT_ONCE,
    *,
    is_urgent: bool = False,
) -> list[Made]:
    """Return what ``make`` makes of each of ``items``; other work goes on between the slices.

    No two slices of this loop are made in one pass, however many ask for lists at once, but for
    urgent ones, which wait for no other. ``items`` must be values of one moment, and ``make`` must
    not read state that changes.
    """
    made: list[Made] = []
    for start in range(0, len(items), at_once):
        if start:
            await (asyncio.sleep(0) if is_urgent else pass_for_itself())
        made += [make(each) for each in items[start : start + at_once]]
    return made


async def sorted_in_slices(items: Iterable[str]) -> list[str]:
    """Return ``items`` in order, sorted in parts and merged; other work goes on in between."""
    waiting = list(items)
    parts = range(0, len(waiting), _SORTED_AT_ONCE)
    found = await in_slices(parts, lambda at: sorted(waiting[at : at + _SORTED_AT_ONCE]), 1)
    if len(found) <= 1:
        return found[0] if found else []
    await pass_for_itself()
    merged = sorted(chain.from_iterable(found))
    await pass_for_itself()
    return merged


async def pass_for_itself() -> None:
    """Continue in a pass of the loop in which no other caller of this continues."""
    loop = asyncio.get_running_loop()
    if (turns := _turns.get(loop)) is None:
        turns = _turns[loop] = OneByOne()
    await turns.turn()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, OneByOne] = WeakKeyDictionary()
