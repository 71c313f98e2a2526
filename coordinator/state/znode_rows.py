"""The znodes of a snapshot as rows, and back.

A row of its own has all fields of a znode. Most of a state are znodes that were never changed and
have no children, and those that one request created came at one time: they share a row, which is
shorter by half and read in a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from coordinator.state.commands import CreateMode
from coordinator.state.large_map import LargeMap
from coordinator.state.packing import Row, described, next_row, row_reader
from coordinator.state.znode import ChildChanges, DataChanges, Tenure, ZnodeRecord
from coordinator.state.znode_changes import fields_of, tenure_of

_RUN_VALUES: Final = 3
RUN_BYTES: Final = 16 * 1024
"""The paths and data in one row of several znodes, unless a single one has more."""
_MODES: Final[dict[str, CreateMode]] = {each.value: each for each in CreateMode}

_row: Any = tuple
_read: Final = row_reader(
    "znode", _row[(str, bytes, *(int,) * 9, CreateMode, str | None, int | None, str)]
)
_read_run: Final = row_reader("row of znodes that came at one time", _row[int, int, tuple])


def row_of(item: tuple[str, ZnodeRecord]) -> Row:
    """Return the row of one znode."""
    return (item[0], *fields_of(item[1]))


def rows_of(znodes: Iterable[tuple[str, ZnodeRecord]]) -> Iterator[Row]:
    """Yield the rows of znodes, in their order.

    A shared one is (czxid, ctime_ms, (path, data, path, data, ...))."""
    czxid: Any = 0
    ctime_ms: Any = 0
    run: list[str | bytes] = []
    left = 0
    for item in znodes:
        path, znode = item
        at: Any = znode
        is_plain = (
            at.writes is None and at.family is None and at.tenure is None and not at.next_sequence
        )
        if run and not (is_plain and left > 0 and at.czxid == czxid and at.ctime_ms == ctime_ms):
            yield (czxid, ctime_ms, tuple(run))
            run = []
        if not is_plain:
            yield row_of(item)
            continue
        if not run:
            czxid, ctime_ms, left = at.czxid, at.ctime_ms, RUN_BYTES
        run.append(path)
        run.append(at.data)
        left -= len(path) + len(at.data)
    if run:
        yield (czxid, ctime_ms, tuple(run))


def znodes_of(rows: Iterator[Row], count: int) -> LargeMap[str, ZnodeRecord]:
    """Return the znodes by path. Numbers and tenures that are as before are the same objects."""
    znodes = LargeMap[str, ZnodeRecord]()
    found: Row = ()
    tenure: Tenure | None = None
    czxid: Any = 0
    ctime_ms: Any = 0
    left = count
    while left > 0:
        row = next_row(rows)
        if len(row) == _RUN_VALUES:
            left -= _add_run(znodes, row, left)
            continue
        left -= 1
        if not _is_znode(row):
            _read(row)
        if row[2] != czxid:
            czxid = row[2]
        if row[5] != ctime_ms:
            ctime_ms = row[5]
        if row[11:] != found:
            found = row[11:]
            tenure = tenure_of(_MODES[row[11]], row[12], row[13], row[14])
        is_changed = row[7] or row[3] != czxid or row[6] != ctime_ms
        is_parent = row[8] or row[9] or row[4] != czxid
        znodes.add(row[0], ZnodeRecord(
            row[1], czxid, ctime_ms, row[10],
            DataChanges(row[3], row[6], row[7]) if is_changed else None,
            ChildChanges(row[4], row[8], row[9]) if is_parent else None,
            tenure,
        ))  # fmt: skip
    if len(znodes) != count:
        raise ValueError("snapshot: a path is there twice")
    return znodes


def _add_run(znodes: LargeMap[str, ZnodeRecord], row: Row, most: int) -> int:
    """Add the znodes of a shared row; return how many they are."""
    _read_run(row)
    czxid: Any = row[0]
    ctime_ms: Any = row[1]
    run: Row = row[2]
    count = len(run) // 2
    if not 0 < count <= most or len(run) % 2:
        raise ValueError(f"snapshot: expected up to {most} znodes, found {len(run)} values")
    for at in range(0, len(run), 2):
        path, data = run[at], run[at + 1]
        if type(path) is not str or type(data) is not bytes:
            raise ValueError(
                f"snapshot: expected a path and data, found {described(path)}, {described(data)}"
            )
        znodes.add(path, ZnodeRecord(data, czxid, ctime_ms, 0))
    return count


def _is_znode(row: Row) -> bool:
    """Whether ``_read`` takes a row: compiled, this takes a fifth of the time."""
    owner, ttl_ms = row[12:14] if len(row) == 15 else (0, "")
    return (
        (owner is None or type(owner) is str)
        and (ttl_ms is None or type(ttl_ms) is int)
        and type(row[0]) is str
        and type(row[1]) is bytes
        and type(row[2]) is type(row[3]) is type(row[4]) is type(row[5]) is type(row[6]) is int
        and type(row[7]) is type(row[8]) is type(row[9]) is type(row[10]) is int
        and type(row[11]) is type(row[14]) is str
        and row[11] in _MODES
    )
