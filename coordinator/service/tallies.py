"""Counters, gauges and histograms that cost a request next to nothing: numbers, read at a scrape.

prometheus_client's own take a lock and three calls for each number; all of a member's are counted
on its event loop, and summed up for a scrape there, too. The library is loaded at the first scrape:
that takes a twelfth of the time in which a member loads all that it starts with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Tally:
    """One number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        """Add ``amount``."""
        self.value += amount


class Level:
    """One number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0.0

    def set(self, value: float) -> None:
        """Replace the number."""
        self.value = value


class Histogram:
    """How many of the observed values were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count ``value``."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Iterate over each bound as text, and how many values were at most that."""
        reached = 0
        for bound, count in zip((*self.bounds, inf), self.counts, strict=True):
            reached += count
            yield "+Inf" if bound == inf else repr(float(bound)), reached


Kept = TypeVar("Kept", Tally, Level, Histogram)


class _Labelled(Generic[Kept]):
    """The counts under one name, by the values of its labels."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._name = name
        self._text = text
        self._names = labels
        self._kept: dict[tuple[str, ...], Kept] = {}

    def labels(self, *values: str) -> Kept:
        """Return what is counted for these values of the labels, in their order."""
        kept = self._kept.get(values)
        if kept is None:
            if len(values) != len(self._names):
                raise ValueError(f"{self._name}: expected {self._names}, found {values}")
            kept = self._kept[values] = self._new()
        return kept

    def _new(self) -> Kept:
        raise NotImplementedError

    def collect(self) -> Iterator[Metric]:
        """Return the figures, for a scrape."""
        raise NotImplementedError

    def describe(self) -> Iterator[Metric]:
        """Return nothing: each name is given once, in ``metrics``."""
        return iter(())


class Tallies(_Labelled[Tally]):
    """A counter with labels."""

    def _new(self) -> Tally:
        return Tally()

    def collect(self) -> Iterator[Metric]:
        """Return the counter as it is now."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self._name, self._text, labels=self._names)
        for values, tally in self._kept.items():
            family.add_metric(values, tally.value)
        yield family


class Levels(_Labelled[Level]):
    """A gauge with labels."""

    def _new(self) -> Level:
        return Level()

    def collect(self) -> Iterator[Metric]:
        """Return the gauge as it is now."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self._name, self._text, labels=self._names)
        for values, level in self._kept.items():
            family.add_metric(values, level.value)
        yield family


class Histograms(_Labelled[Histogram]):
    """A histogram with labels."""

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...]
    ) -> None:
        super().__init__(name, text, labels)
        self._bounds = bounds

    def _new(self) -> Histogram:
        return Histogram(self._bounds)

    def collect(self) -> Iterator[Metric]:
        """Return the histogram as it is now."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self._name, self._text, labels=self._names)
        for values, spread in self._kept.items():
            family.add_metric(values, list(spread.buckets()), spread.total)
        yield family
