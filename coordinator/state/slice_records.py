"""The clients of the exactly-once table in a slice, the latest first, and their outcomes."""

from __future__ import annotations

from typing import Any, Final

from coordinator.state.dedup import ClientRecord
from coordinator.state.recency_map import RecencyMap
from coordinator.state.slice_room import CUT_BYTES, Cursor, SliceRoom, left_of

CLIENT_ITEMS: Final = 4
"""What a client counts besides its outcomes."""


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
    client_ids = records.walk(left)
    while left > 0:
        if room.is_spent:
            records.keep_walk(left, client_ids)
            return Cursor(cursor.part, left)
        client_id = next(client_ids)
        left -= 1
        record = records[client_id]
        outcomes = record.outcomes
        count = len(outcomes)
        row = (
            client_id, record.highest, record.forgotten, record.last_index,
            record.remembered_bytes, count, record.owner,
        )  # fmt: skip
        size = sum(map(len, outcomes.values()))
        if size <= CUT_BYTES and room.holds(size, CLIENT_ITEMS + count, 1):
            room.take((row, outcomes), size, CLIENT_ITEMS + count)
            continue
        room.take(row, len(client_id), CLIENT_ITEMS)
        read = _read_outcomes(record, 0, room)
        if read is not None:
            return Cursor(cursor.part, left, client_id, read)
    return None


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
