"""Whole numbers that callers give, and what they may be."""

from __future__ import annotations

from typing import Any

from coordinator.errors import BadArgumentsError


def is_integer(value: Any) -> bool:
    """Return whether ``value`` is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_count(what: str, given: Any, most: int | None = None, *, least: int = 1) -> int:
    """Return ``given``; ``what`` is it in errors.

    Raises:
        BadArgumentsError: it is no integer from ``least`` up, and to ``most`` if that is said.
    """
    if is_integer(given) and given >= least and (most is None or given <= most):
        return int(given)
    expected = f"an integer from {least}" if most is None else f"{least} to {most}"
    raise BadArgumentsError(f"{what}: expected {expected}, found {given!r:.60}")
