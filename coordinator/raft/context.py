"""The parts of one member's Raft that all others share: id, log, clock, ways to send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from coordinator.node.config import RaftConfig
from coordinator.raft.network.messages import Message
from coordinator.raft.rejoin.recovering import Recovering
from coordinator.raft.rejoin.trust import Trust
from coordinator.raft.storage.journal import Journal


@dataclass(frozen=True, slots=True)
class RaftContext:
    """One member's; the same for its whole life.

    Args:
        others: the ids of the other members.
        random: decides election timeouts, and nothing that must be secret.
        now_ms: the monotonic clock that decides every timeout.
        send_now: sends a message of (member id, message); False without a connection.
        send_durable: as ``send_now``, once everything written to the log and the vote by now is
            durable.
        recovering: whether this member may have forgotten what it promised.
        trust: what is thought of the other members, and they of this one.
    """

    member_id: str
    others: tuple[str, ...]
    log: Journal
    raft: RaftConfig
    random: Random
    now_ms: Callable[[], int]
    send_now: Callable[[str, Message], bool]
    send_durable: Callable[[str, Message], None]
    recovering: Recovering
    trust: Trust

    @property
    def majority(self) -> int:
        """How many members are a quorum."""
        return (len(self.others) + 1) // 2 + 1
