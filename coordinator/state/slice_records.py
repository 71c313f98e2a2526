"""The clients of the exactly-once table in a slice, the latest first, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from coordinator.state.dedup import ClientRecord
from coordinator.state.recency_map import RecencyMap
from coordinator.state.slice_room import CUT_BYTES, Cursor, SliceRoom, left_of


def read_records(
    records: RecencyMap[str, ClientRecord], cursor: Cursor, room: SliceRoom
) -> Cursor | None:
    """Read clients and their outcomes; a client with many or long ones is read in several slices,
    in each of them some pieces of at most ``CUT_BYTES``."""
    left = left_of(cursor, len(records))
    if cursor.key:
        record = records.get(cursor.key)
        read = None if record is None else _read_outcomes(record, cursor.number, room)
        if read is not None:
            return Cursor(cursor.part, left, cursor.key, read)
    for client_id in _oldest(records, left):
        if room.is_spent:
            return Cursor(cursor.part, left)
        left -= 1
        record = records[client_id]
        outcomes = record.outcomes
        count = len(outcomes)
        row = (
            client_id, record.highest, record.forgotten, record.last_index,
            record.remembered_bytes, count, record.owner,
        )  # fmt: skip
        size = sum([len(kept) for kept in outcomes.values()])
        if size <= CUT_BYTES and room.holds(size, 1 + count, 1):
            room.take((row, outcomes), size, 1 + count)
            continue
        room.take(row, len(client_id), 1)
        read = _read_outcomes(record, 0, room)
        if read is not None:
            return Cursor(cursor.part, left, client_id, read)
    return None


def _oldest(records: RecencyMap[str, ClientRecord], count: int) -> Iterable[str]:
    """Return the keys of the ``count`` oldest records, the latest of them first.

    To go through an ordered table costs as much as to read it: it is begun at the nearer end."""
    passed = len(records) - count
    if passed <= count:
        return islice(reversed(records), passed, None)
    keys = list(islice(records, count))
    keys.reverse()
    return keys


def _read_outcomes(record: ClientRecord, begin: int, room: SliceRoom) -> int | None:
    """Read the pieces of the outcomes from the ``begin``-th on; return how far it came, None: to
    the end."""
    at = 0
    for number, kept in record.outcomes.items():
        count = len(kept) // CUT_BYTES + 1
        for piece in range(max(begin - at, 0), count):
            if room.is_spent:
                return at + piece
            cut: Any = kept[piece * CUT_BYTES : (piece + 1) * CUT_BYTES]
            room.take((number, piece, cut), len(cut), 1)
        at += count
    return None
