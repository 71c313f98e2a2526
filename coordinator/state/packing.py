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


def unpack(data: bytes) -> Any:
    """Decode exactly one value; raises ValueError for anything else."""
    try:
        return msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=True)
    except ValueError:
        raise
    except (msgpack.UnpackException, TypeError, OverflowError) as error:
        raise ValueError(f"cannot be decoded: {error}") from error


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


def formatted(data: bytes, what: str, newest: int) -> Row:
    """Decode a row whose first element is its format number; raises ValueError."""
    row = unpack(data)
    if type(row) is not tuple or not row:
        raise ValueError(f"expected a {what}, found {described(row)}")
    if type(row[0]) is not int or not 1 <= row[0] <= newest:
        raise ValueError(
            f"expected a {what} of format 1 to {newest}, found format {described(row[0])}"
        )
    return row
