"""A remembered outcome, kept as bytes: it is encoded once, when it comes about.

So a hundred thousand of them take a third of the memory, a snapshot writes them as they are, and
members compare them by hashing. What was read is no longer shared with its znode, but in them
again; all of it counts against ``remembered_bytes_max``. The bytes are in every snapshot, so their
format is that of the snapshot: what the outcome counts (``SIZE_BYTES``), and a ``Remembered`` in
msgpack. Equal outcomes have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder

from coordinator.state.outcomes import (
    BranchKept,
    Checked,
    Created,
    CreatedKept,
    DataSet,
    DataSetKept,
    Deleted,
    DeletedKept,
    Entered,
    EnteredKept,
    GuardedDone,
    ManyKept,
    MultiDone,
    Outcome,
    ReadDone,
    ReadDoneKept,
    Refusal,
    Remembered,
    Stat,
    StatKept,
    ZnodeKept,
    ZnodeResult,
)
from coordinator.state.packing import Row, described

SIZE_BYTES: Final = 4
ROW_BYTES: Final = 16 * 1024
"""The outcomes in one row of a snapshot, unless a single one has more."""
_OUTCOME_BYTES: Final = 512
_RESULT_BYTES: Final = 256
_encoded: Final = Encoder().encode
_decoded: Final = Decoder(Remembered).decode


def kept_of(outcome: Outcome) -> bytes:
    """Return the bytes that are kept of an outcome: all but its events and grants."""
    result: Any = outcome.result
    kind = type(result)
    size = _SIZES.get(kind)
    if size is None:
        return _PLAIN + _encoded((outcome.zxid, result, outcome.refusal))
    counted = _size_bytes(_OUTCOME_BYTES + size(result))
    if kind is MultiDone:
        result = ManyKept(_shortened(result.results))
    elif kind is GuardedDone:
        result = BranchKept(result.is_then, _shortened(result.results))
    return counted + _encoded((outcome.zxid, result, None))


def recalled(kept: bytes) -> Outcome:
    """Return the outcome again, as one that is repeated."""
    return _outcome_of(_decoded(memoryview(kept)[SIZE_BYTES:]))


def received(kept: bytes) -> Outcome:
    """As ``recalled``, of bytes from outside; raises ValueError as ``check_kept``."""
    return _outcome_of(_checked(kept))


def _outcome_of(found: Remembered) -> Outcome:
    result: Any = found.result
    whole = _WHOLE.get(type(result))
    if whole is not None:
        result = whole(result)
    kept = found.refusal
    refusal = None if kept is None else Refusal(kept.code, kept.message, kept.fields)
    return Outcome(found.zxid, result, refusal, (), True)


def _shortened(results: tuple[ZnodeResult, ...]) -> tuple[Any, ...]:
    """Leave out the Stat of what was created with the same one as the result before it: a request
    may create a thousand."""
    found: list[str | ZnodeResult] = []
    stat: Stat | None = None
    for each in results:
        if type(each) is not Created:
            stat = None
        elif each.stat == stat:
            found.append(each.path)
            continue
        else:
            stat = each.stat
        found.append(each)
    return tuple(found)


def _lengthened(results: tuple[str | ZnodeKept, ...]) -> tuple[ZnodeResult, ...]:
    """Return what ``_shortened`` was given; raises ValueError for what it does not return."""
    found: list[ZnodeResult] = []
    stat: Stat | None = None
    for each in results:
        if isinstance(each, str):
            if stat is None:
                raise ValueError("expected a Stat before a path")
            found.append(Created(each, stat))
        elif type(each) is CreatedKept:
            stat = _stat_of(each.stat)
            found.append(Created(each.path, stat))
        else:
            stat = None
            found.append(each if type(each) is Checked else _WHOLE[type(each)](each))
    return tuple(found)


def _read_done_of(kept: ReadDoneKept) -> ReadDone:
    stat = kept.stat
    return ReadDone(kept.path, kept.data, None if stat is None else _stat_of(stat))


def _entered_of(kept: EnteredKept) -> Entered:
    contenders = tuple([Created(each.path, _stat_of(each.stat)) for each in kept.contenders])
    return Entered(contenders, kept.is_granted, kept.position, kept.is_entered)


_stat_of: Final[Callable[[Any], Stat]] = Stat._make
_WHOLE: Final[dict[type, Callable[[Any], Any]]] = {
    CreatedKept: lambda kept: Created(kept.path, _stat_of(kept.stat)),
    DataSetKept: lambda kept: DataSet(kept.path, _stat_of(kept.stat)),
    DeletedKept: lambda kept: Deleted(kept.path, kept.deleted_count),
    ReadDoneKept: _read_done_of,
    EnteredKept: _entered_of,
    ManyKept: lambda kept: MultiDone(_lengthened(kept.results)),
    BranchKept: lambda kept: GuardedDone(kept.is_then, _lengthened(kept.results)),
}
"""What results are made of that are kept as something else."""


def remembered_bytes_of(kept: bytes) -> int:
    """Return what it counts against ``remembered_bytes_max``: a fixed estimate of objects."""
    counted = kept[:SIZE_BYTES]
    return _PLAIN_BYTES if counted == _PLAIN else int.from_bytes(counted, "big")


def total_bytes_of(kept: Iterable[bytes]) -> int:
    """Return what these count together."""
    return sum([remembered_bytes_of(each) for each in kept])


def check_kept(kept: bytes) -> None:
    """Check bytes from outside; raises ValueError unless an outcome is kept like that.

    It does what ``kept_of`` does of what ``recalled`` returns, without making all of that."""
    _checked(kept)


def _checked(kept: bytes) -> Remembered:
    try:
        found = _decoded(memoryview(kept)[SIZE_BYTES:])
        result, refusal = found.result, found.refusal
        size = _KEPT_SIZES.get(type(result))
        counted = _PLAIN if size is None else _size_bytes(_OUTCOME_BYTES + size(result))
        again = counted + _encoded(found)
    except (MsgspecError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a remembered outcome: {error}") from None
    if (result is None) == (refusal is None):
        raise ValueError("expected a result or a refusal, found both or none")
    if again != kept:
        raise ValueError("expected a remembered outcome as it is written, found it otherwise")
    return found


def rows_of_kept(outcomes: Mapping[int, bytes]) -> Iterator[Row]:
    """Yield the rows of a client's outcomes in a snapshot: (number, outcome, number, ...)."""
    run: list[int | bytes] = []
    left = ROW_BYTES
    for number, kept in outcomes.items():
        run.append(number)
        run.append(kept)
        left -= len(kept)
        if left <= 0:
            yield tuple(run)
            run, left = [], ROW_BYTES
    if run:
        yield tuple(run)


def add_kept(outcomes: dict[int, bytes], row: Row, most: int) -> None:
    """Add the outcomes of such a row; raises ValueError if they are none, or more than ``most``."""
    before = len(outcomes)
    for at in range(0, len(row) - 1, 2):
        number, kept = row[at], row[at + 1]
        if type(number) is not int or type(kept) is not bytes:
            raise ValueError(
                f"snapshot: expected a number and an outcome, found {described(number)},"
                f" {described(kept)}"
            )
        check_kept(kept)
        outcomes[number] = kept
    if 2 * (len(outcomes) - before) != len(row) or not before < len(outcomes) <= most:
        raise ValueError(f"snapshot: expected up to {most} outcomes, found {len(row)} values")


def _size_bytes(size: int) -> bytes:
    return size.to_bytes(SIZE_BYTES, "big")


_PLAIN_BYTES: Final = _OUTCOME_BYTES + _RESULT_BYTES
_PLAIN: Final = _size_bytes(_PLAIN_BYTES)
"""What the outcome of most requests counts."""


def _results_bytes(done: MultiDone | GuardedDone) -> int:
    total = 0
    for each in done.results:
        total += _RESULT_BYTES + len(each.path)
        if type(each) is ReadDone:
            total += len(each.data)
    return total


def _entered_bytes(entered: Entered | EnteredKept) -> int:
    paths_bytes = sum([len(each.path) for each in entered.contenders])
    return _RESULT_BYTES * max(len(entered.contenders), 1) + paths_bytes


_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    MultiDone: _results_bytes,
    GuardedDone: _results_bytes,
    Entered: _entered_bytes,
}
"""What results count that hold others; each of the rest counts the same."""


def _many_bytes(kept: ManyKept | BranchKept) -> int:
    """Return what ``_results_bytes`` does; ValueError unless ``_shortened`` returns these."""
    total = 0
    stat: StatKept | None = None
    for each in kept.results:
        if isinstance(each, str):
            if stat is None:
                raise ValueError("expected a Stat before a path")
            total += _RESULT_BYTES + len(each)
            continue
        if type(each) is CreatedKept:
            if each.stat == stat:
                raise ValueError("expected a path alone, found the Stat before it again")
            stat = each.stat
        else:
            stat = None
            if type(each) is ReadDoneKept:
                total += len(each.data)
        total += _RESULT_BYTES + len(each.path)
    return total


_KEPT_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    ManyKept: _many_bytes,
    BranchKept: _many_bytes,
    EnteredKept: _entered_bytes,
}
"""The same of results as they are kept."""
