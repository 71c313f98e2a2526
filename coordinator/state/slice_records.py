"""The clients of the exactly-once table in a slice, the latest first, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from coordinator.state.dedup import ClientRecord, outcome_bytes
from coordinator.state.outcome_codec import outcome_row
from coordinator.state.outcomes import (
    Abandoned,
    Checked,
    Created,
    DataSet,
    Deleted,
    Entered,
    GuardedDone,
    MultiDone,
    Outcome,
    ReadDone,
    Released,
    SessionEnded,
    SessionOpened,
    ZnodeResult,
)
from coordinator.state.recency_map import RecencyMap
from coordinator.state.slice_room import CUT_BYTES, Cursor, SliceRoom, encoded, left_of


def read_records(
    records: RecencyMap[str, ClientRecord], cursor: Cursor, room: SliceRoom
) -> Cursor | None:
    """Read clients and their outcomes; a client with many is read in several slices."""
    left = left_of(cursor, len(records))
    if cursor.key:
        record = records.get(cursor.key)
        read = 0 if record is None else _read_outcomes(record, cursor.number, room)
        if read:
            return Cursor(cursor.part, left, cursor.key, read)
    for client_id in _oldest(records, left):
        if room.is_spent:
            return Cursor(cursor.part, left)
        left -= 1
        record = records[client_id]
        row = (
            client_id, record.highest, record.forgotten, record.last_index,
            record.remembered_bytes, len(record.outcomes), record.owner,
        )  # fmt: skip
        if _took_outcomes(row, record, room):
            continue
        room.take(row, len(client_id), 1)
        read = _read_outcomes(record, 0, room)
        if read:
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


def _took_outcomes(row: tuple[Any, ...], record: ClientRecord, room: SliceRoom) -> bool:
    """Take a record with all its outcomes, unless they are long or not plain results."""
    outcomes = record.outcomes
    count = len(outcomes)
    if count >= room.items_left or record.remembered_bytes > CUT_BYTES:
        return False
    kinds = [_KINDS.get(type(each.result)) for each in outcomes.values()]
    if None in kinds:
        return False
    packed = encoded((row, kinds, outcomes))
    room.take((packed,), len(packed), 1 + count, 1 + count)
    return True


_KINDS: Final[dict[Any, int]] = {
    each: number
    for number, each in enumerate(
        (
            Created, DataSet, Deleted, Checked, MultiDone, GuardedDone, SessionOpened, SessionEnded,
            Released, Abandoned, Entered,
        )
    )
}  # fmt: skip
"""The results that are encoded as they are, by numbers: some have fields of the same names."""


def _read_outcomes(record: ClientRecord, begin: int, room: SliceRoom) -> int:
    """Read outcomes from the ``begin``-th on; return how far it came, 0: to the end."""
    at = begin
    for number, outcome in islice(record.outcomes.items(), begin, None):
        if room.is_spent:
            return at
        size = outcome_bytes(outcome)
        if size > CUT_BYTES:
            outcome, size = _cut(outcome), CUT_BYTES
        room.take((number, outcome_row(outcome)), size, 1)
        at += 1
    return 0


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
        return replace(outcome, result=MultiDone(tuple(results)))
    return replace(outcome, result=GuardedDone(result.is_then, tuple(results)))
