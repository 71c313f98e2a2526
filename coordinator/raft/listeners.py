"""The listeners for changes of this member's role, of the leader it knows, and of its health.

They are called in the order in which they were added, in the pass of the loop in which the change
happened, and must not raise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from coordinator.raft.engine import LeaderListener, Role, RoleListener

logger = logging.getLogger(__name__)


class Listeners:
    """The listeners of one member, and what they were last notified of."""

    def __init__(self, member_id: str) -> None:
        self._member_id = member_id
        self.role = Role.FOLLOWER
        """What they were notified of last."""
        self._leader: tuple[str | None, int] = (None, 0)
        self.of_role: list[RoleListener] = []
        self.of_leader: list[LeaderListener] = []
        self.of_failure: list[Callable[[BaseException], None]] = []

    def notify_role(self, role: Role, term: int) -> None:
        """Call the listeners if the role has changed."""
        if role is self.role:
            return
        self.role = role
        logger.info("member %s is %s in term %d", self._member_id, role, term)
        for listener in self.of_role:
            listener(role, term)

    def notify_leader(self, leader_id: str | None, term: int) -> str | None:
        """Return the former leader, if the leader has changed."""
        before, term_before = self._leader
        if before == leader_id and (leader_id is None or term == term_before):
            return None
        self._leader = (leader_id, term)
        for listener in self.of_leader:
            listener(leader_id, term)
        return before if before != leader_id else None

    def notify_failure(self, error: BaseException) -> None:
        """Call the listeners: this member stops for good."""
        for listener in self.of_failure:
            listener(error)
