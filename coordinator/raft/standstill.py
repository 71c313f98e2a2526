"""The last standstill of a member: what it hears soon after may have waited since then. No I/O.

A process that was stopped, or a machine, finds in its sockets what others said before; nothing says
when it came. So nothing that is heard soon after a standstill counts as heard since.
"""

from __future__ import annotations

from coordinator.node.config import RaftConfig


class Standstill:
    """Those of one member, which has something to do more often than they are long."""

    def __init__(self, raft: RaftConfig, now_ms: int) -> None:
        self._gap_ms = raft.election_timeout_ms_min // 2
        self._doubt_ms = raft.election_timeout_ms_min
        self._alive_ms = self._stood_ms = now_ms
        self._doubted_until_ms: int | None = None

    def note(self, now_ms: int) -> None:
        """It runs now."""
        if now_ms - self._alive_ms > self._gap_ms:
            if self._doubted_until_ms is None or self._alive_ms > self._doubted_until_ms:
                self._stood_ms = self._alive_ms
            self._doubted_until_ms = now_ms + self._doubt_ms
        self._alive_ms = now_ms

    def is_recent(self, now_ms: int) -> bool:
        """Whether what is found now may be due to it."""
        return self._doubted_until_ms is not None and now_ms <= self._doubted_until_ms

    def since(self, heard_ms: int) -> int:
        """Return when that may have been said which was heard last at ``heard_ms``."""
        if self._doubted_until_ms is None or heard_ms > self._doubted_until_ms:
            return heard_ms
        return min(heard_ms, self._stood_ms)
