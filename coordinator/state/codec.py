"""Commands, outcomes and rows of a snapshot as bytes: msgpack, strict, with a format number.

1. The first element of every encoded value is its format number; another number is refused.
2. Decoding checks every shape and type. What does not fit raises ValueError, never another error:
   bytes from a client or another member are judged here, bytes of the log were judged before.
3. An operation is its tag and its fields in the order of its class. Tags are never used again for
   something else; a new field or operation is a new format number.

This is the only file of this room that knows msgpack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator.state.commands import (
    Abandon,
    Check,
    CloseSession,
    Command,
    Create,
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
from coordinator.state.shapes import (
    Family,
    Row,
    bool_field,
    bytes_field,
    described,
    exactly,
    fixed,
    int_field,
    maybe_bool_field,
    maybe_int_field,
    maybe_mode_field,
    maybe_str_field,
    mode_number,
    mode_of,
    str_field,
    tuple_of,
)

COMMAND_FORMAT = 1
OUTCOME_FORMAT = 1

_packer = msgpack.Packer(use_bin_type=True, autoreset=True)
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


# --- commands


def _encode_create(each: Create) -> Row:
    parents = None if each.parents is None else mode_number(each.parents)
    return (
        1, each.path, each.data, mode_number(each.mode), each.session_id, each.ttl_ms, parents,
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


_ZNODE_OPERATIONS = Family()
_OPERATIONS = Family()
for _family in (_ZNODE_OPERATIONS, _OPERATIONS):
    _family.add(
        1, Create, str_field, bytes_field, mode_of, maybe_str_field, maybe_int_field,
        maybe_mode_field, encode=_encode_create,
    )  # fmt: skip
    _family.add(2, SetData, str_field, bytes_field, int_field)
    _family.add(3, Delete, str_field, int_field, maybe_int_field, bool_field)
    _family.add(
        4,
        Check,
        str_field,
        maybe_bool_field,
        int_field,
        maybe_int_field,
        maybe_bool_field,
        maybe_str_field,
    )
_ZNODE_OPERATIONS.add(5, Read, str_field)
_some_operations = tuple_of(_ZNODE_OPERATIONS.decode)
_OPERATIONS.add(
    6, Multi, _some_operations,
    encode=lambda each: (6, _ZNODE_OPERATIONS.encode_all(each.operations)),
)  # fmt: skip
_OPERATIONS.add(
    7, Guarded, tuple_of(_condition), _some_operations, _some_operations, encode=_encode_guarded
)
_OPERATIONS.add(8, OpenSession, str_field, int_field, str_field)
_OPERATIONS.add(9, CloseSession, str_field)
_OPERATIONS.add(10, ExpireSession, str_field, int_field)
_OPERATIONS.add(11, Release, str_field, int_field)
_OPERATIONS.add(12, Abandon, str_field, int_field, int_field)
_OPERATIONS.add(13, Reap, str_field, int_field, int_field, int_field)


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
        int_field(row[2]),
        None if request is None else RequestId(*fixed(request, str_field, int_field, int_field)),
        str_field(row[4]),
    )


def _formatted(data: bytes, number: int, what: str, length: int) -> Row:
    row = unpack(data)
    if type(row) is not tuple or not row:
        raise ValueError(f"expected a {what}, found {described(row)}")
    if type(row[0]) is not int or row[0] != number:
        raise ValueError(f"expected a {what} of format {number}, found format {described(row[0])}")
    if len(row) != length:
        raise ValueError(f"expected a {what} of {length} elements, found {len(row)}")
    return row


# --- outcomes

_STAT_FIELDS = (
    *(int_field,) * 8, maybe_str_field, int_field, int_field, str_field, maybe_int_field,
)  # fmt: skip
_stat_values = attrgetter(*[each.name for each in fields(Stat)])


def encode_stat(stat: Stat) -> Row:
    """Return a Stat as a row of its fields."""
    values: Row = _stat_values(stat)
    return values


def decode_stat(row: Any) -> Stat:
    """Return the Stat of a row; raises ValueError."""
    return Stat(*fixed(row, *_STAT_FIELDS))


def _maybe_stat(row: Any) -> Stat | None:
    return None if row is None else decode_stat(row)


_RESULTS = Family()
_RESULTS.add(
    1, Created, str_field, decode_stat, encode=lambda each: (1, each.path, _stat_values(each.stat))
)
_RESULTS.add(
    2, DataSet, str_field, decode_stat, encode=lambda each: (2, each.path, _stat_values(each.stat))
)
_RESULTS.add(3, Deleted, str_field, int_field)
_RESULTS.add(4, Checked, str_field)
_RESULTS.add(
    5, ReadDone, str_field, bytes_field, _maybe_stat,
    encode=lambda each: (
        5, each.path, each.data, None if each.stat is None else _stat_values(each.stat),
    ),
)  # fmt: skip
_some_results = tuple_of(lambda row: _znode_result(row))
_RESULTS.add(
    6, MultiDone, _some_results, encode=lambda each: (6, _RESULTS.encode_all(each.results))
)
_RESULTS.add(
    7, GuardedDone, bool_field, _some_results,
    encode=lambda each: (7, each.is_then, _RESULTS.encode_all(each.results)),
)  # fmt: skip
_RESULTS.add(8, SessionOpened, str_field, int_field)
_RESULTS.add(9, SessionEnded, str_field, bool_field, bool_field)
_RESULTS.add(10, Released, str_field, int_field)
_RESULTS.add(11, Abandoned, maybe_str_field)
_RESULTS.add(12, Reaped, bool_field)

_OF_ZNODES = (Created, DataSet, Deleted, Checked, ReadDone)


def _znode_result(row: Any) -> Any:
    if type(row) is tuple and row and row[0] in (6, 7):
        raise ValueError("expected the result of one operation, found one of several")
    found = _RESULTS.decode(row)
    if not isinstance(found, _OF_ZNODES):
        raise ValueError(f"expected the result of a znode operation, found {described(found)}")
    return found


def _fact(value: Any) -> Any:
    if value is None or type(value) in (str, int, bool, bytes):
        return value
    raise ValueError(f"expected a plain fact, found {type(value).__name__}")


def _decode_refusal(row: Any) -> Refusal:
    code, message, facts = fixed(row, str_field, str_field, exactly(dict))
    return Refusal(code, message, {str_field(name): _fact(fact) for name, fact in facts.items()})


def _event_type(value: Any) -> EventType:
    if type(value) is int and 0 <= value < len(_EVENT_TYPES):
        return _EVENT_TYPES[value]
    raise ValueError(f"expected an event type, found {described(value)}")


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
    zxid, result, refusal, events, is_repeat = fixed(
        row, int_field, exactly(tuple, is_optional=True), exactly(tuple, is_optional=True),
        exactly(tuple), bool_field,
    )  # fmt: skip
    if (result is None) == (refusal is None):
        raise ValueError("expected a result or a refusal, found both or none")
    return Outcome(
        zxid,
        None if result is None else _RESULTS.decode(result),
        None if refusal is None else _decode_refusal(refusal),
        tuple(
            [
                Event(*fixed(each, _event_type, str_field, int_field, int_field, maybe_str_field))
                for each in events
            ]
        ),
        is_repeat,
    )


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome with its events."""
    return pack((OUTCOME_FORMAT, outcome_row(outcome)))


def decode_outcome(data: bytes) -> Outcome:
    """Decode an outcome; raises ValueError unless it is one, of this format, and nothing else."""
    return outcome_of(_formatted(data, OUTCOME_FORMAT, "outcome", 2)[1])
