"""One change as a member keeps it for watches that resume, with the data before and after it.

Of a plain creation, the most frequent event, only the path is kept: the rest of it is known.

Not compiled: msgspec makes the class, in memory that the garbage collector need not look at.
"""

from __future__ import annotations

from msgspec import Struct

from coordinator.model.events import Event
from coordinator.state.tree import Values

KeptEvent = str | Event
"""The path alone: created by this change, as no session's."""


class KeptChange(Struct, gc=False):
    """Everything one command changed, in order."""

    zxid: int
    events: tuple[KeptEvent, ...]
    wall_ms: int
    values: Values
    """Two for each of its events; () once they are forgotten."""
    values_bytes: int = 0
    """What these take, roughly."""
