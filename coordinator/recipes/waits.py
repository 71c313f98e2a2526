"""The time that a caller waits: seconds, or FOREVER."""

from __future__ import annotations

import enum
import math
from typing import Any, Final

from coordinator.errors import BadArgumentsError

DEFAULT_TIMEOUT_S = 10.0


class Forever(enum.Enum):
    """The type of FOREVER."""

    FOREVER = "forever"


FOREVER: Final = Forever.FOREVER
"""Waits without end; it has to be asked for."""

Timeout = float | Forever


def wait_ms_of(timeout: Timeout) -> int | None:
    """Return how long to wait in ms: 0 tries once, None waits without end.

    Raises:
        BadArgumentsError: ``timeout`` is neither seconds nor FOREVER.
    """
    if timeout is FOREVER:
        return None
    if not is_seconds(timeout):
        raise BadArgumentsError(
            f"timeout: expected seconds from 0 (try once), or FOREVER; found {timeout!r}"
        )
    return math.ceil(timeout * 1000)


def is_seconds(value: Any) -> bool:
    """Return whether ``value`` is a finite number from 0 up."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0
