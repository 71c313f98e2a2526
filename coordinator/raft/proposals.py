"""Proposals: commands on their way into the log, and the waiters for their outcomes.

All commands proposed in one pass of the loop become one entry, as far as its size allows (group
commit). When a leader steps down, a waiter whose command is in the log gets an indefinite error; a
waiter whose command is not in the log yet learns that it was not proposed.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgpack  # type: ignore[import-untyped]

from coordinator.config import RaftConfig
from coordinator.errors import CoordinatorError, DataTooLargeError, ThrottledError
from coordinator.raft.engine import Applied
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


class Proposals:
    """The commands and waiters of one member."""

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
        self._logged: dict[int, tuple[list[Waiter], int]] = {}
        self._logged_count = self._logged_bytes = 0

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        return len(self._queue) + self._logged_count

    def add(self, command: bytes) -> Waiter:
        """Queue ``command``; raises ThrottledError or DataTooLargeError, then nothing is queued."""
        if self.in_flight >= self._in_flight_max:
            raise ThrottledError(
                f"{self.in_flight} proposals wait already", proposals_in_flight=self.in_flight
            )
        if len(command) > self._command_bytes_max:
            raise DataTooLargeError(
                f"expected a command of at most {self._command_bytes_max} bytes,"
                f" found {len(command)}"
            )
        waiting_bytes = self._queued_bytes + self._logged_bytes
        if waiting_bytes and waiting_bytes + len(command) > self._bytes_max:
            raise ThrottledError(
                f"{waiting_bytes} bytes of proposals wait already",
                proposals_in_flight=self.in_flight,
            )
        waiter: Waiter = asyncio.get_running_loop().create_future()
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

    def on_logged(self, index: int) -> None:
        """The group taken last is the entry at ``index``."""
        self._logged[index] = (self._taken, self._taken_bytes)
        self._logged_count += len(self._taken)
        self._logged_bytes += self._taken_bytes
        self._taken = []

    def waiters_of(self, index: int) -> list[Waiter]:
        """Return the waiters for the commands of the entry at ``index``, in their order."""
        waiters, size = self._logged.pop(index, ([], 0))
        self._logged_count -= len(waiters)
        self._logged_bytes -= size
        return waiters

    def fail_queued(self, error: CoordinatorError) -> None:
        """Fail the waiters whose command is in no log."""
        queued, self._queue = self._queue, deque()
        self._queued_bytes = 0
        fail_waiters([waiter for _, waiter in queued], error)

    def fail_logged(self, error: CoordinatorError) -> None:
        """Fail the waiters whose command is in the log, committed or not."""
        logged, self._logged = self._logged, {}
        self._logged_count = self._logged_bytes = 0
        for waiters, _ in logged.values():
            fail_waiters(waiters, error)
        taken, self._taken = self._taken, []
        fail_waiters(taken, error)


def unpack_group(packed: bytes) -> list[bytes]:
    """Return the commands of an entry; raises ValueError for anything else."""
    commands = msgpack.unpackb(packed)
    if not isinstance(commands, list) or any(type(command) is not bytes for command in commands):
        raise ValueError("expected a list of commands in an entry")
    return commands


def fail_waiters(waiters: list[Waiter], error: CoordinatorError) -> None:
    """Give each of them an error of its own."""
    wake_in_turns(
        waiters, lambda each: each.set_exception(type(error)(error.message, **error.fields))
    )
