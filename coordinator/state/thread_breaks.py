"""Breaks for other threads in a long loop over many values.

A snapshot is read in a thread of its own, and the event loop goes on meanwhile. But the interpreter
lets another thread run only between two steps of its own: compiled code has none, and neither has a
loop in C, as the making of a dict. A million values in such a loop would hold the member up for a
tenth of a second. So this is not compiled: each time that it is asked for more is such a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")

_AT_ONCE = 500
"""Each value costs a microsecond or two, where it is used."""


def with_breaks(values: Iterable[T]) -> Iterator[T]:
    """Return an iterator over ``values`` that gives other threads a turn now and then."""
    return chain.from_iterable(_some(iter(values)))


def _some(values: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(values, _AT_ONCE)):
        yield some
