"""Times in seconds that callers give, and what they may be."""

from __future__ import annotations

import math
from typing import Any

from coordinator.errors import BadArgumentsError

MAX_HOLD_S_MIN = 0.5
MAX_HOLD_S_MAX = 30 * 24 * 3_600.0


def is_seconds(value: Any) -> bool:
    """Return whether ``value`` is a finite number from 0 up."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def extension_ms_of(verb: str, seconds: Any) -> int:
    """Return by how many ms a hold is extended.

    Raises:
        BadArgumentsError: ``seconds`` is no number over 0 and up to that of the longest hold.
    """
    if not is_seconds(seconds) or not 0 < seconds <= MAX_HOLD_S_MAX:
        raise BadArgumentsError(
            f"{verb}: expected seconds over 0 and up to {MAX_HOLD_S_MAX:g}; found {seconds!r}"
        )
    return max(1, round(float(seconds) * 1000))
