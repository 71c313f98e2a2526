"""Pass marks of time: what was measured, against which bound, and whether the machine allows it.

1. A figure within its bound keeps the mark, whatever the machine did.
2. A figure beyond it misses the mark only on a machine that can be blamed for nothing: in the calm
   phases of the same run, between the faults, a *canary* (``faults/canary.py``) shows how much
   slower than alone the machine works. What would be within the bound without that is not judged.
3. A ratio of a faulty phase to a calm one counts only if calm is to calm as it should be: two
   halves of the calm phases, taken by turns, are compared in the same way.
4. Too little measured is not judged either. Whatever is not judged says so, with the figures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SAMPLES_MIN = 300
"""Fewer than that do not have a 99th percentile that says anything."""


class Judged(StrEnum):
    """What came out; only ``MISSED`` is a failure."""

    KEPT = "kept"
    MISSED = "missed"
    NOT = "not judged"


@dataclass(frozen=True, slots=True)
class Mark:
    """One pass mark of a row, judged or not, with the figures it was judged by."""

    what: str
    judged: Judged
    figures: str

    def __str__(self) -> str:
        return f"{self.judged}: {self.what}: {self.figures}"


@dataclass(frozen=True, slots=True)
class Tick:
    """One look of the canary: what its work of ``work_s`` of processor time took in all."""

    at: float
    work_s: float
    took_s: float
    sync_s: float | None = None
    """How long a small write took to be stable, where this look tried it."""

    @property
    def waited_s(self) -> float:
        return max(0.0, self.took_s - self.work_s)


def slowdown(calm: Sequence[Tick]) -> float:
    """Return how many times longer than alone the canary's work took; 1.0 on an idle machine.

    The mean, not the median: a machine that stands still once in a while is slow, too."""
    work_s = math.fsum(tick.work_s for tick in calm)
    took_s = math.fsum(max(tick.work_s, tick.took_s) for tick in calm)
    return took_s / work_s if work_s else 1.0


def quantile(seconds: Sequence[float], share: float) -> float:
    """Return the smallest figure that at least ``share`` of all are not above."""
    assert seconds, "something was measured"
    ordered = sorted(seconds)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def within(
    what: str, seconds: Sequence[float], bound_s: float, calm: Sequence[Tick], *, share: float = 1.0
) -> Mark:
    """Judge whether ``share`` of these times are within a bound of the matrix."""
    name = f"{what}, {_named(share)} ≤ {bound_s:g} s"
    if not seconds:
        return Mark(name, Judged.NOT, "nothing was measured")
    found_s, times = quantile(seconds, share), slowdown(calm)
    figures = f"{found_s:.2f} s of {len(seconds)}"
    if found_s <= bound_s:
        return Mark(name, Judged.KEPT, figures)
    worst_s = max((tick.waited_s for tick in calm), default=0.0)
    figures += f"; calm, the machine is {times:.1f} times slower than alone, worst {worst_s:.2f} s"
    if found_s <= bound_s * times or found_s <= bound_s + worst_s:
        return Mark(name, Judged.NOT, f"the machine was too busy: {figures}")
    return Mark(name, Judged.MISSED, figures)


def not_slower(
    what: str, faulty: Sequence[float], calm: Sequence[Sequence[float]], bound: float
) -> Mark:
    """Judge whether the 99th percentile of a faulty phase is within ``bound`` times that of calm.

    Args:
        calm: the calm phases in the order in which they were.
    """
    name = f"{what}, p99 ≤ {bound:g} times that of calm"
    halves = [[s for phase in calm[start::2] for s in phase] for start in (0, 1)]
    every = [*halves[0], *halves[1]]
    counts = f"{len(faulty)} in the fault, {len(every)} in calm"
    if min(len(faulty), *(2 * len(half) for half in halves)) < SAMPLES_MIN:
        return Mark(name, Judged.NOT, f"too few answers: {counts}")
    in_fault, in_calm = quantile(faulty, 0.99), quantile(every, 0.99)
    times = in_fault / in_calm
    medians = [1000 * statistics.median(seconds) for seconds in (faulty, every)]
    figures = (
        f"{times:.1f} times ({1000 * in_fault:.0f} to {1000 * in_calm:.0f} ms, medians "
        f"{medians[0]:.1f} to {medians[1]:.1f} ms; {counts})"
    )
    if times <= bound:
        return Mark(name, Judged.KEPT, figures)
    one, other = (quantile(half, 0.99) for half in halves)
    of_calm = max(one, other) / min(one, other)
    figures += f"; one half of calm is {of_calm:.1f} times the other"
    if of_calm > bound or in_fault / max(one, other) <= bound:
        return Mark(name, Judged.NOT, f"the machine was too busy: {figures}")
    return Mark(name, Judged.MISSED, figures)


def as_in_calm(what: str, seconds: Sequence[float], bound_s: float, calm: Sequence[float]) -> Mark:
    """Judge the worst of many short times against a bound, by the same asked in calm."""
    name = f"{what}, worst ≤ {bound_s:g} s"
    if not seconds or not calm:
        return Mark(name, Judged.NOT, f"{len(seconds)} in the fault, {len(calm)} in calm")
    figures = (
        f"{max(seconds):.2f} s of {len(seconds)}, {sum(s > bound_s for s in seconds)} beyond; in "
        f"calm {max(calm):.2f} s of {len(calm)}"
    )
    if max(seconds) <= bound_s:
        return Mark(name, Judged.KEPT, figures)
    if max(calm) > bound_s / 2:
        return Mark(name, Judged.NOT, f"the machine was too busy: {figures}")
    return Mark(name, Judged.MISSED, figures)


def at_most(what: str, count: int, count_max: int, calm: Sequence[Tick]) -> Mark:
    """Judge a number of things that a slow machine makes happen, elections for example."""
    name = f"{what} ≤ {count_max}"
    if count <= count_max:
        return Mark(name, Judged.KEPT, str(count))
    worst_s, times = max((tick.waited_s for tick in calm), default=0.0), slowdown(calm)
    figures = f"{count}; calm, the machine is {times:.1f} times slower than alone, "
    figures += f"worst {worst_s:.2f} s"
    if worst_s > STILL_S_MAX or times > TIMES_MAX:
        return Mark(name, Judged.NOT, f"the machine was too busy: {figures}")
    return Mark(name, Judged.MISSED, figures)


STILL_S_MAX = 0.2
"""Half of the shortest election timeout: who does not run for so long may lose an election."""
TIMES_MAX = 3.0
"""Whoever gets less than a third of what it asks for is late with everything."""


def _named(share: float) -> str:
    return {1.0: "worst", 0.99: "p99", 0.5: "median"}[share]
