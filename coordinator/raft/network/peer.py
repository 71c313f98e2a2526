"""Another member, as a transport knows it: its address, the link in use, what waits to leave."""

from __future__ import annotations

import asyncio

from coordinator.node.config import MemberAddress
from coordinator.raft.network.lanes import Lanes
from coordinator.raft.network.link import Link

WRITE_BYTES = 64 * 1024
"""What is written at once, beside the words."""


class Peer:
    """Another member; ``lane_bytes_max`` may wait for it in each lane."""

    def __init__(self, address: MemberAddress, lane_bytes_max: int) -> None:
        self.address = address
        self.member_id = address.member_id
        self.link: Link | None = None
        self.lanes = Lanes(lane_bytes_max)
        self.is_dirty = False
        """Whether it is to be written to at the end of this pass."""
        self.has_lost_link = asyncio.Event()
        self.wrote_ms = 0
        """When anything was written to it."""
        self.is_dialed_plainly = False
        """Whether the next connection to it is tried without TLS, where both are accepted."""
        self.shunned_until_ms = 0
        self.turned_away = 0
        """How often in a row it hung up at this member's proof."""

    def write(self, now_ms: int) -> bool:
        """Write what may leave now; return whether more waits."""
        link = self.link
        if link is None or link.is_full or not (payloads := self.lanes.take(WRITE_BYTES)):
            return False
        self.wrote_ms = now_ms
        link.write(payloads)
        return self.lanes.waiting_bytes > 0
