"""Committed entries on their way into the replica, and their results on the way to who proposed.

Each command of an entry is applied once, in order; an entry that cannot be taken apart, or that is
not what was proposed at its index, is a broken invariant and stops the member (row 16).
"""

from __future__ import annotations

from coordinator.errors import LeaderChangedError
from coordinator.raft.engine import Applied, Replica
from coordinator.raft.hardening import NO_OP, REGULAR, InvariantError
from coordinator.raft.proposals import Proposals, fail_waiters, unpack_group


class Application:
    """Applies the entries of one member."""

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals
        self.entries_total = 0
        self.commands_total = 0

    def apply(self, replica: Replica, index: int, term: int, entry: bytes) -> int:
        """Apply an entry; return how many commands it had."""
        self.entries_total += 1
        if entry == NO_OP:
            return 1
        if entry[:1] != REGULAR:
            raise InvariantError(f"entry {index} is of no kind known here")
        try:
            commands = unpack_group(entry[1:])
        except ValueError as error:
            raise InvariantError(f"entry {index} cannot be taken apart: {error}") from error
        waiters = self._proposals.waiters_of(index)
        self.commands_total += len(commands)
        try:
            if waiters and len(waiters) != len(commands):
                raise InvariantError(f"entry {index} is not the one that was proposed")
            for position, command in enumerate(commands):
                result = replica.apply(index, term, command)
                if waiters and not waiters[position].done():
                    waiters[position].set_result(Applied(index, term, result))
        except Exception:
            fail_waiters(waiters, LeaderChangedError("the member failed while it applied this"))
            raise
        return len(commands)
