"""An engine of one member in memory: commits at once, keeps nothing.

It is for tests of the rooms above, and for a server that may lose its data when it stops.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from coordinator.errors import NoLeaderError, ShuttingDownError, UnavailableError
from coordinator.raft.engine import (
    Applied,
    Backup,
    BackupFacts,
    EngineStatus,
    LeaderListener,
    Replica,
    RequestHandler,
    Role,
    RoleListener,
)


class LoopbackEngine:
    """Orders commands in the order in which they are proposed; term 1 for ever."""

    def __init__(self, member_id: str = "1") -> None:
        self._member_id = member_id
        self._replica: Replica | None = None
        self._is_stopped = False
        self._index = 0
        self._cluster_id = os.urandom(16).hex()
        self._listeners: list[RoleListener] = []
        self._leader_listeners: list[LeaderListener] = []
        self._role = Role.FOLLOWER

    @property
    def member_id(self) -> str:
        """The id of this member."""
        return self._member_id

    async def start(self, replica: Replica) -> None:
        """Lead from now on."""
        self._replica = replica
        self._role = Role.LEADER
        for listener in self._listeners:
            listener(Role.LEADER, 1)
        for on_leader in self._leader_listeners:
            on_leader(self._member_id, 1)

    async def stop(self) -> None:
        """Refuse all that comes."""
        self._is_stopped = True

    def halt(self, error: BaseException, note: str) -> None:
        """Refuse all that comes, as ``stop`` does."""
        self._is_stopped = True

    async def propose(self, command: bytes, *, is_patient: bool = False) -> Applied:
        """Apply ``command`` at once; NoLeaderError, ShuttingDownError unless it runs."""
        if self._is_stopped:
            raise ShuttingDownError(f"member {self._member_id} has stopped")
        if self._replica is None:
            raise NoLeaderError(f"member {self._member_id} has not started")
        self._index += 1
        index = self._index
        result = self._replica.apply(index, 1, command)
        await asyncio.sleep(0)  # others get their turn, as with a real log
        return Applied(index, 1, result)

    async def read_barrier(self) -> int:
        """Return the last index; NoLeaderError unless this member runs."""
        self._refuse_when_stopped()
        return self._index

    async def confirm_leadership(self) -> int:
        """Return term 1; NoLeaderError unless this member runs."""
        self._refuse_when_stopped()
        return 1

    async def hand_over(self) -> None:
        """Refuse: there is no other member."""
        self._refuse_when_stopped()
        raise UnavailableError("there is no other member that could lead")

    @property
    def cluster_id(self) -> str:
        """An id of this life, which keeps nothing."""
        return self._cluster_id

    @property
    def led_ms(self) -> int | None:
        """None: nothing is logged here, and a round costs nothing."""
        return None

    async def wait_applied(self, index: int) -> None:
        """Return; NoLeaderError for an index that was not proposed."""
        if index > self._index:
            raise NoLeaderError(f"index {index} is beyond the last one, {self._index}")

    async def request(self, member_id: str, kind: str, payload: bytes) -> bytes:
        """Raise NoLeaderError: there is no other member."""
        raise NoLeaderError(f"a cluster of one has no member {member_id!r}")

    def on_request(self, kind: str, handler: RequestHandler, *, is_alone: bool = False) -> None:
        """Do nothing: there is no other member."""

    def on_role_change(self, listener: RoleListener) -> None:
        """Add a listener; before ``start``."""
        self._listeners.append(listener)

    def on_leader_change(self, listener: LeaderListener) -> None:
        """Add a listener; before ``start``."""
        self._leader_listeners.append(listener)

    def on_failure(self, listener: Callable[[BaseException], None]) -> None:
        """Register nothing: memory does not fail."""

    async def open_backup(self, facts: Callable[[], BackupFacts]) -> Backup:
        """Refuse: nothing of it is on a disk."""
        self._refuse_when_stopped()
        raise UnavailableError("this member keeps its data in memory only: there is no backup")

    def status(self) -> EngineStatus:
        """Return the status of the only member."""
        return EngineStatus(
            member_id=self._member_id,
            role=self._role,
            term=self.term,
            leader_id=self.leader_id,
            commit_index=self._index,
            applied_index=self._index,
            last_index=self._index,
            snapshot_index=0,
            is_ready=self._replica is not None,
            is_reachable={},
        )

    @property
    def term(self) -> int:
        """The only one."""
        return 1

    @property
    def leader_id(self) -> str | None:
        """This member, once it leads."""
        return self._member_id if self._role is Role.LEADER else None

    def contact_age_ms(self) -> int | None:
        """Return 0 once it leads: there is no other member."""
        return 0 if self._role is Role.LEADER else None

    def metrics(self) -> Mapping[str, float]:
        """Return how many commands and entries there were."""
        return {"commands_total": float(self._index), "entries_total": float(self._index)}

    def _refuse_when_stopped(self) -> None:
        if self._is_stopped or self._replica is None:
            raise NoLeaderError(f"member {self._member_id} does not run")
