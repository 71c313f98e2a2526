"""The interface between a member and the log that orders its commands.

``Engine`` is what a member calls; ``Replica`` is what Raft calls on a member. Commands are opaque
bytes. Everything runs on the one event loop of the member; nothing here blocks it.

Promises of an engine:

1. A proposal that returns is durable on a quorum and applied here; it is never lost afterwards.
2. Every member applies the same commands in the same order, each exactly once per life of the
   replica's state (a restore starts a new life at the snapshot's index).
3. ``NoLeaderError``, ``NoSpaceError``, ``ThrottledError`` and ``ShuttingDownError`` mean that
   nothing was proposed; ``LeaderChangedError`` and ``ProposalTimeoutError`` are indefinite.
4. ``read_barrier`` returns an index that was committed at some moment after the call began, and
   only once it is applied here (Raft thesis, section 6.4).
5. ``confirm_leadership`` returns only if a quorum answered a round that began after the call.
6. ``led_ms`` is a moment at which this member certainly led: a quorum has acknowledged to it, in
   its own term, something that it logged at that moment. It costs no message.
7. A member whose disk failed stops; it never acknowledges again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct


class InvariantError(Exception):
    """An invariant is broken; the member must stop (docs/engine.md, row 16)."""


class Role(StrEnum):
    """A member's Raft role, as in the paper."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Replica(Protocol):
    """The state that the log drives. No method may raise for anything a client can cause."""

    def apply(self, index: int, term: int, command: bytes) -> Any:
        """Apply one committed command. ``index`` is its entry's; several commands that were
        proposed in one pass share an entry, and so an index. What is returned here is what
        ``propose`` returns on the member that proposed it."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Capture the state now, cheaply, and return an iterator that encodes it in pieces.

        The engine draws the pieces later, between other work; commands applied meanwhile must
        not show in them."""
        ...

    def prepare_restore(self, pieces: Iterable[bytes]) -> Replace:
        """Decode a snapshot, leaving the present state alone; return what replaces the whole state
        by it. Both raise ValueError for a snapshot that cannot be.

        The decoding may run in another thread while commands are applied and the state is read, so
        it touches nothing of it. The replacing is quick and runs on the loop: a reader sees the
        state before or the one after."""
        ...


class Replace(Protocol):
    """Replaces the whole state by a snapshot that was read, if that is still needed."""

    def __call__(self, *, is_needed: bool = True) -> None:
        """Replace the state; or else free what was read, between other work."""
        ...


class Applied(Struct, frozen=True):
    """A proposal that was committed and applied here."""

    index: int
    term: int
    result: Any


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """``is_reachable`` maps each other member to whether it answered recently.

    ``leader_id`` is None when no leader is known. ``is_ready`` is True once this member has
    applied what was committed when it started (as leader: its own term's first entry), and not
    while it is known to be far behind: it needs a snapshot, or has no room for what comes."""

    member_id: str
    role: Role
    term: int
    leader_id: str | None
    commit_index: int
    applied_index: int
    last_index: int
    snapshot_index: int
    is_ready: bool
    is_reachable: Mapping[str, bool]
    trouble: str = ""
    """What is wrong with this member's disk, in words, although it still runs."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Members, listed or not, that differ in what must be equal on all, each with a sentence."""
    obstacle: str = ""
    """What prevents a leader, or this member following one, until an operator acts."""
    lost_by: str = ""
    """What a loss of the leader, or of a leader's quorum, that is noticed now is due to: "pause",
    this member did not run for a while; "disk", its disk is slow; "link", the connection ended;
    "silence", nothing was heard."""
    alarms: Mapping[str, str] = field(default_factory=dict)
    """Members that recently sent something that cannot be true, and what it was."""


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """What a backup says of the member and of the state, beside what lies in its log."""

    backup_id: str
    cluster: str
    release: str
    level: int
    time: str
    zxid: int


class Backup(Protocol):
    """A backup that can be read: its bytes stay the same and stay there until it is closed."""

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset`` on; may wait for the disk, and be called
        in a thread. Raises StorageError."""
        ...

    def close(self) -> None:
        """Let go of what it reads; nothing calls ``read`` any more."""
        ...


RequestHandler = Callable[[str, bytes], Awaitable[bytes]]
"""Answers a request of another member: (member_id of the sender, payload) -> reply payload."""

RoleListener = Callable[[Role, int], None]
"""Called at each change: (role, term). For LEADER only once the leader is ready: the first entry of
its term is committed and applied here. Must not raise."""


LeaderListener = Callable[[str | None, int], None]
"""Called at each change of the leader that this member knows: (leader_id, term). None: it follows
no leader, or has lost contact with it. A leader is named as soon as it is elected, before it is
ready. Must not raise."""


class Engine(Protocol):
    """Raft, as a member uses it."""

    @property
    def member_id(self) -> str:
        """The id of this member."""
        ...

    async def start(self, replica: Replica) -> None:
        """Load what is on disk, restore and re-apply it, and join the cluster.

        Returns when the member takes part, not when there is a leader. Raises ConfigError or
        a storage error when the files cannot be trusted."""
        ...

    async def stop(self) -> None:
        """Leave the cluster. A leader first refuses new commands (ShuttingDownError), commits those
        under way and hands over its leadership, within bounds; then the rest fails."""
        ...

    def halt(self, error: BaseException, note: str) -> None:
        """Stop at once and for good: never acknowledge, vote or answer again. With a ``note`` the
        data are not used again: the next start is refused with that sentence."""
        ...

    def propose(self, command: bytes, *, is_patient: bool = False) -> Awaitable[Applied]:
        """Order, commit and apply ``command``. Leader only: NoLeaderError elsewhere.

        Has no deadline of its own: the caller cancels. Everything proposed in one pass of the
        event loop becomes one log entry and one sync. ``is_patient``: it may wait some ms for
        others that do so; the order of proposals is kept."""
        ...

    async def read_barrier(self) -> int:
        """Return when reads of the local state are linearizable; any member, shared by all
        callers that wait. Raises NoLeaderError when no quorum can be reached in time (about two
        election timeouts)."""
        ...

    async def confirm_leadership(self) -> int:
        """Return the term in which a quorum confirmed, in a round that began after this call,
        that this member leads; NoLeaderError otherwise."""
        ...

    async def hand_over(self) -> None:
        """Have the follower with the most entries lead; return when one does. Leader only.

        New proposals are refused meanwhile, for two seconds at most. Raises NoLeaderError
        elsewhere, and UnavailableError if no follower took it."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id that the cluster drew when it began, or began again; "" while none is known."""
        ...

    @property
    def led_ms(self) -> int | None:
        """The latest moment, by this member's monotonic clock, at which it is known to have led:
        when it logged the newest entry of its own that it has applied. None: never."""
        ...

    async def wait_applied(self, index: int) -> None:
        """Return once ``index`` is applied here. No deadline of its own: the caller cancels."""
        ...

    async def request(self, member_id: str, kind: str, payload: bytes) -> bytes:
        """Send ``payload`` to another member's handler for ``kind``; return its reply.

        Raises NoLeaderError (definite) when it certainly was not sent and ConnectionLostError
        (indefinite) when it was and no reply came; LeaderChangedError (indefinite) as soon as the
        member asked is no longer the leader known here. The caller cancels on its deadline."""
        ...

    def on_request(self, kind: str, handler: RequestHandler, *, is_alone: bool = False) -> None:
        """Set the handler for requests of ``kind``; before ``start``.

        ``is_alone``: no more than one of them is begun in a pass of the loop."""
        ...

    def on_role_change(self, listener: RoleListener) -> None:
        """Add a listener; before ``start``."""
        ...

    def on_leader_change(self, listener: LeaderListener) -> None:
        """Add a listener; before ``start``."""
        ...

    def on_failure(self, listener: Callable[[BaseException], None]) -> None:
        """Add a listener called once, when this member must stop (its disk failed, an invariant
        broke); before ``start``."""
        ...

    async def open_backup(self, facts: Callable[[], BackupFacts]) -> Backup:
        """Return a backup of what was committed at some moment after this call began.

        ``facts`` is asked at that moment. Raises NoLeaderError as ``read_barrier`` does,
        UnavailableError if there is nothing on a disk, or not just now."""
        ...

    def status(self) -> EngineStatus:
        """Return what this member knows of itself and of the others now."""
        ...

    @property
    def term(self) -> int:
        """The term of ``status``; any thread may ask for it."""
        ...

    @property
    def leader_id(self) -> str | None:
        """The leader of ``status``; asked for each request, so it costs little."""
        ...

    def contact_age_ms(self) -> int | None:
        """Return how long ago this member heard its leader or, leading, a quorum; None: never.

        Never less than it was. Asked for each stale read, so it costs little."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return counters and gauges by name (``syncs_total``, ``sync_seconds_total``,
        ``append_bytes_total``, ``queue_length``, ``entries_total``, ``commands_total``, ...)."""
        ...
