"""How much longer a limit of time is on a machine that has other things to do.

Limits of the suite are those of an idle machine. Where the work itself can be counted, or the
processor's clock says enough, a test is bounded by that; where it has to wait for other processes
and timers, its limit grows as the machine is busier, so that no neighbour decides a test.
"""

from __future__ import annotations

import os


def busy() -> float:
    """Return how many wait for each core, 1 at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def patient(seconds: float) -> float:
    """Return a limit of an idle machine as it is now, here."""
    return seconds * busy()
