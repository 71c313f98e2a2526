"""How much of what is random a test draws: a quarter in ``make test``, all of it anywhere else.

A test that draws less there is marked ``histories``, and ``make check`` runs it with all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Case = TypeVar("Case")
Test = TypeVar("Test", bound=Callable[..., Any])

PART = 4
"""In the fast suite one of so many is drawn."""
is_quick = False
"""Whether this is the fast suite; ``tests/conftest.py`` says so before tests are collected."""


def drawn(count: int) -> int:
    """Return how many of ``count`` are drawn here."""
    return -(-count // PART) if is_quick else count


def some(cases: Sequence[Case]) -> Sequence[Case]:
    """Return those of the cases that are tried here."""
    return cases[::PART] if is_quick else cases


def least(**counts: int) -> dict[str, int]:
    """Return how often each has to be met here; with so few, chance decides more."""
    return {name: n // (3 * PART) if is_quick else n for name, n in counts.items()}


def histories(count: int, **options: Any) -> Callable[[Test], Test]:
    """Return what lets a test of hypothesis draw so many examples, and marks it."""
    chosen = settings(max_examples=drawn(count), deadline=None, **options)
    return lambda test: pytest.mark.histories(chosen(test))
