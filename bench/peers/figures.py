"""The arithmetic of measurements: percentiles, medians, spreads, processor time of processes.

1. A percentile is a latency that was measured, never one between two: the least that at least so
   many per cent of all do not exceed.
2. What several rounds found becomes one figure: the median, with the least and the greatest beside.
3. Processor time is what the operating system counted for a process and its threads, user and
   system, also for those of its children that have ended.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the least value that at least ``percent`` of them do not exceed; NaN of none."""
    if not ordered:
        return math.nan
    place = math.ceil(len(ordered) * percent / 100)
    return ordered[max(place, 1) - 1]


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure of several rounds."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of these values; those that are not a number do not count."""
        found = sorted(each for each in values if not math.isnan(each))
        if not found:
            return cls(math.nan, math.nan, math.nan)
        return cls(statistics.median(found), found[0], found[-1])


def cpu_of_stat(text: str) -> float:
    """Return the seconds of processor time in the text of ``/proc/PID/stat``.

    The name in parentheses may hold anything, also spaces and parentheses.
    """
    fields = text.rpartition(")")[2].split()
    own_and_children = [int(each) for each in fields[11:15]]
    return sum(own_and_children) / _TICKS_A_SECOND


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that these processes have used; what has ended counts nothing."""
    total = 0.0
    for pid in pids:
        try:
            total += cpu_of_stat(Path(f"/proc/{pid}/stat").read_text())
        except FileNotFoundError:
            continue
    return total


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def round_figures(
    latencies_s: Iterable[float], elapsed_s: float, servers_s: float, client_s: float
) -> dict[str, float]:
    """Return what one round came to: rate, latencies in ms, processor time in µs an operation."""
    ordered = sorted(latencies_s)
    count = len(ordered)
    each = count or math.nan
    return {
        "operations": float(count),
        "per_second": count / elapsed_s,
        "p50_ms": percentile(ordered, 50) * 1e3,
        "p99_ms": percentile(ordered, 99) * 1e3,
        "p999_ms": percentile(ordered, 99.9) * 1e3,
        "servers_us": servers_s / each * 1e6,
        "client_us": client_s / each * 1e6,
    }


def summary(rounds: Sequence[dict[str, float]]) -> dict[str, Spread]:
    """Return the spread of each figure of several rounds."""
    names = {name: None for each in rounds for name in each}
    return {name: Spread.of(each.get(name, math.nan) for each in rounds) for name in names}


def best(found: dict[str, float], names: Iterable[str], *, is_least: bool = False) -> float:
    """Return the best figure of those systems that have one; NaN when none has."""
    values = [found[name] for name in names if not math.isnan(found.get(name, math.nan))]
    if not values:
        return math.nan
    return min(values) if is_least else max(values)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: NaN becomes None, spreads become objects."""
    if isinstance(value, Spread):
        return {name: plain(getattr(value, name)) for name in ("median", "least", "greatest")}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return None
    return value
