"""The entries of the log: commands on their way into it, and out of it once they are committed.

1. All commands proposed in one pass of the loop become one entry, as far as its size allows (group
   commit). PySyncObj's log asks for the next entry (``hardening``) and hands back committed ones.
2. When a leader steps down, a waiter whose command is in the log gets an indefinite error; a waiter
   whose command is not in the log yet learns that it was not proposed.
3. Each command of an entry is applied once, in order. An entry that cannot be decoded, or that is
   not the one proposed at its index, is a broken invariant and stops the member (row 16).
4. One pass of the loop applies commands for about ``_PASS_MS``: at least one and a bounded number.
   The next pass continues, also within an entry, so that a thousand commands do not hold the loop.
   While an entry is partly applied no snapshot is made: it would contain that part.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import (
    CoordinatorError,
    DataTooLargeError,
    LeaderChangedError,
    NoLeaderError,
    ThrottledError,
)
from coordinator.node.config import RaftConfig
from coordinator.raft.engine import Applied, InvariantError, Replica
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.ownership import CLUSTER_ID_BYTES, Ownership
from coordinator.waiting import wake_in_turns

Waiter = asyncio.Future[Applied]


_PASS_GROUPS_MAX = 4
"""Groups that are logged in one pass of the loop, each of up to ``append_batch_bytes``."""

REGULAR = b"\x00"
"""First byte of an entry that carries commands; the rest is a group."""
NO_OP = b"\x01"
"""The whole of an entry without commands: the first of a log, and the first of each term."""
FOUNDING = b"\x02"
"""First byte of an entry that is the first of a term and carries the cluster's id."""

NOTHING: bytes = msgpack.packb([])
"""A group without commands, for an entry that says only that its leader leads."""

_ONLY_BYTES = frozenset({bytes})

_PASS_MS = 5
_PASS_COMMANDS_MAX = 500


class Proposals:
    """The commands that one member has proposed, each with the waiter for its outcome."""

    def __init__(self, raft: RaftConfig, *, command_bytes_max: int) -> None:
        self._in_flight_max = raft.proposals_in_flight_max
        self._bytes_max = raft.proposals_bytes_max
        self._group_bytes_max = min(raft.append_batch_bytes, command_bytes_max)
        self._command_bytes_max = command_bytes_max
        self._queue: deque[tuple[bytes, Waiter]] = deque()
        self._queued_bytes = 0
        self._taken: list[Waiter] = []
        self._taken_bytes = 0
        self._groups_left = 0
        self.is_cut_off = False
        """Whether more waits than this pass takes."""
        self._logged: dict[int, tuple[list[Waiter], int, int]] = {}
        self._logged_count = self._logged_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def queue_length(self) -> int:
        """How many proposals are in no entry yet."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """How many proposals wait: for an entry, or for its commit."""
        return len(self._queue) + self._logged_count

    def add(self, command: bytes) -> Waiter:
        """Queue ``command``; raises ThrottledError or DataTooLargeError, then nothing is queued."""
        in_flight = len(self._queue) + self._logged_count
        if in_flight >= self._in_flight_max:
            raise ThrottledError(
                f"expected fewer than {in_flight} proposals under way "
                "(raft.proposals_in_flight_max), found as many; nothing was proposed, try again",
                proposals_in_flight=in_flight,
            )
        if len(command) > self._command_bytes_max:
            raise DataTooLargeError(
                f"expected a command of at most {self._command_bytes_max} bytes,"
                f" found {len(command)}"
            )
        waiting_bytes = self._queued_bytes + self._logged_bytes
        if waiting_bytes and waiting_bytes + len(command) > self._bytes_max:
            raise ThrottledError(
                f"expected at most {self._bytes_max} bytes of proposals under way "
                f"(raft.proposals_bytes_max), found {waiting_bytes} and {len(command)} more; "
                "nothing was proposed, try again",
                proposals_in_flight=in_flight,
            )
        if self._loop is None:  # to ask asyncio each time asks the system for the process
            self._loop = asyncio.get_running_loop()
        waiter: Waiter = asyncio.Future(loop=self._loop)
        self._queue.append((command, waiter))
        self._queued_bytes += len(command)
        return waiter

    def begin_pass(self) -> None:
        """Another pass of the loop has begun."""
        self._groups_left = _PASS_GROUPS_MAX
        self.is_cut_off = False

    def take_group(self) -> bytes | None:
        """Return the next entry's commands, or None; ``on_logged`` must follow."""
        if self._groups_left <= 0:
            self.is_cut_off = bool(self._queue)
            return None
        self._groups_left -= 1
        commands: list[bytes] = []
        size = 0
        self._taken = []
        while self._queue and (
            not commands or size + len(self._queue[0][0]) <= self._group_bytes_max
        ):
            command, waiter = self._queue.popleft()
            self._queued_bytes -= len(command)
            if waiter.done():
                continue  # its caller gave up before it was proposed
            commands.append(command)
            self._taken.append(waiter)
            size += len(command)
        self._taken_bytes = size
        if not commands:
            return None
        packed: bytes = msgpack.packb(commands)
        return packed

    def on_logged(self, index: int, now_ms: int) -> None:
        """The group taken last is the entry at ``index``."""
        self._logged[index] = (self._taken, self._taken_bytes, now_ms)
        self._logged_count += len(self._taken)
        self._logged_bytes += self._taken_bytes
        self._taken = []

    def waiters_of(self, index: int) -> tuple[list[Waiter], int | None]:
        """Return the waiters for the commands of the entry at ``index``, in their order, and when
        it was logged here; none, and None, if that was not done in this leadership."""
        waiters, size, logged_ms = self._logged.pop(index, ([], 0, None))
        self._logged_count -= len(waiters)
        self._logged_bytes -= size
        return waiters, logged_ms

    def fail_queued(self, error: CoordinatorError) -> None:
        """Fail the waiters whose command is in no log."""
        queued, self._queue = self._queue, deque()
        self._queued_bytes = 0
        fail_waiters([waiter for _, waiter in queued], error)

    def fail_logged(self, error: CoordinatorError) -> None:
        """Fail the waiters whose command is in the log, committed or not."""
        logged, self._logged = self._logged, {}
        self._logged_count = self._logged_bytes = 0
        for waiters, _, _ in logged.values():
            fail_waiters(waiters, error)
        taken, self._taken = self._taken, []
        fail_waiters(taken, error)


@dataclass(slots=True)
class _Begun:
    """An entry whose first ``done`` commands are applied."""

    index: int
    term: int
    commands: list[bytes]
    waiters: list[Waiter]
    done: int = 0


class Entries:
    """The entries of one member; call ``open`` first. ``on_founding`` gets the cluster's id."""

    def __init__(
        self,
        proposals: Proposals,
        now_ms: Callable[[], int],
        on_founding: Callable[[bytes], None],
    ) -> None:
        self.proposals = proposals
        self._on_founding = on_founding
        self._now_ms = now_ms
        self._until_ms = 0
        self._left = 0
        self._begun: _Begun | None = None
        self._replica: Replica
        self._log: Journal
        self._ownership: Ownership
        self._on_applied: Callable[[int], None]
        self._refusal: Callable[[], CoordinatorError]
        self.owes_one = False
        """Whether an empty entry is due: a recovering member waits for a new commit."""
        self.led_ms: int | None = None
        """When the newest entry was logged that was logged here and applied in one leadership."""
        self.entries_total = 0
        self.commands_total = 0

    def open(
        self,
        replica: Replica,
        log: Journal,
        ownership: Ownership,
        *,
        on_applied: Callable[[int], None],
        refusal: Callable[[], CoordinatorError],
    ) -> None:
        """Begin: apply to ``replica``, report the bytes of each entry that is applied.

        ``refusal``: the error of commands that find the disk full."""
        self._replica, self._log, self._ownership = replica, log, ownership
        self._on_applied, self._refusal = on_applied, refusal

    # What a leader writes to its log.

    def propose(self, command: bytes) -> Waiter:
        """Queue ``command`` for the next entry, once it is known that this member leads.

        Raises:
            NoSpaceError, ThrottledError, DataTooLargeError: it was not queued.
        """
        if self._log.is_full:
            raise self._refusal()
        return self.proposals.add(command)

    def first(self) -> bytes:
        """Return the first entry of a term: a cluster without an id is given one."""
        if self._ownership.cluster_id:
            return NO_OP
        cluster_id = self._ownership.draw_id()
        # The log may hold one that is not applied yet; there is never a second one.
        is_founded = any(each[0][:1] == FOUNDING for each in self._log[:])
        return NO_OP if is_founded else FOUNDING + cluster_id

    def next(self) -> bytes | None:
        """Return the next entry, or None; ``on_logged`` must follow."""
        if self._log.is_full:
            self.proposals.fail_queued(self._refusal())
        group = self.proposals.take_group()
        if group is None and self.owes_one and not self._log.is_full:
            group = NOTHING
        self.owes_one = False
        return None if group is None else REGULAR + group

    def on_logged(self, index: int) -> None:
        """The entry returned last is the one at ``index``."""
        self.proposals.on_logged(index, self._now_ms())

    # What is committed.

    @property
    def is_between_entries(self) -> bool:
        """Whether no entry is applied in part."""
        return self._begun is None

    @property
    def waiting(self) -> int:
        """How many waiters of the partly applied entry have no answer yet."""
        begun = self._begun
        return 0 if begun is None else max(0, len(begun.waiters) - begun.done)

    @property
    def in_flight(self) -> int:
        """How many proposals have no answer yet."""
        return self.proposals.in_flight + self.waiting

    def begin_applying(self) -> None:
        """A pass of the loop has come to this: its time for it is counted from here."""
        self._until_ms = self._now_ms() + _PASS_MS
        self._left = _PASS_COMMANDS_MAX

    def apply(self, index: int, term: int, entry: bytes) -> bool:
        """Apply an entry, or continue with it; return whether it is done. If not, the pass ends."""
        if self._begun is not None and self._begun.index != index:
            self.fail(LeaderChangedError("a snapshot took the place of this entry"))
        if self._begun is None:
            if self._is_over():
                return False
            self._begun = self._begin(index, term, entry)
        begun = self._begun
        try:
            while begun.done < len(begun.commands):
                if self._is_over():
                    return False
                self._left -= 1
                self._apply_next(begun)
        except Exception:
            self.fail(LeaderChangedError("the member failed while it applied this"))
            raise
        self._begun = None
        self._on_applied(len(entry))
        return True

    def step_down(self, member_id: str) -> None:
        """Fail all that waits for a commit: this member does not lead any more."""
        self.proposals.fail_queued(NoLeaderError(f"member {member_id} does not lead"))
        self.proposals.fail_logged(
            LeaderChangedError("the leader stepped down while the proposal was under way")
        )

    def fail_all(self, why: CoordinatorError) -> None:
        """Fail all waiters; ``why`` is definite, for those whose command is in no log."""
        self.proposals.fail_queued(why)
        self.proposals.fail_logged(LeaderChangedError(why.message))
        self.fail(LeaderChangedError(why.message))

    def fail(self, error: CoordinatorError) -> None:
        """Forget the partly applied entry, and fail the waiters for the rest of it."""
        begun, self._begun = self._begun, None
        if begun is not None:
            fail_waiters(begun.waiters, error)

    def _is_over(self) -> bool:
        # One is applied however late it is: on a slow processor each pass may come to this late.
        is_late = self._left < _PASS_COMMANDS_MAX and self._now_ms() >= self._until_ms
        return self._left <= 0 or is_late

    def _begin(self, index: int, term: int, entry: bytes) -> _Begun:
        self.entries_total += 1
        if entry == NO_OP:
            self._left -= 1
            return _Begun(index, term, [], [])
        if entry[:1] == FOUNDING and len(entry) == 1 + CLUSTER_ID_BYTES:
            self._on_founding(entry[1:])
            self._left -= 1
            return _Begun(index, term, [], [])
        if entry[:1] != REGULAR:
            raise InvariantError(f"entry {index} is of no kind known here")
        try:
            commands = unpack_group(entry[1:])
        except ValueError as error:
            raise InvariantError(f"entry {index} cannot be taken apart: {error}") from error
        waiters, logged_ms = self.proposals.waiters_of(index)
        if logged_ms is not None:
            self.led_ms = logged_ms  # a quorum has acknowledged it since, in the same term
        if waiters and len(waiters) != len(commands):
            fail_waiters(waiters, LeaderChangedError("the member failed while it applied this"))
            raise InvariantError(f"entry {index} is not the one that was proposed")
        return _Begun(index, term, commands, waiters)

    def _apply_next(self, begun: _Begun) -> None:
        index, term, position = begun.index, begun.term, begun.done
        result = self._replica.apply(index, term, begun.commands[position])
        begun.done += 1
        self.commands_total += 1
        if begun.waiters and not begun.waiters[position].done():
            begun.waiters[position].set_result(Applied(index, term, result))


def unpack_group(packed: bytes) -> list[bytes]:
    """Return the commands of an entry; raises ValueError for anything else."""
    commands = msgpack.unpackb(packed)
    if not isinstance(commands, list) or not _ONLY_BYTES.issuperset(map(type, commands)):
        raise ValueError("expected a list of commands in an entry")
    return commands


def fail_waiters(waiters: list[Waiter], error: CoordinatorError) -> None:
    """Give each of them an error of its own."""
    wake_in_turns(
        waiters, lambda each: each.set_exception(type(error)(error.message, **error.fields))
    )
