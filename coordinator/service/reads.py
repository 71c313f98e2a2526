"""Reads of the replicated state on any member: linearizable, stale, or at least some zxid.

1. Linearizable (the default): a read barrier first (Raft thesis, 6.4), so the answer shows every
   write that was acknowledged anywhere before the read began.
2. Stale: answered at once, labelled with its zxid and with how long ago this member last had
   contact with a leader.
3. At least: answered once this member has applied that zxid.
4. A read that cannot be answered in time is NoLeaderError: definite, nothing was proposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Consistency(StrEnum):
    """How fresh an answer must be."""

    LINEARIZABLE = "linearizable"
    STALE = "stale"
    AT_LEAST = "at_least"


@dataclass(frozen=True, slots=True)
class ReadMode:
    """``zxid`` matters for AT_LEAST only."""

    consistency: Consistency = Consistency.LINEARIZABLE
    zxid: int = 0


LINEARIZABLE = ReadMode()
STALE = ReadMode(Consistency.STALE)


def at_least(zxid: int) -> ReadMode:
    """Return the mode that waits until ``zxid`` is applied."""
    return ReadMode(Consistency.AT_LEAST, zxid)


@dataclass(frozen=True, slots=True)
class ReadReply(Generic[T]):
    """``value`` as of ``zxid``. ``age_ms`` is None but for stale reads.

    ``age_ms`` is the time since this member last had contact with a leader (on the leader: with
    the quorum), known to about one election timeout; None on a member that never had any."""

    value: T
    zxid: int
    index: int
    age_ms: int | None = None
