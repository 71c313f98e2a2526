"""One living member: what the doors may ask of it.

Composes the parts of this room around one engine and one state machine. Every call takes
``deadline_ms``, an absolute time on the member's clock, and raises only errors of the tree.

1. A write that returns is durable on a quorum; a definite error means it certainly did not happen;
   anything else is unknown and says so.
2. Any member takes any request.
3. A background task that fails stops the member loudly: it is told once to ``on_failure``.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Mapping, Sequence

from coordinator.clock import Clock
from coordinator.config import Config
from coordinator.errors import BadArgumentsError, ShuttingDownError
from coordinator.raft.engine import Engine, Role
from coordinator.service.elections import ElectionService
from coordinator.service.heartbeats import HeartbeatAck, Heartbeats
from coordinator.service.leases import Leases
from coordinator.service.locks import LockService
from coordinator.service.metrics import Metrics
from coordinator.service.proposals import Committed, Proposals
from coordinator.service.queues import Queues
from coordinator.service.reads import ReadMode, ReadReply, Reads, SessionView
from coordinator.service.reaper import Reaper
from coordinator.service.replica import MachineReplica
from coordinator.service.status import MemberStatus, describe
from coordinator.service.tasks import Tasks
from coordinator.service.timers import Timers
from coordinator.service.watches import WatchHub, WatchSelector, WatchStream
from coordinator.state.commands import CloseSession, Operation, OpenSession, RequestId
from coordinator.state.outcomes import SessionEnded, SessionOpened, Stat

_SESSION_LABEL_CHARS_MAX = 200


class Member:
    """One server process's share of the cluster.

    Args:
        config: everything this member needs to know.
        engine: orders the commands; not started yet.
        clock: decides every wait, lease and deadline.
        random: draws session ids; a test passes a seeded one. None: the system's entropy.
    """

    locks: LockService
    elections: ElectionService

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def tick(self, now_ms: int) -> None:
        """Fire every deadline, lease and period that is due; a running loop does this itself."""

    def on_failure(self, listener: Callable[[BaseException], None]) -> None: ...

    async def submit(
        self,
        operation: Operation,
        *,
        request: RequestId | None,
        identity: str = "",
        deadline_ms: int,
        need_local: bool = True,
    ) -> Committed:
        """Order ``operation`` and return what it came to; raises its refusal as its error."""

    async def get(
        self, path: str, mode: ReadMode, deadline_ms: int
    ) -> ReadReply[tuple[bytes, Stat]]: ...

    async def children(
        self,
        path: str,
        mode: ReadMode,
        deadline_ms: int,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_stat: bool = False,
    ) -> ReadReply[ChildrenPage]: ...

    async def open_session(
        self, timeout_ms: int | None, label: str, request: RequestId | None, deadline_ms: int
    ) -> SessionOpened: ...

    async def close_session(
        self, session_id: str, request: RequestId | None, deadline_ms: int
    ) -> SessionEnded: ...

    async def heartbeat(self, session_id: str, deadline_ms: int) -> HeartbeatAck: ...

    async def list_sessions(
        self, mode: ReadMode, deadline_ms: int
    ) -> ReadReply[tuple[SessionView, ...]]: ...

    async def session(
        self, session_id: str, mode: ReadMode, deadline_ms: int
    ) -> ReadReply[SessionView]: ...

    def watch(
        self,
        selectors: Sequence[WatchSelector],
        *,
        from_zxid: int | None = None,
        is_one_shot: bool = False,
    ) -> WatchStream: ...

    def status(self) -> MemberStatus: ...

    @property
    def is_ready(self) -> bool: ...

    def not_ready_reason(self) -> str: ...

    def render_metrics(self) -> bytes: ...
