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
    BOOL,
    BYTES,
    INT,
    MAP,
    MAYBE_BOOL,
    MAYBE_INT,
    MAYBE_ROW,
    MAYBE_STR,
    ROW,
    STR,
    Family,
    Row,
    described,
    mode_number,
    mode_of,
    shape,
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

_ZNODE_OPERATIONS = Family()
_OPERATIONS = Family()


def _encode_create(each: Create) -> Row:
    parents = None if each.parents is None else mode_number(each.parents)
    return (
        1, each.path, each.data, mode_number(each.mode), each.session_id, each.ttl_ms, parents,
    )  # fmt: skip


def _decode_create(row: Row) -> Create:
    _, path, data, mode, session_id, ttl_ms, parents = row
    return Create(
        path,
        data,
        mode_of(mode),
        session_id,
        ttl_ms,
        None if parents is None else mode_of(parents),
    )


def _encode_guarded(each: Guarded) -> Row:
    encode_all = _ZNODE_OPERATIONS.encode_all
    return (7, encode_all(each.conditions), encode_all(each.then), encode_all(each.otherwise))


def _decode_guarded(row: Row) -> Guarded:
    conditions, then, otherwise = (_ZNODE_OPERATIONS.decode_all(each) for each in row[1:])
    for condition in conditions:
        if type(condition) is not Check:
            raise ValueError(f"expected a check, found {type(condition).__name__}")
    return Guarded(conditions, then, otherwise)


for _family in (_ZNODE_OPERATIONS, _OPERATIONS):
    _family.add(
        1, Create, STR, BYTES, INT, MAYBE_STR, MAYBE_INT, MAYBE_INT,
        encode=_encode_create, decode=_decode_create,
    )  # fmt: skip
    _family.add(2, SetData, STR, BYTES, INT)
    _family.add(3, Delete, STR, INT, MAYBE_INT, BOOL)
    _family.add(4, Check, STR, MAYBE_BOOL, INT, MAYBE_INT, MAYBE_BOOL, MAYBE_STR)
_ZNODE_OPERATIONS.add(5, Read, STR)
_OPERATIONS.add(
    6, Multi, ROW,
    encode=lambda each: (6, _ZNODE_OPERATIONS.encode_all(each.operations)),
    decode=lambda row: Multi(_ZNODE_OPERATIONS.decode_all(row[1])),
)  # fmt: skip
_OPERATIONS.add(7, Guarded, ROW, ROW, ROW, encode=_encode_guarded, decode=_decode_guarded)
_OPERATIONS.add(8, OpenSession, STR, INT, STR)
_OPERATIONS.add(9, CloseSession, STR)
_OPERATIONS.add(10, ExpireSession, STR, INT)
_OPERATIONS.add(11, Release, STR, INT)
_OPERATIONS.add(12, Abandon, STR, INT, INT)
_OPERATIONS.add(13, Reap, STR, INT, INT, INT)

_command_shape = shape("command", INT, ROW, INT, MAYBE_ROW, STR)
_request_shape = shape("request id", STR, INT, INT)


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
    row = _formatted(data, COMMAND_FORMAT, "command")
    _, operation, wall_ms, request, identity = _command_shape(row)
    return Command(
        _OPERATIONS.decode(operation),
        wall_ms,
        None if request is None else RequestId(*_request_shape(request)),
        identity,
    )


def _formatted(data: bytes, number: int, what: str) -> Row:
    row = unpack(data)
    if type(row) is not tuple or not row:
        raise ValueError(f"expected a {what}, found {described(row)}")
    if type(row[0]) is not int or row[0] != number:
        raise ValueError(f"expected a {what} of format {number}, found format {described(row[0])}")
    return row


# --- outcomes

_stat_values = attrgetter(*[each.name for each in fields(Stat)])
_stat_shape = shape(
    "Stat", *(INT,) * 8, MAYBE_STR, INT, INT, STR, MAYBE_INT,
)  # fmt: skip


def encode_stat(stat: Stat) -> Row:
    """Return a Stat as a row of its fields."""
    values: Row = _stat_values(stat)
    return values


def decode_stat(row: Any) -> Stat:
    """Return the Stat of a row; raises ValueError."""
    return Stat(*_stat_shape(row))


_ZNODE_RESULTS = Family()
_RESULTS = Family()
for _family in (_ZNODE_RESULTS, _RESULTS):
    _family.add(
        1, Created, STR, ROW,
        encode=lambda each: (1, each.path, _stat_values(each.stat)),
        decode=lambda row: Created(row[1], decode_stat(row[2])),
    )  # fmt: skip
    _family.add(
        2, DataSet, STR, ROW,
        encode=lambda each: (2, each.path, _stat_values(each.stat)),
        decode=lambda row: DataSet(row[1], decode_stat(row[2])),
    )  # fmt: skip
    _family.add(3, Deleted, STR, INT)
    _family.add(4, Checked, STR)
_ZNODE_RESULTS.add(
    5, ReadDone, STR, BYTES, MAYBE_ROW,
    encode=lambda each: (
        5, each.path, each.data, None if each.stat is None else _stat_values(each.stat),
    ),
    decode=lambda row: ReadDone(
        row[1], row[2], None if row[3] is None else decode_stat(row[3])
    ),
)  # fmt: skip
_RESULTS.add(
    6, MultiDone, ROW,
    encode=lambda each: (6, _ZNODE_RESULTS.encode_all(each.results)),
    decode=lambda row: MultiDone(_ZNODE_RESULTS.decode_all(row[1])),
)  # fmt: skip
_RESULTS.add(
    7, GuardedDone, BOOL, ROW,
    encode=lambda each: (7, each.is_then, _ZNODE_RESULTS.encode_all(each.results)),
    decode=lambda row: GuardedDone(row[1], _ZNODE_RESULTS.decode_all(row[2])),
)  # fmt: skip
_RESULTS.add(8, SessionOpened, STR, INT)
_RESULTS.add(9, SessionEnded, STR, BOOL, BOOL)
_RESULTS.add(10, Released, STR, INT)
_RESULTS.add(11, Abandoned, MAYBE_STR)
_RESULTS.add(12, Reaped, BOOL)

_outcome_shape = shape("outcome", INT, MAYBE_ROW, MAYBE_ROW, ROW, BOOL)
_refusal_shape = shape("refusal", STR, STR, MAP)
_event_shape = shape("event", INT, STR, INT, INT, MAYBE_STR)
_FACTS = (str, int, bool, bytes, type(None))


def _decode_refusal(row: Row) -> Refusal:
    code, message, facts = _refusal_shape(row)
    for name, fact in facts.items():
        if type(name) is not str or type(fact) not in _FACTS:
            raise ValueError(f"expected a plain fact, found {described(fact)}")
    return Refusal(code, message, facts)


def _decode_event(row: Any) -> Event:
    number, path, version, czxid, owner = _event_shape(row)
    if not 0 <= number < len(_EVENT_TYPES):
        raise ValueError(f"expected an event type, found {number}")
    return Event(_EVENT_TYPES[number], path, version, czxid, owner)


def _encode_event(event: Event) -> Row:
    return (
        _EVENT_NUMBER[event.type], event.path, event.version, event.czxid, event.ephemeral_owner,
    )  # fmt: skip


def outcome_row(outcome: Outcome) -> Row:
    """Return an outcome as a row, without a format number."""
    refusal = outcome.refusal
    return (
        outcome.zxid,
        None if outcome.result is None else _RESULTS.encode(outcome.result),
        None if refusal is None else (refusal.code, refusal.message, dict(refusal.fields)),
        tuple([_encode_event(each) for each in outcome.events]),
        outcome.is_repeat,
    )


def outcome_of(row: Any) -> Outcome:
    """Return the outcome of a row; raises ValueError."""
    zxid, result, refusal, events, is_repeat = _outcome_shape(row)
    if (result is None) == (refusal is None):
        raise ValueError("expected a result or a refusal, found both or none")
    return Outcome(
        zxid,
        None if result is None else _RESULTS.decode(result),
        None if refusal is None else _decode_refusal(refusal),
        tuple([_decode_event(each) for each in events]),
        is_repeat,
    )


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome with its events."""
    return pack((OUTCOME_FORMAT, outcome_row(outcome)))


_formatted_outcome_shape = shape("outcome", INT, ROW)


def decode_outcome(data: bytes) -> Outcome:
    """Decode an outcome; raises ValueError unless it is one, of this format, and nothing else."""
    _, row = _formatted_outcome_shape(_formatted(data, OUTCOME_FORMAT, "outcome"))
    return outcome_of(row)
