"""The core that the rest of Raft asks: one member's term, vote, role, log and commit rule.

``hardening`` makes it of PySyncObj. ``tests/raft/pure_core.py`` is the same in plain Python, as a
specification: both are driven alike, and compared after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from coordinator.raft.engine import Role
from coordinator.raft.network.messages import Message, VoteRequest


class Host(Protocol):
    """The part that carries out what the core decides: consensus."""

    def send(self, member_id: str, message: Message) -> None:
        """Send once everything written by now is durable."""
        ...

    def broadcast_vote_request(self, request: VoteRequest) -> None:
        """Ask all others for their vote, once the own one is durable."""
        ...

    def send_heartbeats(self) -> None:
        """Send each follower an append, with entries if there are some."""
        ...

    def send_entries(self) -> None:
        """Send each follower the entries that it was not sent yet."""
        ...

    def on_role(self, role: Role) -> None:
        """Take note of the role that this member has from now on."""
        ...


class Core(Protocol):
    """One member's Raft state, driven from outside: it has no thread, socket or clock."""

    election_due_ms: int
    """When a member that hears no leader campaigns, by the monotonic clock."""

    @property
    def role(self) -> Role:
        """This member's role."""
        ...

    @property
    def term(self) -> int:
        """The current term."""
        ...

    @property
    def voted_for(self) -> str | None:
        """The member that this one voted for in this term, or None."""
        ...

    @property
    def leader_id(self) -> str | None:
        """The leader of this term, or None if none is known."""
        ...

    @property
    def commit_index(self) -> int:
        """The highest index known to be committed."""
        ...

    @property
    def applied_index(self) -> int:
        """The highest index applied to the replica."""
        ...

    @property
    def noop_index(self) -> int:
        """The index of the first entry of this leader's term; None before it ever led."""
        ...

    @property
    def heartbeat_due_ms(self) -> int:
        """When a leader sends its next heartbeats, by the monotonic clock."""
        ...

    def tick(self) -> None:
        """Do what is due: commit, log waiting groups, send heartbeats, step down."""
        ...

    def apply(self) -> None:
        """Apply what is committed; the next pass goes on with what is too much for this one."""
        ...

    def has_little_to_apply(self) -> bool:
        """Whether one short entry is all that is committed and not applied."""
        ...

    def campaign(self) -> None:
        """Stand for the next term now; the pre-votes were won."""
        ...

    def postpone_election(self) -> None:
        """Set a new random election deadline from now on."""
        ...

    def hear_leader(self, member_id: str, term: int, commit_index: int = 0) -> None:
        """Follow ``member_id`` in ``term``; everything up to ``commit_index`` is known to agree.

        It moves terms, roles, the election deadline and the commit index, and touches no entry.
        """
        ...

    def append(
        self, member_id: str, *, term: int, epoch: int, commit_index: int,
        previous: tuple[int, int], entries: Sequence[tuple[int, bytes]],
    ) -> None:  # fmt: skip
        """Write ``entries`` after ``previous`` (index, term), which agrees; what is there after it
        conflicts and is cut. The reply waits for the sync."""
        ...

    def consider_vote(self, member_id: str, request: VoteRequest) -> None:
        """Grant or refuse, as the paper says."""
        ...

    def count_vote(self, member_id: str, term: int) -> None:
        """Count a grant; the caller has made sure that it is this member's first."""
        ...

    def adopt_term(self, term: int) -> None:
        """Move to a higher ``term`` as a follower of no leader."""
        ...

    def set_follower(self, member_id: str, match_index: int, heard_ms: int) -> None:
        """Pass what is known of a follower to the commit rule and the fallback timer.

        ``match_index`` is capped by the caller to what is durable here (row 3)."""
        ...

    def install(self, index: int) -> None:
        """The replica and the log have been replaced by a snapshot at ``index``."""
        ...
