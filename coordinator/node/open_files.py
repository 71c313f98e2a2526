"""The open files of this process, sockets among them, and how many it may have."""

from __future__ import annotations

import os
import resource

_OWN = "/proc/self/fd"


def open_files() -> tuple[int, int | None]:
    """Return how many there are, 0 where the system does not say, and the limit; None: endless."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        count = len(os.listdir(_OWN))
    except OSError:
        count = 0
    return count, None if limit == resource.RLIM_INFINITY else limit
