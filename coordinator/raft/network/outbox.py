"""The seam between one member's part in the protocol and the member: where its words go."""

from __future__ import annotations

from typing import Protocol

from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message


class Outbox(Protocol):
    """Where messages go, and who is told of decisions."""

    def send_now(self, member_id: str, message: Message) -> bool: ...

    def send_durable(self, member_id: str, message: Message) -> None:
        """Send once everything written to the log and the vote by now is durable."""
        ...

    def on_role(self, role: Role) -> None: ...

    def on_snapshot_needed(self, member_id: str) -> None: ...

    def on_snapshot_piece(self, member_id: str, piece: say.SnapshotPiece) -> None: ...

    def on_snapshot_reply(self, member_id: str, reply: say.SnapshotReply) -> None: ...

    def may_lead(self) -> bool:
        """Whether this member is one to lead, as far as its disk goes."""
        ...

    def draw_cluster_id(self) -> bytes | None:
        """Return an id for a cluster that has none; None if this member knows one."""
        ...

    def take_group(self) -> bytes | None: ...

    def on_group_logged(self, index: int, term: int) -> None: ...

    def apply_entry(self, index: int, term: int, entry: bytes) -> bool:
        """Apply an entry, or a part of it; return whether all of it is applied."""
        ...
