"""Counters, gauges and histograms that cost a request next to nothing: numbers, read at a scrape.

All are counted and read on the member's event loop, so they need no lock. prometheus_client is
loaded at the first scrape: a start does not wait for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Tally:
    """One number that only grows."""

    __slots__ = ("value",)

    family: ClassVar = "CounterMetricFamily"

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        """Add ``amount``."""
        self.value += amount

    def figures(self) -> tuple[Any, ...]:
        """Return the number."""
        return (self.value,)


class Level:
    """One number that goes up and down."""

    __slots__ = ("value",)

    family: ClassVar = "GaugeMetricFamily"

    def __init__(self) -> None:
        self.value: float = 0.0

    def set(self, value: float) -> None:
        """Replace the number."""
        self.value = value

    def figures(self) -> tuple[Any, ...]:
        """Return the number."""
        return (self.value,)


class Histogram:
    """How many of the observed values were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    family: ClassVar = "HistogramMetricFamily"

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count ``value``."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def figures(self) -> tuple[Any, ...]:
        """Return each bound as text with how many values were at most that, and the sum."""
        names = [repr(float(bound)) for bound in self.bounds] + ["+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True)), self.total


Kept = TypeVar("Kept", Tally, Level, Histogram)


class Labelled(Generic[Kept]):
    """What is counted under one name, by the values of its labels: each a ``kind(*options)``."""

    def __init__(
        self, kind: type[Kept], name: str, text: str, labels: tuple[str, ...], *options: Any
    ) -> None:
        self._kind: type[Kept] = kind
        self._options = options
        self._name = name
        self._text = text
        self._names = labels
        self._kept: dict[tuple[str, ...], Kept] = {}

    def labels(self, *values: str) -> Kept:
        """Return what is counted for these values of the labels, in their order."""
        if values not in self._kept:
            if len(values) != len(self._names):
                raise ValueError(f"{self._name}: expected {self._names}, found {values}")
            self._kept[values] = self._kind(*self._options)
        return self._kept[values]

    def collect(self) -> Iterator[Metric]:
        """Return the figures as they are now, for a scrape."""
        from prometheus_client import core

        family = getattr(core, self._kind.family)(self._name, self._text, labels=self._names)
        for values, kept in self._kept.items():
            family.add_metric(values, *kept.figures())
        yield family

    def describe(self) -> Iterator[Metric]:
        """Return nothing: each name is given once, in ``metrics``."""
        return iter(())
