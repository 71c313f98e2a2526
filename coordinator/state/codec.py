"""Commands, outcomes and rows of a snapshot as bytes: msgpack, strict, with a format number.

1. The first element of every encoded value is its format number; another number is refused.
2. Decoding checks every shape and type. What does not fit raises ValueError, never another error:
   bytes from a client or another member are judged here, bytes of the log were judged before.
3. An operation is its tag and its fields in the order of its class. Tags are never used again for
   something else; a new field or operation is a new format number.

This is the only file of this room that knows msgpack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types

from coordinator.state.commands import (
    Abandon,
    Check,
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    ExpireSession,
    Guarded,
    Multi,
    OpenSession,
    Read,
    Reap,
    Release,
    RequestId,
    SetData,
)
from coordinator.state.events import Event, EventType
from coordinator.state.outcomes import (
    Abandoned,
    Checked,
    Created,
    DataSet,
    Deleted,
    GuardedDone,
    MultiDone,
    Outcome,
    ReadDone,
    Reaped,
    Refusal,
    Released,
    SessionEnded,
    SessionOpened,
    Stat,
)

COMMAND_FORMAT = 1
OUTCOME_FORMAT = 1

Row = tuple[Any, ...]
Field = Callable[[Any], Any]

_packer = msgpack.Packer(use_bin_type=True, autoreset=True)
MODES = tuple(CreateMode)
_MODE_NUMBER = {mode: number for number, mode in enumerate(MODES)}
_EVENT_TYPES = tuple(EventType)
_EVENT_NUMBER = {kind: number for number, kind in enumerate(_EVENT_TYPES)}


def pack(value: Any) -> bytes:
    """Encode primitives and tuples of them; raises ValueError for what cannot be encoded."""
    try:
        packed: bytes = _packer.pack(value)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"cannot be encoded: {error}") from error
    return packed


def unpack(data: bytes) -> Any:
    """Decode one value; raises ValueError for anything else than exactly one."""
    try:
        return msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=True)
    except ValueError:
        raise
    except (msgpack.UnpackException, TypeError, OverflowError) as error:
        raise ValueError(f"cannot be decoded: {error}") from error


def unpack_rows(pieces: Iterable[bytes]) -> Iterator[Row]:
    """Decode a stream of rows cut anywhere; raises ValueError when it does not end with a row."""
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


# --- fields


def _exactly(kind: type, *, is_optional: bool = False) -> Field:
    def check(value: Any) -> Any:
        if type(value) is kind or (is_optional and value is None):
            return value
        raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")

    return check


_int, _str, _bytes, _bool = (_exactly(kind) for kind in (int, str, bytes, bool))
_maybe_int, _maybe_str, _maybe_bool = (
    _exactly(kind, is_optional=True) for kind in (int, str, bool)
)


def mode_of(value: Any) -> CreateMode:
    """Decode a create mode."""
    if type(value) is int and 0 <= value < len(MODES):
        return MODES[value]
    raise ValueError(f"expected a create mode, found {value!r:.40}")


def mode_number(mode: CreateMode) -> int:
    """Encode a create mode."""
    return _MODE_NUMBER[mode]


def _maybe_mode(value: Any) -> CreateMode | None:
    return None if value is None else mode_of(value)


def _tuple_of(decode: Field) -> Field:
    def check(value: Any) -> tuple[Any, ...]:
        return tuple([decode(each) for each in _exactly(tuple)(value)])

    return check


def _fixed(row: Any, *decoders: Field) -> list[Any]:
    """Decode a row with exactly these fields."""
    if type(row) is not tuple or len(row) != len(decoders):
        raise ValueError(f"expected a row of {len(decoders)}, found {row!r:.80}")
    return [decode(value) for decode, value in zip(decoders, row, strict=True)]


class _Family:
    """Some classes with a tag each: how to write one as a row, and a row as one of them."""

    def __init__(self) -> None:
        self._encoders: dict[type, Callable[[Any], Row]] = {}
        self._decoders: dict[int, tuple[type, tuple[Field, ...]]] = {}

    def add(
        self, tag: int, kind: type, *decoders: Field, encode: Callable[[Any], Row] | None = None
    ) -> None:
        names = [each.name for each in fields(kind)]
        assert tag not in self._decoders, "a tag means one thing"
        assert len(names) == len(decoders), f"{kind.__name__}: each field has its decoder"
        self._decoders[tag] = (kind, decoders)
        self._encoders[kind] = encode or _encoder(tag, names)

    def encode(self, value: Any) -> Row:
        return self._encoders[type(value)](value)

    def encode_all(self, values: Iterable[Any]) -> Row:
        return tuple([self._encoders[type(value)](value) for value in values])

    def decode(self, row: Any) -> Any:
        if type(row) is not tuple or not row:
            raise ValueError(f"expected a tagged row, found {row!r:.80}")
        entry = self._decoders.get(row[0]) if type(row[0]) is int else None
        if entry is None:
            raise ValueError(f"expected a known tag, found {row[0]!r:.40}")
        kind, decoders = entry
        return kind(*_fixed(row[1:], *decoders))


def _encoder(tag: int, names: list[str]) -> Callable[[Any], Row]:
    if len(names) == 1:
        single = attrgetter(names[0])
        return lambda value: (tag, single(value))
    several = attrgetter(*names)
    return lambda value: (tag, *several(value))


# --- commands


def _encode_create(each: Create) -> Row:
    parents = None if each.parents is None else _MODE_NUMBER[each.parents]
    return (
        1, each.path, each.data, _MODE_NUMBER[each.mode], each.session_id, each.ttl_ms, parents,
    )  # fmt: skip


def _encode_guarded(each: Guarded) -> Row:
    return (
        7,
        _ZNODE_OPERATIONS.encode_all(each.conditions),
        _ZNODE_OPERATIONS.encode_all(each.then),
        _ZNODE_OPERATIONS.encode_all(each.otherwise),
    )


def _condition(row: Any) -> Check:
    found = _ZNODE_OPERATIONS.decode(row)
    if type(found) is not Check:
        raise ValueError(f"expected a check as condition, found {type(found).__name__}")
    return found


_ZNODE_OPERATIONS = _Family()
_OPERATIONS = _Family()
for _family in (_ZNODE_OPERATIONS, _OPERATIONS):
    _family.add(
        1, Create, _str, _bytes, mode_of, _maybe_str, _maybe_int, _maybe_mode,
        encode=_encode_create,
    )  # fmt: skip
    _family.add(2, SetData, _str, _bytes, _int)
    _family.add(3, Delete, _str, _int, _maybe_int, _bool)
    _family.add(4, Check, _str, _maybe_bool, _int, _maybe_int, _maybe_bool, _maybe_str)
_ZNODE_OPERATIONS.add(5, Read, _str)
_some_operations = _tuple_of(_ZNODE_OPERATIONS.decode)
_OPERATIONS.add(
    6, Multi, _some_operations,
    encode=lambda each: (6, _ZNODE_OPERATIONS.encode_all(each.operations)),
)  # fmt: skip
_OPERATIONS.add(
    7, Guarded, _tuple_of(_condition), _some_operations, _some_operations, encode=_encode_guarded
)
_OPERATIONS.add(8, OpenSession, _str, _int, _str)
_OPERATIONS.add(9, CloseSession, _str)
_OPERATIONS.add(10, ExpireSession, _str, _int)
_OPERATIONS.add(11, Release, _str, _int)
_OPERATIONS.add(12, Abandon, _str, _int, _int)
_OPERATIONS.add(13, Reap, _str, _int, _int, _int)


def encode_command(command: Command) -> bytes:
    """Encode a command; raises ValueError for text or numbers that have no encoding."""
    request = command.request
    return pack(
        (
            COMMAND_FORMAT,
            _OPERATIONS.encode(command.operation),
            command.wall_ms,
            None if request is None else (request.client_id, request.number, request.floor_index),
            command.identity,
        )
    )


def decode_command(data: bytes) -> Command:
    """Decode a command; raises ValueError unless it is one, of this format, and nothing else."""
    row = _formatted(data, COMMAND_FORMAT, "command", 5)
    request = row[3]
    return Command(
        _OPERATIONS.decode(row[1]),
        _int(row[2]),
        None if request is None else RequestId(*_fixed(request, _str, _int, _int)),
        _str(row[4]),
    )


def _formatted(data: bytes, number: int, what: str, length: int) -> Row:
    row = unpack(data)
    if type(row) is not tuple or not row:
        raise ValueError(f"expected a {what}, found {row!r:.80}")
    if type(row[0]) is not int or row[0] != number:
        raise ValueError(f"expected a {what} of format {number}, found format {row[0]!r:.40}")
    if len(row) != length:
        raise ValueError(f"expected a {what} of {length} elements, found {len(row)}")
    return row


# --- outcomes

_STAT_FIELDS = (
    _int, _int, _int, _int, _int, _int, _int, _int, _maybe_str, _int, _int, _str, _maybe_int,
)  # fmt: skip
_stat_values = attrgetter(*[each.name for each in fields(Stat)])


def encode_stat(stat: Stat) -> Row:
    """Return a Stat as a row of its fields."""
    values: Row = _stat_values(stat)
    return values


def decode_stat(row: Any) -> Stat:
    """Return the Stat of a row; raises ValueError."""
    return Stat(*_fixed(row, *_STAT_FIELDS))


def _maybe_stat(row: Any) -> Stat | None:
    return None if row is None else decode_stat(row)


_RESULTS = _Family()
_RESULTS.add(
    1, Created, _str, decode_stat, encode=lambda each: (1, each.path, _stat_values(each.stat))
)
_RESULTS.add(
    2, DataSet, _str, decode_stat, encode=lambda each: (2, each.path, _stat_values(each.stat))
)
_RESULTS.add(3, Deleted, _str, _int)
_RESULTS.add(4, Checked, _str)
_RESULTS.add(
    5, ReadDone, _str, _bytes, _maybe_stat,
    encode=lambda each: (
        5, each.path, each.data, None if each.stat is None else _stat_values(each.stat),
    ),
)  # fmt: skip
_some_results = _tuple_of(lambda row: _znode_result(row))
_RESULTS.add(
    6, MultiDone, _some_results, encode=lambda each: (6, _RESULTS.encode_all(each.results))
)
_RESULTS.add(
    7, GuardedDone, _bool, _some_results,
    encode=lambda each: (7, each.is_then, _RESULTS.encode_all(each.results)),
)  # fmt: skip
_RESULTS.add(8, SessionOpened, _str, _int)
_RESULTS.add(9, SessionEnded, _str, _bool, _bool)
_RESULTS.add(10, Released, _str, _int)
_RESULTS.add(11, Abandoned, _maybe_str)
_RESULTS.add(12, Reaped, _bool)

_OF_ZNODES = (Created, DataSet, Deleted, Checked, ReadDone)


def _znode_result(row: Any) -> Any:
    if type(row) is tuple and row and row[0] in (6, 7):
        raise ValueError("expected the result of one operation, found one of several")
    found = _RESULTS.decode(row)
    if not isinstance(found, _OF_ZNODES):
        raise ValueError(f"expected the result of a znode operation, found {found!r:.40}")
    return found


def _fact(value: Any) -> Any:
    if value is None or type(value) in (str, int, bool, bytes):
        return value
    raise ValueError(f"expected a plain fact, found {type(value).__name__}")


def _decode_refusal(row: Any) -> Refusal:
    code, message, facts = _fixed(row, _str, _str, _exactly(dict))
    return Refusal(code, message, {_str(name): _fact(fact) for name, fact in facts.items()})


def _event_type(value: Any) -> EventType:
    if type(value) is int and 0 <= value < len(_EVENT_TYPES):
        return _EVENT_TYPES[value]
    raise ValueError(f"expected an event type, found {value!r:.40}")


def outcome_row(outcome: Outcome) -> Row:
    """Return an outcome as a row, without a format number."""
    refusal = outcome.refusal
    return (
        outcome.zxid,
        None if outcome.result is None else _RESULTS.encode(outcome.result),
        None if refusal is None else (refusal.code, refusal.message, dict(refusal.fields)),
        tuple(
            [
                (_EVENT_NUMBER[each.type], each.path, each.version, each.czxid,
                 each.ephemeral_owner)
                for each in outcome.events
            ]
        ),
        outcome.is_repeat,
    )  # fmt: skip


def outcome_of(row: Any) -> Outcome:
    """Return the outcome of a row; raises ValueError."""
    zxid, result, refusal, events, is_repeat = _fixed(
        row, _int, _exactly(tuple, is_optional=True), _exactly(tuple, is_optional=True),
        _exactly(tuple), _bool,
    )  # fmt: skip
    if (result is None) == (refusal is None):
        raise ValueError("expected a result or a refusal, found both or none")
    return Outcome(
        zxid,
        None if result is None else _RESULTS.decode(result),
        None if refusal is None else _decode_refusal(refusal),
        tuple([Event(*_fixed(each, _event_type, _str, _int, _int, _maybe_str)) for each in events]),
        is_repeat,
    )


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome with its events."""
    return pack((OUTCOME_FORMAT, outcome_row(outcome)))


def decode_outcome(data: bytes) -> Outcome:
    """Decode an outcome; raises ValueError unless it is one, of this format, and nothing else."""
    return outcome_of(_formatted(data, OUTCOME_FORMAT, "outcome", 2)[1])
