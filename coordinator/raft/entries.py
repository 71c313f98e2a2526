"""The entries of the log: how a leader makes them, and how they are applied once committed.

PySyncObj's log asks here for the next entry (``hardening``) and hands back committed ones.

1. Each command of an entry is applied once, in order. An entry that cannot be decoded, or that is
   not the one proposed at its index, is a broken invariant and stops the member (row 16).
2. One pass of the loop applies commands for about ``_PASS_MS``: at least one and a bounded number.
   The next pass continues, also within an entry, so that a thousand commands do not hold the loop.
   While an entry is partly applied no snapshot is made: it would contain that part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.errors import CoordinatorError, LeaderChangedError
from coordinator.raft.engine import Applied, InvariantError, Replica
from coordinator.raft.proposals import (
    FOUNDING,
    NO_OP,
    NOTHING,
    REGULAR,
    Proposals,
    Waiter,
    fail_waiters,
    unpack_group,
)
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.ownership import CLUSTER_ID_BYTES, Ownership

_PASS_MS = 5
_PASS_COMMANDS_MAX = 500


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
        self._proposals = proposals
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
            self._proposals.fail_queued(self._refusal())
        group = self._proposals.take_group()
        if group is None and self.owes_one and not self._log.is_full:
            group = NOTHING
        self.owes_one = False
        return None if group is None else REGULAR + group

    def on_logged(self, index: int) -> None:
        """The entry returned last is the one at ``index``."""
        self._proposals.on_logged(index)

    # What is committed.

    @property
    def is_between_entries(self) -> bool:
        """Whether no entry is applied in part."""
        return self._begun is None

    @property
    def waiting(self) -> int:
        """How many waiters of that entry have no answer yet."""
        begun = self._begun
        return 0 if begun is None else max(0, len(begun.waiters) - begun.done)

    def begin_pass(self) -> None:
        """Another pass of the loop has begun."""
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
        waiters = self._proposals.waiters_of(index)
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
