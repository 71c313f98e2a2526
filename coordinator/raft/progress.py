"""The progress of one follower, as its leader knows it, and what is under way to it. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from coordinator.raft.rejoin.acknowledgement_seals import (
    NO_ACKNOWLEDGEMENT,
    SEAL_BYTES,
    Acknowledgement,
)


@dataclass(slots=True)
class Progress:
    """One follower, as its leader sees it."""

    member_id: str
    next_index: int = 2
    match_index: int = 0
    kept_index: int = 0
    """Acknowledged and committed, in any term: the follower has it, or its log was lost."""
    acknowledged: Acknowledgement = NO_ACKNOWLEDGEMENT
    """The acknowledgement of that, with the follower's seal."""
    epoch: int = 0
    heard_ms: int | None = None
    """When it last answered this member, as the leader of any term; None: never."""
    sent_commit_index: int = 0
    is_doubted: bool = False
    """Whether it refused what it had acknowledged; once is a stale reply, twice is a lost log."""
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    """(last index, bytes) of each append that is not answered yet."""
    in_flight_bytes: int = 0
    has_answered: bool = False
    """Whether it has acknowledged a heartbeat or an append of this epoch."""

    def keep(self, acknowledged: Acknowledgement) -> None:
        """Keep the acknowledgement that proves what the follower must have."""
        if acknowledged.last_index >= max(self.match_index, self.kept_index):
            term, last_index, seal = acknowledged
            self.acknowledged = Acknowledgement(term, last_index, seal[:SEAL_BYTES])

    def keep_committed(self, commit_index: int) -> None:
        """Note what is both acknowledged and committed."""
        self.kept_index = max(self.kept_index, min(self.match_index, commit_index))

    def step_back(self, next_index: int) -> None:
        """Begin a new epoch at ``next_index``."""
        self.epoch += 1
        self.has_answered = False
        self.next_index = next_index
        self.in_flight.clear()
        self.in_flight_bytes = 0
