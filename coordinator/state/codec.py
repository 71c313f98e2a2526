"""The codec of commands: bytes with a format number, strictly decoded.

1. The first element of every encoded value is its format number; another number is refused.
2. Decoding checks every shape and type, and raises only ValueError. Bytes from a client or another
   member are checked here; bytes of the log were checked before they were proposed.
3. An operation is its tag and its fields in the order of its class. A tag is never reused; a new
   field or operation needs a new format number.

The operations of most entries are decoded at once with their command (``_AT_ONCE``), to the same
values; whatever that refuses is decoded as all others are.

``outcome_codec`` keeps rules 1 to 3 for outcomes. ``packing`` packs values; it is the only file of
this room that uses msgpack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from coordinator.state.access.encoding import add_operations, caller_of
from coordinator.state.commands import (
    NOBODY,
    Abandon,
    Caller,
    Check,
    CloseSession,
    Command,
    Create,
    Delete,
    Enter,
    ExpireSession,
    FinishGrants,
    FinishSession,
    Guarded,
    HeldCondition,
    Multi,
    OpenSession,
    Put,
    Read,
    Reap,
    Release,
    RequestId,
    SetData,
    SetLimits,
)
from coordinator.state.locks import encoding as queues
from coordinator.state.packing import formatted, pack, rows_of_type
from coordinator.state.shapes import (
    BOOL,
    BYTES,
    INT,
    MAYBE_BOOL,
    MAYBE_INT,
    MAYBE_ROW,
    MAYBE_STR,
    ROW,
    STR,
    Family,
    Row,
    kind_number,
    kind_of_number,
    limit_values_of,
    mode_number,
    mode_of,
    rules_of,
    shape,
    texts_of,
)

COMMAND_FORMAT: Final = 1

_ZNODE_OPERATIONS: Final = Family()
_OPERATIONS: Final = Family()


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


def _encode_multi(each: Multi) -> Row:
    return (6, _ZNODE_OPERATIONS.encode_all(each.operations), each.by, each.reason)


def _decode_multi(row: Row) -> Multi:
    return Multi(_ZNODE_OPERATIONS.decode_all(row[1]), row[2], row[3])


def _encode_guarded(each: Guarded) -> Row:
    encode_all = _ZNODE_OPERATIONS.encode_all
    return (7, encode_all(each.conditions), encode_all(each.then), encode_all(each.otherwise))


def _decode_guarded(row: Row) -> Guarded:
    conditions, then, otherwise = [_ZNODE_OPERATIONS.decode_all(each) for each in row[1:]]
    for condition in conditions:
        if type(condition) is not Check:
            raise ValueError(f"expected a check, found {type(condition).__name__}")
    return Guarded(conditions, then, otherwise)


def _encode_enter(each: Enter) -> Row:
    opening = each.opening
    return (
        14, each.directories, each.prefix, kind_number(each.kind), each.session_id, each.data,
        each.owner, each.is_try, each.lock_delay_ms, each.max_hold_ms, each.size,
        None if opening is None else _OPERATIONS.encode(opening)[1:],
    )  # fmt: skip


def _decode_enter(row: Row) -> Enter:
    (
        _, directories, prefix, kind, session_id, data, owner, is_try, lock_delay_ms, max_hold_ms,
        size, opening,
    ) = row  # fmt: skip
    return tuple.__new__(
        Enter,
        (
            texts_of(directories), prefix, kind_of_number(kind), session_id, data, owner, is_try,
            lock_delay_ms, max_hold_ms, size,
            None if opening is None else OpenSession(*_opening_shape(opening)),
        ),
    )  # fmt: skip


_opening_shape: Final = shape("session", STR, INT, STR, STR, STR, STR)


def _encode_set_limits(each: SetLimits) -> Row:
    return (21, each.values, each.expected_version, each.rules, each.by)


def _decode_set_limits(row: Row) -> SetLimits:
    _, values, expected_version, rules, by = row
    return SetLimits(limit_values_of(values), expected_version, rules_of(rules), by)


for _family in (_ZNODE_OPERATIONS, _OPERATIONS):
    _family.add(
        1, Create, STR, BYTES, INT, MAYBE_STR, MAYBE_INT, MAYBE_INT,
        encode=_encode_create, decode=_decode_create,
    )  # fmt: skip
    _family.add(2, SetData, STR, BYTES, INT)
    _family.add(3, Delete, STR, INT, MAYBE_INT, BOOL)
    _family.add(4, Check, STR, MAYBE_BOOL, INT, MAYBE_INT, MAYBE_BOOL, MAYBE_STR)
_ZNODE_OPERATIONS.add(5, Read, STR)
_OPERATIONS.add(6, Multi, ROW, STR, STR, encode=_encode_multi, decode=_decode_multi)
_OPERATIONS.add(7, Guarded, ROW, ROW, ROW, encode=_encode_guarded, decode=_decode_guarded)
_OPERATIONS.add(8, OpenSession, STR, INT, STR, STR, STR, STR)
_OPERATIONS.add(9, CloseSession, STR, STR, INT)
_OPERATIONS.add(10, ExpireSession, STR, INT, INT, INT)
_OPERATIONS.add(11, Release, STR, INT, BOOL)
_OPERATIONS.add(12, Abandon, STR, INT, INT, STR, BOOL)
_OPERATIONS.add(13, Reap, STR, INT, INT, INT)
_OPERATIONS.add(
    14, Enter, ROW, STR, INT, STR, BYTES, STR, BOOL, INT, INT, MAYBE_INT, MAYBE_ROW,
    encode=_encode_enter, decode=_decode_enter,
)  # fmt: skip
queues.add_operations(_OPERATIONS)
_OPERATIONS.add(
    21, SetLimits, ROW, INT, ROW, STR, encode=_encode_set_limits, decode=_decode_set_limits
)
_OPERATIONS.add(22, FinishSession, STR, INT)
_OPERATIONS.add(23, FinishGrants, encode=lambda _: (23,))
add_operations(_OPERATIONS)
_OPERATIONS.add(39, Put, STR, BYTES)

_command_shape: Final = shape("command", INT, ROW, INT, MAYBE_ROW, MAYBE_ROW, ROW)
_request_shape: Final = shape("request id", STR, INT, INT)
_if_held_shape: Final = shape("condition", STR, INT)


def encode_command(command: Command) -> bytes:
    """Encode a command; raises ValueError for text or numbers that have no encoding."""
    operation, caller, if_held = command.operation, command.caller, command.if_held
    if type(operation) is SetData:
        row: Row = (2, operation.path, operation.data, operation.expected_version)
    else:
        row = _OPERATIONS.encode(operation)
    return pack(
        (
            COMMAND_FORMAT,
            row,
            command.wall_ms,
            command.request,
            None if caller is NOBODY or caller == NOBODY else caller,
            tuple([(each.directory, each.fencing_token) for each in if_held]) if if_held else (),
        )
    )


def _at_once(tag: Any, *fields: Any) -> Callable[[bytes], Row]:
    """Return what decodes a command whose operation has this tag and these fields."""
    row: Any = tuple
    one: Any = Literal
    request, caller = row[str, int, int] | None, row[str, str, int] | None
    conditions = row[row[str, int], ...]
    operation = row[(one[tag], *fields)]
    return rows_of_type(row[int, operation, int, request, caller, conditions])


_AT_ONCE: Final[dict[int, tuple[Callable[[bytes], Row], Callable[[Row], Any]]]] = {
    1: (
        _at_once(1, str, bytes, int, str | None, int | None, int | None), _decode_create,
    ),
    2: (_at_once(2, str, bytes, int), lambda row: SetData(row[1], row[2], row[3])),
    3: (
        _at_once(3, str, int, int | None, bool),
        lambda row: Delete(row[1], row[2], row[3], row[4]),
    ),
    11: (_at_once(11, str, int, bool), lambda row: Release(row[1], row[2], row[3])),
    14: (
        _at_once(
            14, tuple[str, ...], str, int, str, bytes, str, bool, int, int, int | None,
            tuple[str, int, str, str, str, str] | None,
        ),
        _decode_enter,
    ),
}  # fmt: skip
"""By the tag of an operation: what decodes its command at once, and what builds it of its row."""
_HEAD_BYTES: Final = 4
_COMMAND_ROW: Final = 0x96
"""The first byte of a row of six."""


def _decoded_at_once(data: bytes) -> Command | None:
    """Return a command whose operation is one of these, None for another, or if it is none."""
    if len(data) < _HEAD_BYTES or data[0] != _COMMAND_ROW or data[1] != COMMAND_FORMAT:
        return None
    known = _AT_ONCE.get(data[3])
    if known is None:
        return None
    decode, build = known
    try:
        row = decode(data)
        operation = build(row[1])
    except ValueError:
        return None
    request, caller, conditions = row[3], row[4], row[5]
    if_held: tuple[HeldCondition, ...] = ()
    if conditions:
        if_held = tuple([HeldCondition(each[0], each[1]) for each in conditions])
    return Command(
        operation,
        row[2],
        None if request is None else RequestId(request[0], request[1], request[2]),
        NOBODY if caller is None else Caller(caller[0], caller[1], caller[2]),
        if_held,
    )


def decode_command(data: bytes, *, is_bounded: bool = False) -> Command:
    """Decode a command; raises ValueError unless it is one, of a known format, and nothing else."""
    if not is_bounded:
        known = _decoded_at_once(data)
        if known is not None:
            return known
    row = formatted(data, "command", COMMAND_FORMAT, is_bounded=is_bounded)
    _, operation, wall_ms, request, caller, conditions = _command_shape(row)
    return Command(
        _OPERATIONS.decode(operation),
        wall_ms,
        None if request is None else RequestId(*_request_shape(request)),
        NOBODY if caller is None else caller_of(caller),
        tuple([HeldCondition(*_if_held_shape(each)) for each in conditions]),
    )
