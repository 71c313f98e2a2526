"""The encoding of operations on queues as rows."""

from __future__ import annotations

from coordinator.state.commands import (
    Downgrade,
    EndHold,
    ExtendHold,
    Note,
    Reopen,
    Resize,
    Revoke,
)
from coordinator.state.shapes import BYTES, INT, STR, Family


def add_operations(family: Family) -> None:
    """Add the operations to a family of operations."""
    family.add(15, Downgrade, STR, INT)
    family.add(16, Resize, STR, INT)
    family.add(17, Note, STR, INT, BYTES)
    family.add(18, Revoke, STR, INT, STR, STR)
    family.add(19, EndHold, STR, INT, INT, INT)
    family.add(20, Reopen, STR, INT, INT)
    family.add(37, ExtendHold, STR, INT, INT, INT)
