"""Strict msgpack: primitives and tuples of them as bytes, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import msgspec

from coordinator.model.limits import BOUNDS

Row = tuple[Any, ...]
"""Primitives, and rows of them."""

_encode: Final = msgspec.msgpack.Encoder().encode


def pack(value: Any) -> bytes:
    """Encode primitives and tuples of them; raises ValueError for what cannot be encoded."""
    try:
        packed: bytes = _encode(value)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"cannot be encoded: {error}") from error
    return packed


_ROW_MAX = BOUNDS["operations_per_multi_max"][1]
"""Values in one row of what another member sends."""
VALUES_MAX: Final = 25 * _ROW_MAX
"""Values in all of it, each row counted twice: the largest multi that an operator may allow."""
_MAP_MAX: Final = 100
"""Facts of one refusal."""
_PIECE_BYTES: Final = 64 * 1024


def unpack(data: bytes) -> Any:
    """Decode exactly one value; raises ValueError for anything else."""
    try:
        return msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=True)
    except ValueError:
        raise
    except (msgpack.UnpackException, TypeError, OverflowError) as error:
        raise ValueError(f"cannot be decoded: {error}") from error


def check_in_pieces(data: bytes) -> Iterator[None]:
    """Do what ``unpack`` does, piece by piece; return nothing of it.

    Raises ValueError also for more than ``VALUES_MAX`` values: one may take a single byte, and
    costs a hundred times the work of a byte of data. Values are counted as their rows are
    completed, so rows within rows cost much before they are found to be too many."""
    if len(data) <= _PIECE_BYTES:
        return
    unpacker = msgpack.Unpacker(
        raw=False, use_list=False, strict_map_key=True, max_buffer_size=2**31 - 1, **_bounds()
    )
    try:
        for start in range(0, len(data), _PIECE_BYTES):
            unpacker.feed(data[start : start + _PIECE_BYTES])
            try:
                unpacker.unpack()
            except msgpack.OutOfData:
                yield None
            else:
                break
    except ValueError:
        raise
    except (msgpack.UnpackException, TypeError, OverflowError) as error:
        raise ValueError(f"cannot be decoded: {error}") from error


def _bounds() -> dict[str, Any]:
    values = _Values()
    return {
        "list_hook": values.of_row, "object_hook": values.of_map,
        "max_array_len": _ROW_MAX, "max_map_len": _MAP_MAX,
    }  # fmt: skip


class _Values:
    """Counts values as their rows are completed."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def of_row(self, row: Row) -> Row:
        self._count(len(row))
        return row

    def of_map(self, found: dict[Any, Any]) -> dict[Any, Any]:
        self._count(len(found))
        return found

    def _count(self, values: int) -> None:
        self._left -= values + 1
        if self._left < 0:
            raise ValueError(f"expected at most {VALUES_MAX} values, found more")


_WALL_PLACE: Final = 2
"""The place of the wall time in the row of a command."""


def stamped(command: bytes, wall_ms: int) -> bytes:
    """Return an encoded command, known to be one, with another wall time; the rest is not built."""
    unpacker = msgpack.Unpacker(max_buffer_size=2**31 - 1)
    unpacker.feed(command)
    unpacker.read_array_header()
    for _ in range(_WALL_PLACE):
        unpacker.skip()
    start = unpacker.tell()
    unpacker.skip()
    view = memoryview(command)
    return b"".join((view[:start], pack(wall_ms), view[unpacker.tell() :]))


def unpack_rows(pieces: Iterable[bytes]) -> Iterator[Row]:
    """Decode a stream of rows cut anywhere; raises ValueError if the last row is incomplete."""
    unpacker = msgpack.Unpacker(
        raw=False, use_list=False, strict_map_key=True, max_buffer_size=2**31 - 1
    )
    fed = 0
    try:
        for piece in pieces:
            unpacker.feed(piece)
            fed += len(piece)
            for row in unpacker:
                if type(row) is not tuple:
                    raise ValueError(f"expected a row, found {type(row).__name__}")
                yield row
    except (msgpack.UnpackException, TypeError, OverflowError) as error:
        raise ValueError(f"cannot be decoded: {error}") from error
    if unpacker.tell() != fed:
        raise ValueError("expected whole rows, found one cut off")


def next_row(rows: Iterator[Row]) -> Row:
    """Return the next of the rows of a snapshot; raises ValueError at their end."""
    row = next(rows, None)
    if row is None:
        raise ValueError("snapshot: expected more rows, found its end")
    return row


def row_reader(what: str, kind: Any) -> Callable[[Row], Any]:
    """Return what reads a row as a value of this type; it raises ValueError."""
    # Of a struct msgspec knows the types after the first time, of a row it would not.
    around: Any = msgspec.defstruct("Around", [("row", kind)], array_like=True, gc=False)

    def read(row: Row) -> Any:
        try:
            return msgspec.convert((row,), around, builtin_types=(bytes,)).row
        except msgspec.ValidationError as error:
            raise ValueError(f"snapshot: expected a {what}: {error}") from None

    return read


def described(value: Any) -> str:
    """Return a short description, for a message, of a value of any size and depth."""
    if type(value) in (int, bool, type(None)):
        return repr(value)
    if type(value) is str:
        return repr(value[:40])
    if type(value) is tuple and len(value) <= 16:
        return "(" + ", ".join([type(each).__name__ for each in value]) + ")"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else "another"
