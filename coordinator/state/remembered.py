"""A remembered outcome, kept as bytes: it is encoded once, when it comes about.

So a hundred thousand of them take a third of the memory, a snapshot writes them as they are, and
members compare them by hashing. The bytes are in every snapshot, so their format is that of the
snapshot: what the outcome counts against ``remembered_bytes_max`` (``SIZE_BYTES``), and a
``Remembered`` in msgpack. Equal outcomes have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder

from coordinator.state.outcomes import (
    Entered,
    GuardedDone,
    MultiDone,
    Outcome,
    ReadDone,
    Refusal,
    Remembered,
)

SIZE_BYTES: Final = 4
_OUTCOME_BYTES: Final = 512
_RESULT_BYTES: Final = 256
_encoded: Final = Encoder().encode
_decoded: Final = Decoder(Remembered).decode


def kept_of(outcome: Outcome) -> bytes:
    """Return the bytes that are kept of an outcome: all but its events and grants."""
    result = outcome.result
    size = _SIZES.get(type(result))
    counted = _PLAIN if size is None else _size_bytes(_OUTCOME_BYTES + size(result))
    return counted + _encoded((outcome.zxid, result, outcome.refusal))


def recalled(kept: bytes) -> Outcome:
    """Return the outcome again, as one that is repeated."""
    found = _decoded(memoryview(kept)[SIZE_BYTES:])
    refusal = found.refusal
    if refusal is not None:
        refusal = Refusal(refusal.code, refusal.message, _facts(refusal.fields))
    return Outcome(found.zxid, found.result, refusal, (), True)


def remembered_bytes_of(kept: bytes) -> int:
    """Return what it counts against ``remembered_bytes_max``: a fixed estimate of objects."""
    return int.from_bytes(kept[:SIZE_BYTES], "big")


def total_bytes_of(kept: Iterable[bytes]) -> int:
    """Return what these count together."""
    return sum([remembered_bytes_of(each) for each in kept])


def check_kept(kept: bytes) -> None:
    """Check bytes from outside; raises ValueError unless an outcome is kept like that."""
    try:
        found = recalled(kept)
    except (MsgspecError, TypeError) as error:
        raise ValueError(f"expected a remembered outcome: {error}") from None
    if (found.result is None) == (found.refusal is None):
        raise ValueError("expected a result or a refusal, found both or none")
    if kept_of(found) != kept:
        raise ValueError("expected a remembered outcome as it is written, found it otherwise")


def _facts(fields: Any) -> dict[str, Any]:
    """Return the facts of a refusal with rows as they were; a row has no rows in it."""
    return {name: tuple(fact) if type(fact) is list else fact for name, fact in fields.items()}


def _size_bytes(size: int) -> bytes:
    return size.to_bytes(SIZE_BYTES, "big")


_PLAIN: Final = _size_bytes(_OUTCOME_BYTES + _RESULT_BYTES)


def _results_bytes(done: MultiDone | GuardedDone) -> int:
    total = 0
    for each in done.results:
        total += _RESULT_BYTES + len(each.path)
        if type(each) is ReadDone:
            total += len(each.data)
    return total


def _entered_bytes(entered: Entered) -> int:
    paths_bytes = sum([len(each.path) for each in entered.contenders])
    return _RESULT_BYTES * max(len(entered.contenders), 1) + paths_bytes


_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    MultiDone: _results_bytes,
    GuardedDone: _results_bytes,
    Entered: _entered_bytes,
}
"""What results count that hold others; each of the rest counts the same."""
