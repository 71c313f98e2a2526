"""Strict msgpack: primitives and tuples of them as bytes, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator.state.shapes import Row, described

_packer = msgpack.Packer(use_bin_type=True, autoreset=True)


def pack(value: Any) -> bytes:
    """Encode primitives and tuples of them; raises ValueError for what cannot be encoded."""
    try:
        packed: bytes = _packer.pack(value)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"cannot be encoded: {error}") from error
    return packed


VALUES_MAX = 250_000
"""Values in what another member sends, each row counted twice: a multi of 10,000 operations."""
_ROW_MAX = 10_000
"""Values in one row of that."""
_MAP_MAX = 100
"""Facts of one refusal."""


def unpack(data: bytes, *, is_bounded: bool = False) -> Any:
    """Decode exactly one value; raises ValueError for anything else.

    ``is_bounded``: and for more than ``VALUES_MAX`` values. One may take a single byte, and costs
    a hundred times the work of a byte of data; what this member wrote itself was bounded then."""
    values = _Values()
    bounds = {
        "list_hook": values.of_row, "object_hook": values.of_map,
        "max_array_len": _ROW_MAX, "max_map_len": _MAP_MAX,
    }  # fmt: skip
    try:
        return msgpack.unpackb(
            data, raw=False, use_list=False, strict_map_key=True, **(bounds if is_bounded else {})
        )
    except ValueError:
        raise
    except (msgpack.UnpackException, TypeError, OverflowError) as error:
        raise ValueError(f"cannot be decoded: {error}") from error


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


def formatted(data: bytes, what: str, newest: int, *, is_bounded: bool = False) -> Row:
    """Decode a row whose first element is its format number; raises ValueError."""
    row = unpack(data, is_bounded=is_bounded)
    if type(row) is not tuple or not row:
        raise ValueError(f"expected a {what}, found {described(row)}")
    if type(row[0]) is not int or not 1 <= row[0] <= newest:
        raise ValueError(
            f"expected a {what} of format 1 to {newest}, found format {described(row[0])}"
        )
    return row
