"""The walk through all paths of a tree: parents before children, siblings by name.

It goes on from any path, whether that is there or not. Siblings that have no children come as one
list, because many paths at once cost half of what one after the other does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from coordinator.state.large_map import LargeMap
from coordinator.state.paths import ROOT

RUN_MAX: Final = 64


def runs_behind(children: LargeMap[str, list[str]], path: str) -> Iterator[list[str]]:
    """Iterate over the paths behind ``path``; over all behind "".

    ``children`` are the sorted paths of children by the path of the parent, and must not change
    meanwhile. Siblings without children come up to ``RUN_MAX`` at a time, each other path alone."""
    waiting: list[list[Any]] = []  # [the children's paths, the next one]
    if not path:
        yield [ROOT]
    elif path != ROOT:
        before, end = ROOT, 0
        while end < len(path):
            end = path.find("/", end + 1)
            end = len(path) if end < 0 else end
            found = children.get(before, [])
            waiting.append([found, bisect_right(found, path[:end])])
            before = path[:end]
    below = children.get(path or ROOT)
    if below is not None:
        waiting.append([below, 0])
    while waiting:
        level = waiting[-1]
        found, at = level
        if at == len(found):
            waiting.pop()
            continue
        run = found[at : at + RUN_MAX]
        if children.has_any(run):
            del run[1:]
        level[1] = at + len(run)
        yield run
        below = children.get(run[0])
        if below is not None:
            waiting.append([below, 0])
