"""Digests of bounded slices of the state, by which members compare their states.

``slice_at`` digests the state in memory from a cursor on and returns where the next slice begins.
Members that have applied the same entries get the same digest from the same cursor. All slices
together cover the whole state, but not at one moment.

1. The digest reads memory, not the history of commands. So it finds a value that was corrupted, and
   an index (names of children, ephemerals, idle znodes, queues) that does not match its source.
2. A slice is bounded by ``items_max`` and ``bytes_max`` and exceeds them by at most one item. Long
   data are cut; of a remembered read longer than ``CUT_BYTES`` both ends are digested.
3. A cursor is a place in an order that all members share; its item may have been deleted. Tables
   ordered by use are read from the latest item on: an item used meanwhile moves to the part that
   was read already, and no other item moves past the cursor.
4. What exists only in one process (generations of captures, undo lists) is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from coordinator.state.access.encoding import identity_row, role_row
from coordinator.state.access.table import AccessTable
from coordinator.state.dedup import ClientRecord, ReleasedTable, RequestTable, outcome_bytes
from coordinator.state.limits import LimitsRecord
from coordinator.state.locks.contender import CONTENDER_DEPTH, QUEUE_DEPTH, QUEUE_ROOTS
from coordinator.state.locks.queue import Queue
from coordinator.state.locks.queues import LockTable
from coordinator.state.outcome_codec import outcome_row
from coordinator.state.outcomes import (
    GuardedDone,
    MultiDone,
    Outcome,
    ReadDone,
    ZnodeResult,
)
from coordinator.state.packing import pack
from coordinator.state.paths import shown
from coordinator.state.recency_map import RecencyMap
from coordinator.state.sessions import SessionTable
from coordinator.state.tree import Tree
from coordinator.state.znode_changes import fields_of

FORMAT: Final = 5
"""Raise it when a slice's content or end changes: only slices of one format are compared."""
ITEMS_MAX: Final = 1_000
BYTES_MAX: Final = 512 * 1024
CUT_BYTES: Final = 128 * 1024
PIECE_BYTES: Final = 8
"""Length of one piece's digest: two are equal by chance once in 2**64."""
DIGEST_BYTES_MAX: Final = 2_048
_PIECE_ITEMS: Final = 32
_SHOWN_PIECES_MAX: Final = 3
_ROW_BYTES: Final = 64
"""What a row counts beside its texts and data."""
_SHOWN_CLOSINGS_MAX: Final = 100


class Cursor(NamedTuple):
    """Where a slice begins: in which part, how many of its items are still to come (or -1: all),
    and behind which key; ``number`` says how much of that key's value was read already."""

    part: int = 0
    left: int = -1
    key: str = ""
    number: int = 0


class Slice(NamedTuple):
    """``digest`` is that of each piece after the other, ``PIECE_BYTES`` each; ``described`` says of
    each in words what it is. ``following`` is None when the whole state has been gone through."""

    digest: bytes
    following: Cursor | None
    described: tuple[str, ...]

    def differing(self, digest: bytes) -> str:
        """Describe the first few pieces that differ from those of ``digest``."""
        own, other = _pieces(self.digest), _pieces(digest)
        names = [
            name
            for at, name in enumerate(self.described)
            if name and (at >= len(other) or own[at] != other[at])
        ]
        more = ["and more"] if len(names) > _SHOWN_PIECES_MAX else []
        return ", ".join(names[:_SHOWN_PIECES_MAX] + more) or "where the next slice begins"


def _pieces(digest: bytes) -> list[bytes]:
    return [digest[at : at + PIECE_BYTES] for at in range(0, len(digest), PIECE_BYTES)]


@dataclass(frozen=True, slots=True)
class Whole:
    """The parts of the state that are digested."""

    zxid: int
    applied_index: int
    limits: LimitsRecord
    tree: Tree
    sessions: SessionTable
    requests: RequestTable
    released: ReleasedTable
    locks: LockTable
    access: AccessTable


class _Budget:
    """The room left in a slice, and its rows."""

    def __init__(self, items_max: int, bytes_max: int) -> None:
        self.rows: list[Any] = []
        self.items_left = items_max
        self.bytes_left = bytes_max

    @property
    def is_spent(self) -> bool:
        return self.items_left <= 0 or self.bytes_left <= 0

    def take(self, row: Any, size: int) -> None:
        self.rows.append(row)
        self.items_left -= 1
        self.bytes_left -= size + _ROW_BYTES


def slice_at(
    whole: Whole, cursor: Cursor, *, items_max: int = ITEMS_MAX, bytes_max: int = BYTES_MAX
) -> Slice:
    """Digest the slice that begins at ``cursor``; raises ValueError if there is no such place."""
    if not 0 <= cursor.part < len(_PARTS) or cursor.left < -1 or cursor.number < 0:
        raise ValueError(f"expected a place in the state, found {cursor}")
    budget = _Budget(items_max, bytes_max)
    pieces: list[bytes] = []
    described: list[str] = []
    following: Cursor | None = cursor
    while following is not None and not budget.is_spent:
        part = following.part
        name, read = _PARTS[part]
        found = read(whole, following, budget)
        rows = budget.rows
        for at in range(0, len(rows), _PIECE_ITEMS):
            piece = rows[at : at + _PIECE_ITEMS]
            pieces.append(_digest_of(piece))
            described.append(_described(name, piece[0], piece[-1]))
        rows.clear()
        if found is not None:
            following = found
        else:
            following = Cursor(part + 1) if part + 1 < len(_PARTS) else None
    pieces.append(_digest_of(following))
    return Slice(b"".join(pieces), following, (*described, ""))


def _digest_of(rows: Any) -> bytes:
    return hashlib.blake2b(pack(rows), digest_size=PIECE_BYTES).digest()


def _described(name: str, first: Any, last: Any) -> str:
    """Describe a piece; znodes are named, since they can be read."""
    if name != "znodes":
        return name
    begin, end = shown(first[0]), shown(last[0])
    return f"znodes {begin} to {end}" if begin != end else f"znode {begin}"


# --- counters and limits


def _read_counters(whole: Whole, _cursor: Cursor, budget: _Budget) -> Cursor | None:
    limits, requests, locks = whole.limits, whole.requests, whole.locks
    sessions, released = whole.sessions, whole.released
    budget.take(
        (
            whole.zxid, whole.applied_index, whole.tree.counts(), len(sessions),
            sessions.counts(),
            requests.counts(), len(released), locks.counts(), locks.history.counts(),
            limits.version, limits.changed_by, limits.changed_ms, limits.rules,
            limits.limits.items(), sessions.limits.items(), requests.limits.items(),
            released.count_max, tuple(sessions.leaving.items()), tuple(sessions.revoked.items()),
            whole.access.counts(),
        ),
        0,
    )  # fmt: skip
    return None


# --- the tree, with what is kept beside its znodes


def _read_tree(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    tree, key = whole.tree, cursor.key
    if cursor.number:
        following = _read_data(tree, key, cursor, budget)
        if following is not None:
            return following
    for run in tree.runs_behind(key):
        if _took_all(tree, run, budget):
            key = run[-1]
            continue
        for path in run:
            if budget.is_spent:
                return Cursor(cursor.part, -1, key)
            key = path
            if _read_znode(whole, path, budget):
                return Cursor(cursor.part, -1, path, 1)
    return None


def _took_all(tree: Tree, run: list[str], budget: _Budget) -> bool:
    """Take a run of plain znodes as ``_read_znode`` would, at once, if there is room for all."""
    if run[0].startswith(QUEUE_ROOTS):
        return False
    znodes = [znode for znode in tree.find_all(run) if znode is not None]
    size = sum([len(znode.data) for znode in znodes]) + sum([len(path) for path in run])
    bytes_left = budget.bytes_left - size - _ROW_BYTES * len(run)
    if len(run) > budget.items_left or bytes_left <= 0 or size > CUT_BYTES:
        return False
    if len(znodes) < len(run):  # an index names one that is not there
        return False
    budget.items_left -= len(run)
    budget.bytes_left = bytes_left
    marks = tree.marks_of(run, znodes)
    budget.rows += [
        (path, fields, mark, tree.used_by(fields[-1])) if fields[-1] else (path, fields, mark)
        for path, fields, mark in zip(run, map(fields_of, znodes), marks, strict=True)
    ]
    return True


def _read_znode(whole: Whole, path: str, budget: _Budget) -> bool:
    """Take one znode with what is kept beside it; return whether its data are still to come."""
    tree = whole.tree
    znode = tree.find(path)
    if znode is None:  # an index names it: that is a difference, too
        budget.take((path, None), len(path))
        return False
    marks = tree.index_marks(path, znode)
    length = len(znode.data)
    fields = fields_of(znode)
    identity = fields[-1]
    if length > CUT_BYTES:
        budget.take((path, (b"", *fields[1:]), marks, tree.used_by(identity)), 0)
        return True
    row: tuple[Any, ...] = (path, fields, marks)
    if path.startswith(QUEUE_ROOTS):
        row = (*row, _beside(whole.locks, path), tree.used_by(identity))
    elif identity:
        row = (*row, tree.used_by(identity))
    budget.take(row, length + len(path))
    return False


def _read_data(tree: Tree, path: str, cursor: Cursor, budget: _Budget) -> Cursor | None:
    """Read the ``number``-th piece of long data; None after the last one."""
    znode = tree.find(path)
    data = b"" if znode is None else znode.data
    begin = (cursor.number - 1) * CUT_BYTES
    piece = data[begin : begin + CUT_BYTES]
    budget.take((path, cursor.number, piece), len(piece))
    if begin + CUT_BYTES < len(data):
        return cursor._replace(number=cursor.number + 1)
    return None


def _beside(locks: LockTable, path: str) -> Any:
    """Return what is recorded of a queue, or of a contender and its place in the queue."""
    depth = path.count("/")
    if depth == QUEUE_DEPTH:
        queue = locks.queues.get(path)
        size = locks.sizes.get(path)
        if queue is None:
            return (size, None)
        return (size, path in locks.ungranted, *_queue_row(queue))
    if depth != CONTENDER_DEPTH:
        return None
    contender = locks.contenders.get(path)
    if contender is None:
        closing = locks.closings.get(path)
        return None if closing is None else tuple(closing)
    queue = locks.queues.get(contender.directory)
    is_queued = queue is not None and queue.has(contender.number, path)
    owned = locks.owners.get((contender.session_id or "", contender.owner), {})
    waiting = locks.waiting.get(contender.identity)
    return (tuple(contender), is_queued, path in owned, waiting)


def _queue_row(queue: Queue) -> tuple[Any, ...]:
    closings = sorted(queue.closings.items())
    return (queue.held, len(queue.contenders), len(closings), closings[:_SHOWN_CLOSINGS_MAX])


# --- tables, from the latest on


def _left(cursor: Cursor, length: int) -> int:
    return length if cursor.left < 0 else min(cursor.left, length)


def _read_table(
    cursor: Cursor,
    budget: _Budget,
    length: int,
    latest_first: Iterator[Any],
    row_of: Callable[[Any], tuple[Any, int]],
) -> Cursor | None:
    left = _left(cursor, length)
    rows = budget.rows
    items_left, bytes_left = budget.items_left, budget.bytes_left
    following: Cursor | None = None
    for item in islice(latest_first, length - left, None):
        if items_left <= 0 or bytes_left <= 0:
            following = Cursor(cursor.part, left)
            break
        row, size = row_of(item)
        rows.append(row)
        items_left -= 1
        bytes_left -= size + _ROW_BYTES
        left -= 1
    budget.items_left, budget.bytes_left = items_left, bytes_left
    return following


def _read_sessions(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    sessions = whole.sessions

    def row_of(item: Any) -> tuple[Any, int]:
        session_id, session = item
        return (
            session_id, session.session_id, session.timeout_ms, session.label, session.opened_ms,
            session.bound_index, session.opened_zxid, whole.tree.ephemeral_count(session_id),
            session.address, session.client_id, session.by, session.caller,
            sessions.shares(session.address, session.client_id), sessions.is_indexed(session),
            sessions.count_of(session.caller.identity),
        ), len(session.label) + len(session.by)  # fmt: skip

    return _read_table(cursor, budget, len(sessions), sessions.latest_first(), row_of)


def _read_ended(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    ended = whole.requests.ended

    def row_of(session_id: Any) -> tuple[Any, int]:
        return (session_id, ended[session_id]), len(session_id)

    return _read_table(cursor, budget, len(ended), reversed(ended), row_of)


def _read_released(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    released = whole.released
    return _read_table(cursor, budget, len(released), released.latest_first(), _plain)


def _plain(item: Any) -> tuple[Any, int]:
    return item, len(item[0])


def _read_history(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    history = whole.locks.history

    def row_of(ended: Any) -> tuple[Any, int]:
        contender = ended.contender
        size = len(contender.data) + len(contender.note) + len(ended.departure.reason)
        return (ended, history.is_of_queue(ended)), size

    return _read_table(cursor, budget, len(history), history.latest_first(), row_of)


# --- access rights


def _read_roles(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    access = whole.access

    def row_of(item: Any) -> tuple[Any, int]:
        name, role = item
        return (name, role_row(role)), sum([len(each.prefix) for each in role.rules])

    return _read_table(cursor, budget, access.role_count, access.roles_latest_first(), row_of)


def _read_identities(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    access = whole.access

    def row_of(item: Any) -> tuple[Any, int]:
        name, identity = item
        size = sum([len(subject) for subject, _ in identity.subjects])
        return (name, identity_row(identity), access.marks(identity)), size

    latest_first = access.identities_latest_first()
    return _read_table(cursor, budget, access.identity_count, latest_first, row_of)


# --- the exactly-once table


def _read_free(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    return _read_records(whole.requests.free, cursor, budget)


def _read_bound(whole: Whole, cursor: Cursor, budget: _Budget) -> Cursor | None:
    return _read_records(whole.requests.bound, cursor, budget)


def _read_records(
    records: RecencyMap[str, ClientRecord], cursor: Cursor, budget: _Budget
) -> Cursor | None:
    """Read clients and their outcomes; a client with many is read in several slices."""
    left = _left(cursor, len(records))
    if cursor.key:
        record = records.get(cursor.key)
        read = 0 if record is None else _read_outcomes(record, cursor.number, budget)
        if read:
            return Cursor(cursor.part, left, cursor.key, read)
    for client_id in islice(reversed(records), len(records) - left, None):
        if budget.is_spent:
            return Cursor(cursor.part, left)
        left -= 1
        record = records[client_id]
        row = (
            client_id, record.highest, record.forgotten, record.last_index,
            record.remembered_bytes, len(record.outcomes), record.owner,
        )  # fmt: skip
        budget.take(row, len(client_id))
        read = _read_outcomes(record, 0, budget)
        if read:
            return Cursor(cursor.part, left, client_id, read)
    return None


def _read_outcomes(record: ClientRecord, begin: int, budget: _Budget) -> int:
    """Read outcomes from the ``begin``-th on; return how far it came, 0: to the end."""
    rows = budget.rows
    items_left, bytes_left = budget.items_left, budget.bytes_left
    at = begin
    for number, outcome in islice(record.outcomes.items(), begin, None):
        if items_left <= 0 or bytes_left <= 0:
            break
        size = outcome_bytes(outcome)
        if size > CUT_BYTES:
            outcome, size = _cut(outcome), CUT_BYTES
        rows.append((number, outcome_row(outcome)))
        items_left -= 1
        bytes_left -= size + _ROW_BYTES
        at += 1
    else:
        at = 0
    budget.items_left, budget.bytes_left = items_left, bytes_left
    return at


def _cut(outcome: Outcome) -> Outcome:
    """Return an outcome with both ends of what it read, and how long that was."""
    result = outcome.result
    if not isinstance(result, MultiDone | GuardedDone):
        return outcome
    each_max = max(CUT_BYTES // (4 * len(result.results)), 16)
    results: list[ZnodeResult] = []
    for each in result.results:
        if type(each) is ReadDone and len(each.data) > 2 * each_max:
            data = each.data
            ends = b"%d %b %b" % (len(data), data[:each_max], data[-each_max:])
            results.append(ReadDone(each.path, ends, each.stat))
        else:
            results.append(each)
    if isinstance(result, MultiDone):
        return outcome._replace(result=MultiDone(tuple(results)))
    return outcome._replace(result=GuardedDone(result.is_then, tuple(results)))


_Read = Callable[[Whole, Cursor, _Budget], Cursor | None]

_PARTS: Final[tuple[tuple[str, _Read], ...]] = (
    ("counters and limits", _read_counters),
    ("znodes", _read_tree),
    ("sessions", _read_sessions),
    ("remembered requests of clients without a session", _read_free),
    ("remembered requests of sessions", _read_bound),
    ("ended sessions", _read_ended),
    ("released contenders", _read_released),
    ("the history of grants", _read_history),
    ("roles", _read_roles),
    ("identities", _read_identities),
)
