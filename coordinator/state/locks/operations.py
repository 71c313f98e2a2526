"""Operations on a queue: enter, downgrade, resize, note, extend, and how it is left.

1. An attempt is all or nothing: every place of a multi-lock is made, or none.
2. Whether it would hold is known before anything is made; a try that would not is no change.
3. An attempt that would wait for ever is refused with Deadlock, before anything is made.
4. Only a holder is downgraded, noted, extended, or ended by its bound, and by its bound only if
   it was not extended meanwhile; only a closed queue is reopened.
5. A holder that asked for a lock-delay and is lost by expiry, or by a failure that its client
   found in itself, leaves its queue closed: a persistent ``delay-`` znode takes its place,
   behind those who hold with it.

Source: lock-delay is Chubby's (Burrows 2006, section 2.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    NoNodeError,
    NotEmptyError,
    NotOwnerError,
    SessionExpiredError,
)
from coordinator.model.limits import MachineLimits
from coordinator.state import paths
from coordinator.state.access.quotas import Quotas
from coordinator.state.commands import (
    EXCLUSIVE,
    SHARED,
    SLOT,
    CreateMode,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExtendHold,
    HeldCondition,
    Note,
    Reopen,
    Resize,
    Revoke,
)
from coordinator.state.locks import deadlock
from coordinator.state.locks.contender import (
    DELAY_PREFIX,
    ContenderRecord,
    is_queue,
    kind_of,
    number_of,
    recorded,
)
from coordinator.state.locks.lookups import last_holders, with_token
from coordinator.state.locks.queues import LockTable
from coordinator.state.operations import ZnodeOperations
from coordinator.state.outcomes import (
    Created,
    Downgraded,
    Entered,
    HoldEnded,
    HoldExtended,
    Noted,
    Reopened,
    Resized,
    Revoked,
)
from coordinator.state.sessions import SessionTable
from coordinator.state.tree import Tree
from coordinator.state.znode_changes import with_tenure

_PERSISTENT: Final = CreateMode.PERSISTENT
_CONTAINER: Final = CreateMode.CONTAINER
GROUP_MAX: Final = 64
"""Queues that one attempt may enter."""
PREFIX_CHARACTERS_MAX: Final = 32
OWNER_CHARACTERS_MAX: Final = 128
BY_CHARACTERS_MAX: Final = 256
REASON_CHARACTERS_MAX: Final = 512
NOTE_BYTES_MAX: Final = 1_024
LOCK_DELAY_MS_MAX: Final = 60_000
MAX_HOLD_MS_MAX: Final = 30 * 24 * 3_600_000
SIZE_MAX: Final = 10_000
CONDITIONS_MAX: Final = 64
_SHOWN_TOKENS_MAX: Final = 16
_LONGEST_DELAY: Final = DELAY_PREFIX + "0" * 40


class LockOperations:
    """Runs these operations in the transaction of one command."""

    def __init__(
        self,
        tree: Tree,
        *,
        sessions: SessionTable,
        locks: LockTable,
        operations: ZnodeOperations,
        quotas: Quotas,
        limits: MachineLimits,
    ) -> None:
        self._tree = tree
        self._sessions = sessions
        self._locks = locks
        self._operations = operations
        self._quotas = quotas
        self._limits = limits

    # --- enter

    def enter(self, operation: Enter) -> Entered:
        """Take a place in each queue; raises BadArguments, Deadlock, or what a create raises."""
        _check_enter(operation)
        locks, session_id, kind = self._locks, operation.session_id, operation.kind
        if operation.opening is None and session_id not in self._sessions:
            raise SessionExpiredError(
                f"enter {operation.directories[0]}: session {session_id[:80]!a} is not open",
                session_id=session_id,
            )
        size = 0 if kind is not SLOT else self._size(operation)
        is_granted = True
        for directory in operation.directories:
            is_granted = is_granted and locks.would_hold(directory, kind, size)
        position = 0 if is_granted else self._position(operation.directories)
        if operation.is_try and not is_granted:
            return Entered((), is_granted=False, position=position, is_entered=False)
        if not is_granted:
            self._quotas.check_wait(operation.directories[0], len(operation.directories))
        if operation.owner and not is_granted:
            deadlock.check_entry(locks, operation)
        if operation.lock_delay_ms:
            for directory in operation.directories:
                paths.validate(f"{directory}/{_LONGEST_DELAY}", self._limits)
        created = tuple([self._create(operation, each) for each in operation.directories])
        self._record(operation, created, is_granted=is_granted)
        return Entered(created, is_granted, position)

    def _size(self, operation: Enter) -> int:
        directory = operation.directories[0]
        size: int | None = self._locks.sizes.get(directory)
        if size is not None:
            return size
        if operation.size is None:
            raise BadArgumentsError(
                f"enter {directory}: expected a size, since this semaphore is new",
                directory=directory,
            )
        return operation.size

    def _position(self, directories: tuple[str, ...]) -> int:
        position = 1
        for directory in directories:
            queue = self._locks.queues.get(directory)
            if queue is not None:
                position = max(position, len(queue.contenders))
        return position

    def _create(self, operation: Enter, directory: str) -> Created:
        return self._operations.create_contender(
            f"{directory}/{operation.prefix}",
            operation.data,
            operation.session_id,
            _PERSISTENT if operation.kind is SLOT else _CONTAINER,
        )

    def _record(self, operation: Enter, created: tuple[Created, ...], *, is_granted: bool) -> None:
        group = () if len(created) == 1 else tuple([each.path for each in created])
        data = recorded(operation.data)
        zxid, wall_ms = self._tree.zxid, self._tree.wall_ms
        for each in created:
            number = number_of(each.path)
            assert number is not None, "newcomers get a number"
            contender = ContenderRecord(
                each.path, number, zxid, operation.kind, operation.session_id, data, wall_ms,
                operation.owner, operation.lock_delay_ms, operation.max_hold_ms, group, b"",
                zxid if is_granted else None, wall_ms if is_granted else 0,
                self._locks.next_grant_number() if is_granted else 0, False,
                self._tree.identity,
            )  # fmt: skip
            self._locks.expect(contender)
        if operation.kind is SLOT:
            directory = operation.directories[0]
            if directory not in self._locks.sizes:
                assert operation.size is not None, "checked before"
                self._keep(directory)
                self._locks.resize(directory, operation.size)

    def _keep(self, directory: str) -> None:
        """Let a semaphore's directory stay when it is empty, so that its size does."""
        znode = self._tree.find(directory)
        assert znode is not None, "it has a contender"
        if znode.tenure is not None and znode.tenure.mode is _CONTAINER:
            self._tree.make_persistent(directory, znode)

    # --- of one contender

    def downgrade(self, operation: Downgrade) -> Downgraded:
        """Turn the grant of an exclusive lock into a shared one."""
        path, czxid = operation.path, operation.czxid
        contender = self._holder(path, czxid, "downgrade")
        if contender.group or contender.kind is SLOT:
            found = "several as one" if contender.group else contender.kind.value
            raise BadArgumentsError(
                f"downgrade {path}: expected an exclusive or shared lock, found {found}", path=path
            )
        if contender.kind is EXCLUSIVE:
            znode = self._tree.find(path)
            assert znode is not None, "a contender has its znode"
            self._tree.replace_data(path, znode, znode.data)
            self._locks.replace(contender.but(kind=SHARED))
        return Downgraded(path, czxid)

    def note(self, operation: Note) -> Noted:
        """Replace the note of a holder's grant."""
        path, note = operation.path, operation.note
        contender = self._holder(path, operation.czxid, "note")
        if len(note) > NOTE_BYTES_MAX:
            raise BadArgumentsError(
                f"note {path}: expected at most {NOTE_BYTES_MAX} bytes, found {len(note)}",
                path=path,
            )
        if note != contender.note:
            for each in contender.group or (path,):
                self._locks.replace(self._locks.contenders[each].but(note=note))
        return Noted(path, operation.czxid)

    def extend_hold(self, operation: ExtendHold) -> HoldExtended:
        """Move the end of a bounded hold; a multi-lock's as a whole."""
        path, by_ms, to_ms = operation.path, operation.by_ms, operation.to_ms
        contender = self._holder(path, operation.czxid, "extend")
        if not contender.max_hold_ms:
            raise BadArgumentsError(
                f"extend {path}: expected a hold with a longest time, found one without", path=path
            )
        if (by_ms > 0) == (to_ms > 0):
            raise BadArgumentsError(
                f"extend {path}: expected one of by_ms and to_ms, found {by_ms} and {to_ms}",
                path=path,
            )
        # A later leader counts in full from when it leads, so the greater of the two is enough.
        max_hold_ms = max(contender.max_hold_ms + by_ms, to_ms)
        _check_range("longest hold in ms", max_hold_ms, MAX_HOLD_MS_MAX)
        extensions = contender.extensions + 1
        for each in contender.group or (path,):
            before = self._locks.contenders[each]
            self._locks.replace(before.but(max_hold_ms=max_hold_ms, extensions=extensions))
        return HoldExtended(path, operation.czxid, max_hold_ms, extensions)

    def revoke(self, operation: Revoke) -> Revoked:
        """End a grant, or take a contender out of the queue, for an operator."""
        path, czxid = operation.path, operation.czxid
        check_text("by", operation.by, BY_CHARACTERS_MAX)
        check_text("reason", operation.reason, REASON_CHARACTERS_MAX)
        contender = self._standing(path, czxid, "revoke")
        was_holder = contender.is_holder
        self._remove(contender, "revoke")
        return Revoked(path, czxid, contender.group or (path,), was_holder)

    def end_hold(self, operation: EndHold, term: int) -> HoldEnded:
        """End a bounded hold that lasted for its longest time; of a former term do nothing."""
        path, czxid = operation.path, operation.czxid
        contender = self._locks.contenders.get(path)
        if (
            operation.term != term
            or contender is None
            or contender.czxid != czxid
            or not contender.is_holder
            or not contender.max_hold_ms
            or contender.extensions != operation.extensions
        ):
            return HoldEnded(path, czxid, was_held=False)
        self._remove(contender, "end the hold of")
        return HoldEnded(path, czxid, was_held=True)

    def _remove(self, contender: ContenderRecord, verb: str) -> None:
        """Delete the contender; the rest of its group follows when the command is settled."""
        path = contender.path
        znode = self._tree.find(path)
        assert znode is not None, "a contender has its znode"
        if znode.num_children:
            raise NotEmptyError(
                f"{verb} {path}: expected no children, found {znode.num_children}",
                path=path,
                num_children=znode.num_children,
            )
        self._tree.remove(path, znode)

    def _holder(self, path: str, czxid: int, verb: str) -> ContenderRecord:
        contender = self._standing(path, czxid, verb)
        if not contender.is_holder:
            raise NotOwnerError(f"{verb} {path}: it is in the queue and does not hold", path=path)
        if contender.session_id in self._locks.leaving:
            raise NotOwnerError(f"{verb} {path}: its session has ended", path=path)
        return contender

    def _standing(self, path: str, czxid: int, verb: str) -> ContenderRecord:
        contender: ContenderRecord | None = self._locks.contenders.get(path)
        if contender is None:
            paths.validate(path, self._limits)
        if contender is None or contender.czxid != czxid:
            found = "none" if contender is None else f"one created at {contender.czxid}"
            raise NotOwnerError(
                f"{verb} {path}: expected the contender created at zxid {czxid}, found {found}",
                path=path,
                expected_czxid=czxid,
                current_czxid=None if contender is None else contender.czxid,
            )
        return contender

    # --- of a whole queue

    def resize(self, operation: Resize) -> Resized:
        """Change how many may hold a semaphore; those beyond a smaller size stay."""
        directory, size = operation.directory, operation.size
        _check_queue(directory, "resize")
        _check_size(size, "resize", directory)
        before = self._locks.sizes.get(directory)
        if before is None:
            raise NoNodeError(f"resize {directory}: there is no such semaphore", path=directory)
        if size != before:
            deadlock.check_resize(self._locks, directory, size)
            self._locks.resize(directory, size)
        return Resized(directory, size, before)

    def reopen(self, operation: Reopen, term: int) -> Reopened:
        """End the delay after a lost grant; of a former term do nothing."""
        path, czxid = operation.path, operation.czxid
        closing = self._locks.closings.get(path)
        if operation.term != term or closing is None or closing.czxid != czxid:
            return Reopened(path, czxid, was_closed=False)
        # With what a client may have put below it, or the queue would never open again.
        self._operations.delete(Delete(path, is_recursive=True))
        return Reopened(path, czxid, was_closed=True)

    def close_after(self, lost: Iterable[str]) -> None:
        """Close the queues of holders that asked for it; ``lost`` are deleted now."""
        delays: dict[str, tuple[int, int]] = {}
        gone = dict.fromkeys(lost)
        for path in gone:
            contender = self._locks.contenders.get(path)
            if contender is not None and contender.is_holder and contender.lock_delay_ms:
                delay_ms, number = delays.get(contender.directory, (0, 0))
                delays[contender.directory] = (
                    max(delay_ms, contender.lock_delay_ms),
                    max(number, contender.number),
                )
        for directory, (delay_ms, number) in delays.items():
            self._close(directory, number, delay_ms, gone)

    def _close(self, directory: str, number: int, delay_ms: int, gone: dict[str, None]) -> None:
        holders = last_holders(self._locks, directory)
        last = next((each for each in holders if each.path not in gone), None)
        place = number if last is None else max(number, last.number)
        own = "" if place == number else f"{number}-"
        path = f"{directory}/{DELAY_PREFIX}{own}{paths.sequence_suffix(place)}"
        parent = self._tree.find(directory)
        if parent is None or self._tree.find(path) is not None:
            return  # closed there by hand, until that znode is deleted
        child = with_tenure(self._operations.new_znode(_PERSISTENT), None)
        self._tree.add(path, parent, child, parent.next_sequence)
        self._locks.expect_closing(path, delay_ms)

    # --- conditions

    def check_held(self, conditions: Sequence[HeldCondition]) -> None:
        """Raise LockLost unless each token's contender holds its queue."""
        if len(conditions) > CONDITIONS_MAX:
            raise BadArgumentsError(
                f"if held: expected at most {CONDITIONS_MAX} conditions, found {len(conditions)}"
            )
        for condition in conditions:
            _check_queue(condition.directory, "if held")
        leaving = self._locks.leaving
        for condition in conditions:
            holder = with_token(self._locks, condition.directory, condition.fencing_token)
            if holder is None or not holder.is_holder or holder.session_id in leaving:
                raise self._lost(condition)

    def _lost(self, condition: HeldCondition) -> LockLostError:
        """Return the refusal of a condition: it says who holds instead."""
        token, directory = condition.fencing_token, condition.directory
        holders, leaving = self._locks.holders(directory), self._locks.leaving
        staying: list[int] = []
        for each in holders:  # by hand: a semaphore may have 100,000, and a few are shown
            if len(staying) == _SHOWN_TOKENS_MAX:
                break
            if each.session_id not in leaving:
                staying.append(each.czxid)
        tokens = tuple(staying)
        name = unquote(directory.rpartition("/")[2])
        shown = ", ".join([str(each) for each in tokens])
        return LockLostError(
            f"if held: expected {name!r} to be held with fencing token {token}, "
            + (f"found {shown}" if tokens else "found that nobody holds it"),
            lock=name,
            directory=directory,
            fencing_token=token,
            holder_tokens=tokens,
        )


def _check_enter(operation: Enter) -> None:
    """Check the arguments, whatever is in the queues; raises BadArguments."""
    directories, prefix, kind = operation.directories, operation.prefix, operation.kind
    if not 1 <= len(directories) <= GROUP_MAX:
        raise BadArgumentsError(
            f"enter: expected 1 to {GROUP_MAX} queues, found {len(directories)}"
        )
    for directory in directories:
        _check_queue(directory, "enter")
    first = directories[0]
    if len(directories) > 1:
        if any(one >= other for one, other in pairwise(directories)):
            raise BadArgumentsError(
                f"enter {first}: expected the queues to be sorted, and none twice", path=first
            )
        if kind is not EXCLUSIVE:
            raise BadArgumentsError(
                f"enter {first}: expected several queues to be entered exclusively, "
                f"found {kind.value}",
                path=first,
            )
    if (
        not 1 <= len(prefix) <= PREFIX_CHARACTERS_MAX
        or "/" in prefix
        or prefix.startswith(DELAY_PREFIX)
        or kind_of(prefix) is not kind
    ):
        raise BadArgumentsError(
            f"enter {first}: expected a prefix of 1 to {PREFIX_CHARACTERS_MAX} characters that "
            f"fits {kind.value}, found {prefix[:PREFIX_CHARACTERS_MAX]!a}",
            path=first,
        )
    check_text("owner", operation.owner, OWNER_CHARACTERS_MAX)
    if operation.lock_delay_ms or operation.max_hold_ms:
        _check_range("lock-delay in ms", operation.lock_delay_ms, LOCK_DELAY_MS_MAX)
        _check_range("longest hold in ms", operation.max_hold_ms, MAX_HOLD_MS_MAX)
    if operation.size is not None:
        if kind is not SLOT:
            raise BadArgumentsError(f"enter {first}: expected a size for slots only", path=first)
        _check_size(operation.size, "enter", first)


def _check_queue(directory: str, verb: str) -> None:
    if not is_queue(directory):
        raise BadArgumentsError(
            f"{verb} {paths.shown(directory)}: expected the queue of a lock or election",
            path=paths.shown(directory),
        )


def _check_size(size: int, verb: str, directory: str) -> None:
    if not 1 <= size <= SIZE_MAX:
        raise BadArgumentsError(
            f"{verb} {directory}: expected a size of 1 to {SIZE_MAX}, found {size}", path=directory
        )


def check_text(what: str, text: str, characters_max: int) -> None:
    """Raise BadArguments for a text that is longer than it may be."""
    if len(text) > characters_max:
        raise BadArgumentsError(
            f"{what}: expected at most {characters_max} characters, found {len(text)}"
        )


def _check_range(what: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        raise BadArgumentsError(f"{what}: expected 0 to {maximum}, found {value}")
