"""The data before and after one change, as a member keeps it for watches with values.

Not compiled: msgspec makes the class, in memory that the garbage collector need not look at.
"""

from __future__ import annotations

from msgspec import Struct

from coordinator.model.events import Change
from coordinator.state.tree import Values


class KeptValues(Struct, frozen=True, gc=False):
    """The values of one change, two for each of its events."""

    wall_ms: int
    change: Change
    values: Values
    bytes_count: int

    @property
    def zxid(self) -> int:
        """The zxid of the change."""
        return self.change.zxid
