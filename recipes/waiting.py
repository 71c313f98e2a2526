"""How long a contender waits, as its caller says it: seconds, 0 for one try, or FOREVER."""

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


def is_seconds(value: Any) -> bool:
    """Return whether ``value`` is a finite number from 0 up."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def checked_blocking(blocking: Any) -> bool:
    """Return it if it is a bool: ``acquire(5)`` would wait, and not for 5 seconds."""
    if not isinstance(blocking, bool):
        raise BadArgumentsError(
            f"blocking: expected True or False, found {blocking!r}; how long to wait is said by "
            f"`acquire(timeout={blocking!r})`"
        )
    return blocking


def wait_ms_of(timeout: Timeout, *, blocking: bool = True) -> int | None:
    """Return how long to wait in ms: 0 tries once, None waits without end."""
    if not blocking:
        return 0
    if timeout is FOREVER:
        return None
    if not is_seconds(timeout):
        raise BadArgumentsError(
            f"timeout: expected seconds from 0 (try once), or FOREVER; found {timeout!r}"
        )
    return math.ceil(timeout * 1000)
