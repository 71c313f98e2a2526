"""The address where the leader serves clients, and the listeners for its changes."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.node.config import ClusterConfig
from coordinator.raft.engine import Engine


class LeaderAddress:
    """The address of the leader that this member knows."""

    def __init__(self, engine: Engine, cluster: ClusterConfig) -> None:
        self._engine = engine
        self._urls = {each.member_id: each.client_url for each in cluster.members}

    def url(self) -> str | None:
        """Return it as the status says it; None when no leader is known, or not its address."""
        leader_id = self._engine.leader_id
        return None if leader_id is None else self._urls.get(leader_id) or None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called at each change of the leader, while it is being made."""
        self._engine.on_leader_change(lambda _leader_id, _term: listener())
