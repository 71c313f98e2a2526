"""Grants that were: the history, and the story of one of them.

Kept in the replicated state, bounded; the oldest grants are forgotten first. Times in ``_ms`` are
wall times of the member that proposed the change: labels for people, no measure of safety.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from coordinator.model.contention import HolderInfo, Kind
from coordinator.model.fields import (
    INTERNAL,
    Count,
    Positive,
    described,
    one_of,
    or_called,
)

ENDS = ("released", "closed", "expired", "failed", "abandoned", "deleted", "forced", "max_hold")
"""How a grant ended: given back; with its session (closed, expired by silence, or ended by a client
that found itself unwell); abandoned as an attempt; deleted over the tree; forced by a person; ended
by its own ``max_hold_ms``."""

Note = Annotated[bytes, described("the checkpoint note")]


class Previous(Struct, frozen=True):
    """How the grant before this one ended, and the note its holder left: where to go on."""

    grant_id: str
    fencing_token: Positive
    how: Annotated[str, one_of(*ENDS)]
    note: Note
    ended_zxid: Positive


class GrantRecord(HolderInfo, frozen=True, kw_only=True):
    """One grant, held (``how`` is "" and nothing has ended) or over.

    ``silent_ms``: how long the leader had heard nothing of the session when it expired. ``term``:
    the leader's whose decision ended it (0: no leader's). ``by`` and ``reason`` of a forced end,
    or of a deletion that says them, as a hand-over does; ``reason`` of a failed one.
    ``next_token`` is that of the next grant of the lock; ``group`` are the paths of a multi-lock.
    """

    lock: Annotated[str, or_called("election", "is_election")]
    grant_id: str
    path: str
    fencing_token: Positive
    kind: Kind
    session_id: str
    entered_zxid: Positive
    entered_ms: Count
    granted_zxid: Positive
    granted_ms: Count
    owner: str = ""
    ended_zxid: Positive | None = None
    ended_ms: Count | None = None
    how: Annotated[str, one_of(*ENDS), described("how it ended; empty while it holds")] = ""
    by: str = ""
    reason: str = ""
    silent_ms: Annotated[
        Count, described("how long the leader had heard nothing when it expired")
    ] = 0
    term: Count = 0
    next_token: Positive | None = None
    note: Note = b""
    group: tuple[str, ...] = ()
    is_election: Annotated[bool, INTERNAL] = False

    @property
    def is_held(self) -> bool:
        """Whether the grant has not ended."""
        return not self.how


class GrantLine(GrantRecord, frozen=True, tag_field="type", tag="grant"):
    """A grant as one line of an export."""


class GrantPage(Struct, frozen=True):
    """The reply of GET /v1/grants, the oldest first; ``next`` is what to pass as ``after``."""

    grants: tuple[GrantRecord, ...]
    next: Positive | None = None


class GrantStory(Struct, frozen=True):
    """The reply of GET /v1/grants/{lock}/{grant_id}: what became of one grant, and who was next.

    ``sentences`` say it in words.
    """

    grant: GrantRecord
    next: GrantRecord | None
    sentences: tuple[str, ...]
