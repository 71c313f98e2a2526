"""The encoding of operations on queues, and of their results, as rows."""

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
from coordinator.state.outcomes import (
    Downgraded,
    HoldEnded,
    HoldExtended,
    Noted,
    Reopened,
    Resized,
    Revoked,
)
from coordinator.state.shapes import (
    BOOL,
    BYTES,
    INT,
    MAYBE_INT,
    ROW,
    STR,
    Family,
    texts_of,
)


def add_operations(family: Family) -> None:
    """Add the operations to a family of operations."""
    family.add(15, Downgrade, STR, INT)
    family.add(16, Resize, STR, INT)
    family.add(17, Note, STR, INT, BYTES)
    family.add(18, Revoke, STR, INT, STR, STR)
    family.add(19, EndHold, STR, INT, INT, INT)
    family.add(20, Reopen, STR, INT, INT)
    family.add(37, ExtendHold, STR, INT, INT, INT)


def add_results(family: Family) -> None:
    """Add what the operations come to, to a family of results."""
    family.add(14, Downgraded, STR, INT)
    family.add(15, Resized, STR, INT, MAYBE_INT)
    family.add(16, Noted, STR, INT)
    family.add(
        17, Revoked, STR, INT, ROW, BOOL,
        decode=lambda row: Revoked(row[1], row[2], texts_of(row[3]), row[4]),
    )  # fmt: skip
    family.add(18, HoldEnded, STR, INT, BOOL)
    family.add(19, Reopened, STR, INT, BOOL)
    family.add(25, HoldExtended, STR, INT, INT, INT)
