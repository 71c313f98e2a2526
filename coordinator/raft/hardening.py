"""PySyncObj's SyncObj as we use it: the only file that knows its private names.

PySyncObj does elections, roles, terms and votes, the commit rule and the writing of entries to the
log. It is driven from outside: no thread, no socket, no file, no clock of its own. ``consensus``
decides what it receives and sends. Its known defects are numbered in docs/engine.md; the code that
repairs one names its row.

Private names are overridden by methods called ``_SyncObj__name``, which Python finds first. They
fit only the exact source they were written for, so the version and a hash of the source are checked
at import: an upgrade is a decision, not an accident.

PySyncObj reads time through one module function. It is bound once, here, to the clock of the member
that is driven at that moment (each call into the library goes through ``_driven``). So several
members with different clocks can run in one process, in several threads.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from coordinator.raft.context import RaftContext
from coordinator.raft.core import Host
from coordinator.raft.engine import InvariantError, Role
from coordinator.raft.entries import Entries
from coordinator.raft.library import library
from coordinator.raft.network.messages import Appended, VoteGrant, VoteRequest

LIBRARY_VERSION = "0.3.17"
LIBRARY_FILES = ("syncobj", "transport", "node", "journal", "config", "serializer", "fast_queue")
LIBRARY_SHA256 = "3457f3aa49428104ed9014d823cc88863bb201f582d2ef42edbecfd0b52f0b5e"

APPLY_ENTRIES_MAX = 1_000
LITTLE_BYTES = 1024
"""An entry up to this size has a few commands, for which probably one client waits."""


def check_library() -> None:
    """Raise ImportError unless PySyncObj's source is the one this file was written for."""
    if library.VERSION != LIBRARY_VERSION:
        raise ImportError(
            f"expected pysyncobj {LIBRARY_VERSION}, found {library.VERSION}: install the expected"
            " one"
        )
    found = hash_library(Path(library.__file__).parent)
    if found != LIBRARY_SHA256:
        raise ImportError(
            f"expected the source of pysyncobj {LIBRARY_VERSION} with hash {LIBRARY_SHA256}, found "
            f"{found}: its files were changed; install it again, from PyPI"
        )


def hash_library(folder: Path) -> str:
    """Return the hash of the files of the library that this member relies on."""
    digest = hashlib.sha256()
    for name in LIBRARY_FILES:
        digest.update(hashlib.sha256((folder / f"{name}.py").read_bytes()).digest())
    return digest.hexdigest()


_driven_member = threading.local()
"""``now``: the time of the member that is being driven in this thread, in seconds; else missing."""


class _Driving:
    """``with``: the library reads this member's clock, which is read once for all of it. Entered
    for every message and every pass, so it is no generator."""

    __slots__ = ("_now_ms", "_outer")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._outer: list[float | None] = []

    def __enter__(self) -> None:
        self._outer.append(getattr(_driven_member, "now", None))
        _driven_member.now = self._now_ms() / 1000

    def __exit__(self, *_exception: object) -> None:
        outer = self._outer.pop()
        if outer is None:
            del _driven_member.now  # to read the clock now is an error
        else:
            _driven_member.now = outer


check_library()
# Read several times in each pass: without a call of a Python function.
library.monotonicTime = partial(getattr, _driven_member, "now")


class PeerNode(library.Node):  # type: ignore[misc]  # the library is untyped
    """A member, as the library knows it; equal to itself only, so that hashing it costs nothing."""

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__
    id = property(attrgetter("_id"))  # read in each pass: without a call of a Python function


class _LibraryTransport(library.Transport):  # type: ignore[misc]  # the library is untyped
    """The transport of the library: passes its messages to consensus."""

    core: HardenedSyncObj
    ready = True

    def __init__(self, _core: Any, self_node: PeerNode, other_nodes: Any) -> None:
        super().__init__(_core, self_node, other_nodes)
        self.core = _core

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        self.core.translate(node.id, message)
        return True

    def deliver(self, node: PeerNode, message: dict[str, Any]) -> None:
        """Deliver ``message`` as if it came from a socket."""
        self._onMessageReceived(node, message)


class _NoPoller:
    """Nothing: the event loop owns the sockets."""

    poll = staticmethod(bool)  # returns at once, and is no function of Python


_DOES_NOTHING = partial(bool)
"""Returns False; called in each tick of the library, so no function of Python."""
position_of: Callable[[Any], tuple[object, ...]] = attrgetter(
    "_SyncObj__raftState", "_SyncObj__raftCurrentTerm", "_SyncObj__raftLeader",
    "_SyncObj__raftCommitIndex",
)  # fmt: skip
"""Returns role, term, leader and commit index of a ``HardenedSyncObj``, for comparing."""
_ROLES = {0: Role.FOLLOWER, 1: Role.CANDIDATE, 2: Role.LEADER}


def _reading(name: str) -> Any:
    """Return a property that reads the library's private attribute ``name``."""
    return property(attrgetter(f"_SyncObj__{name}"))


class HardenedSyncObj(library.SyncObj):  # type: ignore[misc]  # the library is untyped
    """The core of one member's Raft (``core``), driven by ``consensus``."""

    def __init__(
        self, context: RaftContext, entries: Entries, *, host: Host, applied_index: int
    ) -> None:
        self._raft = raft = context.raft
        self._election_spread_ms = raft.election_timeout_ms_max - raft.election_timeout_ms_min
        self._random = context.random
        self._now_ms = context.now_ms
        self._driving = _Driving(context.now_ms)
        self._host = host
        self._entries = entries
        self._may_campaign = False
        self._epoch = 0
        self.role = Role.FOLLOWER
        """This member's role; the library reports each change."""
        # The library's constructor evaluates every property of this class, looking for methods.
        self._SyncObj__newAppendEntriesTime = 0.0
        self._nodes = {other_id: PeerNode(other_id) for other_id in context.others}
        conf = library.SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=raft.heartbeat_interval_ms / 1000,
            raftMinTimeout=raft.election_timeout_ms_min / 1000,
            raftMaxTimeout=raft.election_timeout_ms_max / 1000,
            leaderFallbackTimeout=raft.election_timeout_ms_min / 1000,  # row 21
            commandsWaitLeader=True,
            dynamicMembershipChange=False,  # row 25
            fullDumpFile=None,
            journalFile=None,
            useFork=False,
            onStateChanged=self._on_state,
        )
        with self._driving:
            super().__init__(
                PeerNode(context.member_id),
                list(self._nodes.values()),
                conf,
                nodeClass=PeerNode,
                transportClass=_LibraryTransport,
            )
        self._poller = _NoPoller()
        self._SyncObj__serializer = None  # Nothing of ours may reach it (row 28).
        self._SyncObj__raftLog = log = context.log
        self._SyncObj__raftCurrentTerm = max(log.getCurrentTerm(), log[-1][2])
        self._SyncObj__votedForNodeId = log.getVotedForNodeId()
        # The commit index is learned again, never read from disk (row 13).
        self._SyncObj__raftCommitIndex = applied_index
        self._SyncObj__raftLastApplied = applied_index

    # What the member knows.

    # Read dozens of times for each write: without a call of a Python function.
    term: int = _reading("raftCurrentTerm")
    """The current term."""
    voted_for: str | None = _reading("votedForNodeId")
    """The member that this one voted for in this term, or None."""
    commit_index: int = _reading("raftCommitIndex")
    """The highest index known to be committed."""
    applied_index: int = _reading("raftLastApplied")
    """The highest index applied to the replica."""
    noop_index: int = _reading("noopIDx")
    """The index of the first entry of this leader's term; None before this member ever led."""

    @property
    def leader_id(self) -> str | None:
        """The leader of this term, or None if none is known."""
        leader = self._SyncObj__raftLeader
        found: str | None = None if leader is None else leader.id
        return found

    @property
    def heartbeat_due_ms(self) -> int:
        """When a leader sends its next heartbeats, by the monotonic clock."""
        return int(self._SyncObj__newAppendEntriesTime * 1000) + 1

    @property
    def election_due_ms(self) -> int:
        """When a member that hears no leader campaigns, by the monotonic clock."""
        return int(self._SyncObj__raftElectionDeadline * 1000)

    @election_due_ms.setter
    def election_due_ms(self, at_ms: int) -> None:
        self._SyncObj__raftElectionDeadline = at_ms / 1000

    # What the member does.

    def tick(self) -> None:
        """Let the library do what is due: commit, log waiting groups, send heartbeats."""
        if self.role is not Role.LEADER and not self._may_campaign:
            # It would find nothing to do but what it does once a second.
            age = self._now_ms() / 1000 - self._SyncObj__startTime
            if age <= self._SyncObj__numOneSecondDumps:
                return
        with self._driving:
            self._onTick(0.0)

    def apply(self) -> None:
        """Apply what is committed; the next pass goes on with what is too much for this one."""
        # Does not catch: what the host raises is a broken invariant and stops the member (row 16).
        self._entries.begin_applying()
        log = self._SyncObj__raftLog
        first = self._SyncObj__raftLastApplied + 1
        last = min(self._SyncObj__raftCommitIndex, first + APPLY_ENTRIES_MAX - 1)
        if first <= last:
            start = log[0][1]
            for command, index, term in log[first - start : last + 1 - start]:
                if not self._entries.apply(index, term, command):
                    break
                self._SyncObj__raftLastApplied = index

    def has_little_to_apply(self) -> bool:
        """Whether one short entry is all that is committed and not applied."""
        index = self._SyncObj__raftCommitIndex
        if index != self._SyncObj__raftLastApplied + 1:
            return False
        log = self._SyncObj__raftLog
        return len(log[index - log[0][1]][0]) <= LITTLE_BYTES

    def campaign(self) -> None:
        """Stand for the next term now; the pre-votes were won."""
        self._may_campaign = True
        self._SyncObj__raftElectionDeadline = float("-inf")
        self.tick()
        self._may_campaign = False

    def postpone_election(self) -> None:
        """Set a new random election deadline from now on."""
        # As __generateRaftTimeout, in place: this is done for each heartbeat.
        spread_ms = self._election_spread_ms * self._random.random()
        timeout_ms = int((self._raft.election_timeout_ms_min + spread_ms) / 1000 * 1000)
        self._SyncObj__raftElectionDeadline = (self._now_ms() + timeout_ms) / 1000

    def hear_leader(self, member_id: str, term: int, commit_index: int = 0) -> None:
        """Follow ``member_id`` in ``term``; everything up to ``commit_index`` is known to agree.

        The path of a snapshot without a snapshot: it moves terms, roles, the election deadline and
        the commit index, and touches no entry. Its commit index is capped by our caller (row 9)."""
        self._hear(
            member_id,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": commit_index,
                "serialized": None,
            },
        )

    def append(
        self,
        member_id: str,
        *,
        term: int,
        epoch: int,
        commit_index: int,
        previous: tuple[int, int],
        entries: Sequence[tuple[int, bytes]],
    ) -> None:
        """Write ``entries`` after ``previous`` (index, term), which agrees; what is there after it
        conflicts and is cut. The reply waits for the sync."""
        index, previous_term = previous
        self._epoch = epoch
        self._hear(
            member_id,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": min(commit_index, index + len(entries)),  # row 9
                "prevLogIdx": index,
                "prevLogTerm": previous_term,
                "entries": [
                    (command, index + offset, entry_term)
                    for offset, (entry_term, command) in enumerate(entries, 1)
                ],
            },
        )

    def consider_vote(self, member_id: str, request: VoteRequest) -> None:
        """Grant or refuse, as the paper says."""
        self._hear(
            member_id,
            {
                "type": "request_vote",
                "term": request.term,
                "last_log_index": request.last_index,
                "last_log_term": request.last_term,
            },
        )

    def count_vote(self, member_id: str, term: int) -> None:
        """Count a grant; the caller has made sure that it is this member's first."""
        self._hear(member_id, {"type": "response_vote", "term": term})

    def adopt_term(self, term: int) -> None:
        """Move to a higher ``term`` as a follower of no leader: its vote request cannot win."""
        self._hear(
            next(iter(self._nodes)),
            {"type": "request_vote", "term": term, "last_log_index": 0, "last_log_term": -1},
        )

    def set_follower(self, member_id: str, match_index: int, heard_ms: int) -> None:
        """Pass what is known of a follower to the commit rule and the fallback timer.

        ``match_index`` is capped by the caller to what is durable here (row 3)."""
        node = self._nodes[member_id]
        self._SyncObj__raftMatchIndex[node] = match_index
        self._SyncObj__lastResponseTime[node] = heard_ms / 1000

    def install(self, index: int) -> None:
        """The replica and the log have been replaced by a snapshot at ``index``."""
        self._SyncObj__raftLastApplied = index
        self._SyncObj__raftCommitIndex = index

    def translate(self, member_id: str, message: dict[str, Any]) -> None:
        """Turn the library's message into one of ours."""
        kind = message["type"]
        if kind == "request_vote":
            # Once for all, in a defined order, though the library walks a set.
            if member_id == next(iter(self._nodes)):
                self._host.broadcast_vote_request(
                    VoteRequest(
                        message["term"], message["last_log_index"], message["last_log_term"]
                    )
                )
        elif kind == "response_vote":
            self._host.send(member_id, VoteGrant(message["term"]))
        elif kind == "next_node_idx" and message["success"]:
            self._host.send(
                member_id, Appended(self.term, self._epoch, message["next_node_idx"], True)
            )
        else:
            raise InvariantError(f"the library said {kind!r}, which it has no reason to say")

    def _now(self) -> float:
        return self._now_ms() / 1000

    def _hear(self, member_id: str, message: dict[str, Any]) -> None:
        with self._driving:
            self._SyncObj__transport.deliver(self._nodes[member_id], message)

    def _on_state(self, _old: int, new: int) -> None:
        self.role = _ROLES[new]
        self._host.on_role(self.role)

    # What the library would do by itself and must not.

    def _SyncObj__generateRaftTimeout(self) -> float:
        spread_ms = self._election_spread_ms * self._random.random()
        return (self._raft.election_timeout_ms_min + spread_ms) / 1000

    def _SyncObj__connectedToAnyone(self) -> bool:
        # Asked by the library before it campaigns: the gate of the pre-vote (row 19).
        may, self._may_campaign = self._may_campaign, False
        return may

    def _SyncObj__onBecomeLeader(self) -> None:
        # As the library's, except for the entry; followers are asked again what they hold.
        self._SyncObj__raftLeader = self._SyncObj__selfNode
        self._SyncObj__setState(library._RAFT_STATE.LEADER)
        log = self._SyncObj__raftLog
        index, term = log[-1][1] + 1, self._SyncObj__raftCurrentTerm
        self._SyncObj__lastResponseTime.clear()
        for node in self._nodes.values():
            self._SyncObj__raftNextIndex[node] = index
            self._SyncObj__raftMatchIndex[node] = 0
            self._SyncObj__lastResponseTime[node] = self._now()
        log.add(self._entries.first(), index, term)
        self._SyncObj__noopIDx = index
        self._SyncObj__sendAppendEntries()

    def _SyncObj__sendAppendEntries(self) -> None:
        # Half a millisecond early, because the library compares with "later than".
        due_ms = self._now_ms() + self._raft.heartbeat_interval_ms - 0.5
        self._SyncObj__newAppendEntriesTime = due_ms / 1000
        self._host.send_heartbeats()

    # A tick only commits: ``apply`` comes after what others wait for.
    _SyncObj__applyLogEntries = staticmethod(_DOES_NOTHING)

    def _checkCommandsToApply(self) -> None:
        if self.role is not Role.LEADER:
            return
        is_any = False
        while (entry := self._entries.next()) is not None:
            log = self._SyncObj__raftLog
            index, term = log[-1][1] + 1, self._SyncObj__raftCurrentTerm
            log.add(entry, index, term)
            self._entries.on_logged(index)
            is_any = True
        if is_any:
            self._host.send_entries()

    # Snapshots are made by ``snapshot_exchange``.
    _SyncObj__tryLogCompaction = staticmethod(_DOES_NOTHING)

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        raise InvariantError("the library wants to load a dump, and there is none")

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        raise InvariantError("the library wants to apply a command itself")
