"""The codec of commands: bytes with a format number, strictly decoded.

1. The first element of every encoded value is its format number; another number is refused.
2. Decoding checks every shape and type, and raises only ValueError. Bytes from a client or another
   member are checked here; bytes of the log were checked before they were proposed.
3. An operation is its tag and its fields in the order of its class. A tag is never reused; a new
   field or operation needs a new format number.
4. Older formats are still read, from logs, snapshots and older members. Format 8 extends no hold
   (``locks.encoding`` has what is asked of queues). Format 7 has no quotas
   (``Command.is_former``). Format 6 has no access rights: only the name of a caller. In format 5 no
   attempt opens its session. Format 4 has no limits and ends sessions in one command; format 3 has
   no ``spares_…``; format 2 has no ``failure`` and no ``directory`` in Abandon; format 1 has no
   queues: no tag above 13, no ``silent_ms``, ``if_held`` and ``granted``.

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

COMMAND_FORMAT: Final = 9
_QUEUES_OF_EPHEMERALS_FORMAT: Final = 5
_QUOTAS_FORMAT: Final = 8

_ZNODE_OPERATIONS: Final = Family()
_OPERATIONS: Final = Family()
_OPERATIONS_8: Final = Family()
_OPERATIONS_7: Final = Family()
_OPERATIONS_6: Final = Family()
_OPERATIONS_5: Final = Family()
_OPERATIONS_4: Final = Family()
_OPERATIONS_3: Final = Family()
_OPERATIONS_2: Final = Family()
_OPERATIONS_1: Final = Family()
_EVERY_FAMILY: Final = (
    _OPERATIONS, _OPERATIONS_8, _OPERATIONS_7, _OPERATIONS_6, _OPERATIONS_5, _OPERATIONS_4,
    _OPERATIONS_3, _OPERATIONS_2, _OPERATIONS_1,
)  # fmt: skip
_FAMILIES: Final = dict(zip((9, 8, 7, 6, 5, 4, 3, 2, 1), _EVERY_FAMILY, strict=True))


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
    """One that ends nobody's grant for a reason is written as before it could say so."""
    rows = _ZNODE_OPERATIONS.encode_all(each.operations)
    return (38, rows, each.by, each.reason) if each.by or each.reason else (6, rows)


def _decode_multi(row: Row) -> Multi:
    return Multi(_ZNODE_OPERATIONS.decode_all(row[1]), *row[2:])


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
    """An attempt of an open session is written as before attempts could open one."""
    opening = each.opening
    plain = (
        each.directories, each.prefix, kind_number(each.kind), each.session_id, each.data,
        each.owner, each.is_try, each.lock_delay_ms, each.max_hold_ms, each.size,
    )  # fmt: skip
    return (14, *plain) if opening is None else (25, *plain, _encode_open_session(opening)[1:])


def _decode_enter(row: Row) -> Enter:
    return _entering(row, None)


def _decode_opening_enter(row: Row) -> Enter:
    opening = row[-1]
    check = _opening_shape if len(opening) > 3 else _plain_opening_shape
    return _entering(row[:-1], OpenSession(*check(opening)))


def _entering(row: Row, opening: OpenSession | None) -> Enter:
    (
        _, directories, prefix, kind, session_id, data, owner, is_try, lock_delay_ms, max_hold_ms,
        size,
    ) = row  # fmt: skip
    return tuple.__new__(
        Enter,
        (
            texts_of(directories), prefix, kind_of_number(kind), session_id, data, owner, is_try,
            lock_delay_ms, max_hold_ms, size, opening,
        ),
    )  # fmt: skip


_plain_opening_shape: Final = shape("session", STR, INT, STR)
_opening_shape: Final = shape("session", STR, INT, STR, STR, STR, STR)


def _encode_open_session(each: OpenSession) -> Row:
    """Sessions without an origin are written as before sessions had one."""
    plain = (each.session_id, each.timeout_ms, each.label)
    origin = (each.address, each.client_id, each.by)
    return (24, *plain, *origin) if any(origin) else (8, *plain)


def _encode_set_limits(each: SetLimits) -> Row:
    return (21, each.values, each.expected_version, each.rules, each.by)


def _decode_set_limits(row: Row) -> SetLimits:
    _, values, expected_version, rules, by = row
    return SetLimits(limit_values_of(values), expected_version, rules_of(rules), by)


for _family in (_ZNODE_OPERATIONS, *_EVERY_FAMILY):
    _family.add(
        1, Create, STR, BYTES, INT, MAYBE_STR, MAYBE_INT, MAYBE_INT,
        encode=_encode_create, decode=_decode_create,
    )  # fmt: skip
    _family.add(2, SetData, STR, BYTES, INT)
    _family.add(3, Delete, STR, INT, MAYBE_INT, BOOL)
    _family.add(4, Check, STR, MAYBE_BOOL, INT, MAYBE_INT, MAYBE_BOOL, MAYBE_STR)
_ZNODE_OPERATIONS.add(5, Read, STR)
_OPERATIONS.add(38, Multi, ROW, STR, STR, encode=_encode_multi, decode=_decode_multi)
for _family in _EVERY_FAMILY:
    _family.add_former(6, Multi, ROW, decode=_decode_multi)
    _family.add(7, Guarded, ROW, ROW, ROW, encode=_encode_guarded, decode=_decode_guarded)
    _family.add_former(8, OpenSession, STR, INT, STR)
    _family.add(13, Reap, STR, INT, INT, INT)
_OPERATIONS_1.add_former(9, CloseSession, STR)
_OPERATIONS_2.add_former(9, CloseSession, STR)
for _family in (_OPERATIONS_4, _OPERATIONS_3):
    _family.add_former(9, CloseSession, STR, STR)
for _family in _EVERY_FAMILY[:5]:
    _family.add(9, CloseSession, STR, STR, INT)
    _family.add(10, ExpireSession, STR, INT, INT, INT)
    _family.add(
        21, SetLimits, ROW, INT, ROW, STR, encode=_encode_set_limits, decode=_decode_set_limits
    )
    _family.add(22, FinishSession, STR, INT)
    _family.add(23, FinishGrants, encode=lambda _: (23,))
    _family.add(24, OpenSession, STR, INT, STR, STR, STR, STR, encode=_encode_open_session)
for _family in (_OPERATIONS_3, _OPERATIONS_2, _OPERATIONS_1):
    _family.add_former(11, Release, STR, INT)
for _family in _EVERY_FAMILY[:6]:
    _family.add(11, Release, STR, INT, BOOL)
    _family.add(12, Abandon, STR, INT, INT, STR, BOOL)
_OPERATIONS_1.add_former(12, Abandon, STR, INT, INT)
_OPERATIONS_2.add_former(12, Abandon, STR, INT, INT)
_OPERATIONS_3.add_former(12, Abandon, STR, INT, INT, STR)
_OPERATIONS_1.add_former(10, ExpireSession, STR, INT)
for _family in (_OPERATIONS_4, _OPERATIONS_3, _OPERATIONS_2):
    _family.add_former(10, ExpireSession, STR, INT, INT)
for _family in _EVERY_FAMILY[:-1]:
    _family.add_former(
        14, Enter, ROW, STR, INT, STR, BYTES, STR, BOOL, INT, INT, MAYBE_INT, decode=_decode_enter
    )
    queues.add_operations(_family, is_former=_family is not _OPERATIONS)
for _family in _EVERY_FAMILY[:4]:
    _family.add(
        25, Enter, ROW, STR, INT, STR, BYTES, STR, BOOL, INT, INT, MAYBE_INT, ROW,
        encode=_encode_enter, decode=_decode_opening_enter,
    )  # fmt: skip
add_operations(_OPERATIONS)
_OPERATIONS.add(39, Put, STR, BYTES)
add_operations(_OPERATIONS_8)
add_operations(_OPERATIONS_7, is_former=True)

_command_shape: Final = shape("command", INT, ROW, INT, MAYBE_ROW, MAYBE_ROW, ROW)
_command_6_shape: Final = shape("command", INT, ROW, INT, MAYBE_ROW, STR, ROW)
_command_1_shape: Final = shape("command", INT, ROW, INT, MAYBE_ROW, STR)
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
            14, tuple[str, ...], str, int, str, bytes, str, bool, int, int, int | None
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
    if_held: tuple[HeldCondition, ...] = ()
    conditions: Row = ()
    if row[0] >= 7:  # with callers
        _, operation, wall_ms, request, caller_row, conditions = _command_shape(row)
        caller = NOBODY if caller_row is None else caller_of(caller_row)
    else:
        if row[0] == 1:
            _, operation, wall_ms, request, name = _command_1_shape(row)
        else:
            _, operation, wall_ms, request, name, conditions = _command_6_shape(row)
        caller = Caller(name)
    if conditions:
        if_held = tuple([HeldCondition(*_if_held_shape(each)) for each in conditions])
    decoded = _FAMILIES[row[0]].decode(operation)
    return Command(
        decoded if row[0] >= _QUEUES_OF_EPHEMERALS_FORMAT else _as_former(decoded),
        wall_ms,
        None if request is None else RequestId(*_request_shape(request)),
        caller,
        if_held,
        row[0] < _QUOTAS_FORMAT,
    )


def _as_former(operation: Any) -> Any:
    """Return an operation of a format below 5, where any znode could be in a queue."""
    if type(operation) is Create or type(operation) is Delete:
        return operation.as_former()
    if type(operation) is Multi:
        return Multi(tuple([_as_former(each) for each in operation.operations]))
    if type(operation) is Guarded:
        then, otherwise = [
            tuple([_as_former(each) for each in branch])
            for branch in (operation.then, operation.otherwise)
        ]
        return Guarded(operation.conditions, then, otherwise)
    return operation
