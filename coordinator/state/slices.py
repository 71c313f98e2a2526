"""Digests of bounded slices of the state, by which members compare their states.

``slice_at`` digests the state in memory from a cursor on and returns where the next slice begins.
Members that have applied the same entries get the same digest from the same cursor. All slices
together cover the whole state, but not at one moment.

1. The digest reads memory, not the history of commands. So it finds a value that was corrupted, and
   an index (names of children, ephemerals, idle znodes, queues) that does not match its source.
2. A slice is bounded by ``items_max`` and ``bytes_max`` and exceeds them by at most one item. An
   item of each part counts by what it costs. Long data and long outcomes are read in pieces of
   ``CUT_BYTES``.
3. A cursor is a place in an order that all members share; its item may have been deleted. Tables
   ordered by use are read from the latest item on: an item used meanwhile moves to the part that
   was read already, and no other item moves past the cursor.
4. Each slice has the counters, too: an entry that came to something else on one member, such as
   another zxid or size, is seen in the next slice, whatever part that reads.
5. What exists only in one process (generations of captures, undo lists) is left out.
6. Znodes and grants are encoded as the objects they are, not as rows made of them, which would
   cost three times as much. So equal ones are made in one way only, by an entry as by a snapshot.
   Remembered outcomes are bytes already (``remembered``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import replace

from coordinator.state.access.table import AccessTable
from coordinator.state.dedup import ReleasedTable, RequestTable
from coordinator.state.limits import LimitsRecord
from coordinator.state.locks.contender import CONTENDER_DEPTH, QUEUE_DEPTH, QUEUE_ROOTS
from coordinator.state.locks.queue import Queue
from coordinator.state.locks.queues import LockTable
from coordinator.state.paths import shown
from coordinator.state.recency_map import RecencyMap
from coordinator.state.sessions import SessionTable
from coordinator.state.slice_records import CLIENT_ITEMS, read_records
from coordinator.state.slice_room import (
    CUT_BYTES,
    PIECE_BYTES,
    Cursor,
    SliceRoom,
    digest_of,
    left_of,
)
from coordinator.state.tree import Tree
from coordinator.state.znode import ZnodeRecord

ITEMS_MAX: Final = 8_000
"""What the items of a slice may count."""
_ZNODE_ITEMS: Final = 4
_ROW_ITEMS: Final = 6
_CONTENDER_ITEMS: Final = 12
_GRANT_ITEMS: Final = 16
"""What each of these counts; a remembered outcome counts 1, its client ``CLIENT_ITEMS``. So a slice
takes a millisecond or two, compiled."""
BYTES_MAX: Final = 512 * 1024
DIGEST_BYTES_MAX: Final = 2_048
_REMEMBERED_BYTES: Final = 768
"""What a remembered outcome counts there, unless it has results of several operations."""
_SHOWN_PIECES_MAX: Final = 3
_SHOWN_CLOSINGS_MAX: Final = 100


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


def slice_at(
    whole: Whole, cursor: Cursor, *, items_max: int = ITEMS_MAX, bytes_max: int = BYTES_MAX
) -> Slice:
    """Digest the slice that begins at ``cursor``; raises ValueError if there is no such place."""
    if not 0 <= cursor.part < len(_PARTS) or cursor.left < -1 or cursor.number < 0:
        raise ValueError(f"expected a place in the state, found {cursor}")
    room = SliceRoom(items_max, bytes_max)
    pieces: list[bytes] = []
    described: list[str] = []
    following: Cursor | None = cursor
    if cursor.part:
        pieces.append(digest_of(_counters(whole)))
        described.append(_PARTS[0][0])
    while following is not None and not room.is_spent:
        part = following.part
        name, read = _PARTS[part]
        room.begin_part()
        found = read(whole, following, room)
        for piece in room.pieces:
            pieces.append(digest_of(piece))
            described.append(_described(name, piece[0][0], piece[-1][0]))
        if found is not None:
            following = found
        else:
            following = Cursor(part + 1) if part + 1 < len(_PARTS) else None
    pieces.append(digest_of(following))
    return Slice(b"".join(pieces), following, (*described, ""))


def slice_count(whole: Whole) -> int:
    """Return how many slices this state has, about: what is known without going through it."""
    tree, requests, locks = whole.tree, whole.requests, whole.locks
    queued = len(locks.contenders) + len(locks.queues) + len(locks.closings)
    rows = len(whole.sessions) + len(requests.ended) + len(whole.released)
    items = _ZNODE_ITEMS * len(tree) + (_CONTENDER_ITEMS - _ZNODE_ITEMS) * queued
    items += _ROW_ITEMS * rows + _GRANT_ITEMS * len(locks.history)
    items += CLIENT_ITEMS * len(requests) + requests.remembered_bytes // _REMEMBERED_BYTES
    return items // ITEMS_MAX + tree.data_bytes // BYTES_MAX


def _described(name: str, first: Any, last: Any) -> str:
    """Describe a piece; znodes are named, by the path or the run of paths that a row begins with,
    since they can be read."""
    if name != "znodes":
        return name
    begin = shown(first if type(first) is str else first[0])
    end = shown(last if type(last) is str else last[-1])
    return f"znodes {begin} to {end}" if begin != end else f"znode {begin}"


# --- counters and limits


def _read_counters(whole: Whole, _cursor: Cursor, room: SliceRoom) -> Cursor | None:
    limits, requests, sessions = whole.limits, whole.requests, whole.sessions
    room.take(
        (
            _counters(whole), limits.version, limits.changed_by, limits.changed_ms, limits.rules,
            limits.level, limits.limits.items(), sessions.limits.items(), requests.limits.items(),
            whole.released.count_max, tuple(sessions.leaving.items()),
            tuple(sessions.revoked.items()),
        ),
        0, _ROW_ITEMS,
    )  # fmt: skip
    return None


def _counters(whole: Whole) -> tuple[Any, ...]:
    """Return what is counted: a few microseconds, at any size."""
    sessions, locks = whole.sessions, whole.locks
    return (
        whole.zxid, whole.applied_index, whole.tree.counts(), len(sessions), sessions.counts(),
        whole.requests.counts(), len(whole.released), locks.counts(), locks.history.counts(),
        whole.access.counts(),
    )  # fmt: skip


# --- the tree, with what is kept beside its znodes


def _read_tree(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    tree, key = whole.tree, cursor.key
    if cursor.number:
        following = _read_data(tree, key, cursor, room)
        if following is not None:
            return following
    for run in tree.runs_behind(key):
        if _took_all(tree, run, room):
            key = run[-1]
            continue
        for path in run:
            if room.is_spent:
                return Cursor(cursor.part, -1, key)
            key = path
            if _read_znode(whole, path, room):
                return Cursor(cursor.part, -1, path, 1)
    return None


def _took_all(tree: Tree, run: list[str], room: SliceRoom) -> bool:
    """Take a run of plain znodes as ``_read_znode`` would, at once, if there is room for all."""
    if run[0].startswith(QUEUE_ROOTS):
        return False
    found = tree.find_all(run)
    size, is_plain = len("".join(run)), True
    for each in found:
        if each is None:  # an index names one that is not there
            return False
        at: Any = each
        size += len(at.data)
        if at.tenure is not None:
            is_plain = False
    count = len(run)
    items = _ZNODE_ITEMS * count
    if size > CUT_BYTES or not room.holds(size, items, count):
        return False
    znodes = cast("list[ZnodeRecord]", found)
    used: list[Any] = []
    if not is_plain:
        used = [tree.used_by(znode.identity) for znode in znodes if znode.tenure is not None]
    marks = tree.marks_of(run, znodes, has_tenures=not is_plain)
    room.take((run, znodes, marks, used), size, items, count)
    return True


def _read_znode(whole: Whole, path: str, room: SliceRoom) -> bool:
    """Take one znode with what is kept beside it; return whether its data are still to come."""
    tree = whole.tree
    znode = tree.find(path)
    if znode is None:  # an index names it: that is a difference, too
        room.take((path, None), len(path), _ZNODE_ITEMS)
        return False
    marks = tree.index_marks(path, znode)
    used = tree.used_by(znode.identity)
    length = len(znode.data)
    if length > CUT_BYTES:
        room.take((path, replace(znode, data=b""), marks, used), len(path), _ZNODE_ITEMS)
        return True
    beside, items = None, _ZNODE_ITEMS
    if path.startswith(QUEUE_ROOTS):
        beside, items = _beside(whole.locks, path), _CONTENDER_ITEMS
    room.take((path, znode, marks, used, beside), length + len(path), items)
    return False


def _read_data(tree: Tree, path: str, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    """Read the ``number``-th piece of long data; None after the last one."""
    znode = tree.find(path)
    data = b"" if znode is None else znode.data
    begin = (cursor.number - 1) * CUT_BYTES
    piece = data[begin : begin + CUT_BYTES]
    room.take((path, cursor.number, piece), len(piece), _ZNODE_ITEMS)
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
    owned = locks.owners.get((contender.session_id, contender.owner), {})
    waiting = locks.waiting.get(contender.identity)
    return (contender, is_queued, path in owned, waiting)


def _queue_row(queue: Queue) -> tuple[Any, ...]:
    closings = sorted(queue.closings.items())
    return (queue.held, len(queue.contenders), len(closings), closings[:_SHOWN_CLOSINGS_MAX])


# --- tables, from the latest on

_RowOf = Callable[[Any], tuple[Any, int]]


def _read_table(
    cursor: Cursor,
    room: SliceRoom,
    length: int,
    latest_first: Iterator[Any],
    row_of: _RowOf,
    items: int = _ROW_ITEMS,
) -> Cursor | None:
    left = left_of(cursor, length)
    for item in islice(latest_first, length - left, None):
        if room.is_spent:
            return Cursor(cursor.part, left)
        row, size = row_of(item)
        room.take(row, size, items)
        left -= 1
    return None


def _read_recent(
    cursor: Cursor, room: SliceRoom, recent: RecencyMap[Any, Any], row_of: _RowOf
) -> Cursor | None:
    left = left_of(cursor, len(recent))
    keys = recent.walk(left)
    while left > 0:
        if room.is_spent:
            recent.keep_walk(left, keys)
            return Cursor(cursor.part, left)
        row, size = row_of(next(keys))
        room.take(row, size, _ROW_ITEMS)
        left -= 1
    return None


def _read_sessions(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
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

    return _read_table(cursor, room, len(sessions), sessions.latest_first(), row_of)


def _read_ended(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    ended = whole.requests.ended

    def row_of(session_id: Any) -> tuple[Any, int]:
        return (session_id, ended[session_id]), len(session_id)

    return _read_recent(cursor, room, ended, row_of)


def _read_released(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    return _read_recent(cursor, room, whole.released.recent, _plain)


def _plain(item: Any) -> tuple[Any, int]:
    return item, len(item[0])


def _read_history(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    history = whole.locks.history

    def row_of(ended: Any) -> tuple[Any, int]:
        contender = ended.contender
        size = len(contender.data) + len(contender.note) + len(ended.departure.reason)
        return (ended, history.is_of_queue(ended)), size

    latest_first = history.latest_first()
    return _read_table(cursor, room, len(history), latest_first, row_of, _GRANT_ITEMS)


# --- the exactly-once table


def _read_free(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    return read_records(whole.requests.free, cursor, room)


def _read_bound(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    return read_records(whole.requests.bound, cursor, room)


# --- access rights


def _read_roles(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    access = whole.access

    def row_of(item: Any) -> tuple[Any, int]:
        name, role = item
        return (name, role.row()), sum([len(each.prefix) for each in role.rules])

    return _read_table(cursor, room, access.role_count, access.roles_latest_first(), row_of)


def _read_identities(whole: Whole, cursor: Cursor, room: SliceRoom) -> Cursor | None:
    access = whole.access

    def row_of(item: Any) -> tuple[Any, int]:
        name, identity = item
        size = sum([len(subject) for subject, _ in identity.subjects])
        return (name, identity.row(), access.marks(identity)), size

    latest_first = access.identities_latest_first()
    return _read_table(cursor, room, access.identity_count, latest_first, row_of)


_Read = Callable[[Whole, Cursor, SliceRoom], Cursor | None]

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
