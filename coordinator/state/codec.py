"""The codec of commands: bytes that begin with a level, strictly decoded.

1. The first element of every encoded command is the level that added its operation, so an operation
   is always written alike. It is proposed only in a state of this level or a later one
   (``levels``). A field that is added makes another operation, with another tag.
2. Decoding checks every type, and that nothing is missing or added. It raises only ValueError.
   Bytes from another member are checked here; bytes of the log were checked before they were
   proposed.
3. An operation is an array of its tag and its fields, in order. msgspec reads and writes all of it
   by the types of ``commands``. What clients send, too, has other names and bounds in a body; in a
   log it is one of the types below, in which any number may stand.

``outcome_codec`` keeps rules 1 and 2 for outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import astuple

from coordinator.model.access import Rule, Verb
from coordinator.state.commands import (
    NOBODY,
    Caller,
    Check,
    Command,
    Create,
    CreateMode,
    Delete,
    Guarded,
    HeldCondition,
    Logged,
    Multi,
    PutRole,
    Read,
    RequestId,
    SetData,
)
from coordinator.state.levels import NEWEST, OLDEST, UnreadLevelError, check_level

SINCE: Final[dict[type, int]] = {}
"""The operations that a later level than 1 added (``levels``), with that level."""


class CreateLogged(Struct, frozen=True, gc=False, array_like=True, tag=1):
    path: str
    data: bytes
    mode: CreateMode
    session_id: str | None
    ttl_ms: int | None
    parents: CreateMode | None


class SetDataLogged(Struct, frozen=True, gc=False, array_like=True, tag=2):
    path: str
    data: bytes
    expected_version: int


class DeleteLogged(Struct, frozen=True, gc=False, array_like=True, tag=3):
    path: str
    expected_version: int
    expected_czxid: int | None
    is_recursive: bool


class CheckLogged(Struct, frozen=True, gc=False, array_like=True, tag=4):
    path: str
    exists: bool | None
    expected_version: int
    expected_czxid: int | None
    has_children: bool | None
    expected_owner: str | None


class ReadLogged(Struct, frozen=True, gc=False, array_like=True, tag=5):
    path: str


LoneLogged = CreateLogged | SetDataLogged | DeleteLogged | CheckLogged
ZnodeLogged = LoneLogged | ReadLogged
"""Operations of a multi or a branch: a read is no command."""


class MultiLogged(Struct, frozen=True, gc=False, array_like=True, tag=6):
    operations: tuple[ZnodeLogged, ...]
    by: str
    reason: str


class GuardedLogged(Struct, frozen=True, gc=False, array_like=True, tag=7):
    conditions: tuple[CheckLogged, ...]
    then: tuple[ZnodeLogged, ...]
    otherwise: tuple[ZnodeLogged, ...]


class PutRoleLogged(Struct, frozen=True, gc=False, array_like=True, tag=29):
    name: str
    rules: tuple[tuple[str, tuple[Verb, ...]], ...]


class _Written(Struct, frozen=True, gc=False, array_like=True):
    """A command as it is written; ``caller`` is None for nobody."""

    level: Annotated[int, Meta(ge=1, le=NEWEST)]
    """By rule 1 it may be below ``OLDEST``, which bounds states and snapshots alone."""
    operation: LoneLogged | MultiLogged | GuardedLogged | PutRoleLogged | Logged
    wall_ms: int
    request: RequestId | None
    caller: Caller | None
    if_held: tuple[HeldCondition, ...]


class _Head(Struct, array_like=True):
    level: int


def _logged_all(operations: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([_LOGGED[type(each)](each) for each in operations])


def _read_all(logged: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([_READ[type(each)](each) for each in logged])


_LOGGED: Final[dict[type, Callable[[Any], Any]]] = {
    Create: lambda each: CreateLogged(*astuple(each)),
    SetData: lambda each: SetDataLogged(*astuple(each)),
    Delete: lambda each: DeleteLogged(*astuple(each)),
    Check: lambda each: CheckLogged(*astuple(each)),
    Read: lambda each: ReadLogged(each.path),
    Multi: lambda each: MultiLogged(_logged_all(each.operations), each.by, each.reason),
    Guarded: lambda each: GuardedLogged(*map(_logged_all, astuple(each))),
    PutRole: lambda each: PutRoleLogged(each.name, tuple([astuple(rule) for rule in each.rules])),
}
"""What makes of an operation what a log holds of it, unless it is the same."""

_READ: Final[dict[type, Callable[[Any], Any]]] = {
    CreateLogged: lambda each: Create(*astuple(each)),
    SetDataLogged: lambda each: SetData(*astuple(each)),
    DeleteLogged: lambda each: Delete(*astuple(each)),
    CheckLogged: lambda each: Check(*astuple(each)),
    ReadLogged: lambda each: Read(each.path),
    MultiLogged: lambda each: Multi(_read_all(each.operations), each.by, each.reason),
    GuardedLogged: lambda each: Guarded(*map(_read_all, astuple(each))),
    PutRoleLogged: lambda each: PutRole(each.name, tuple([Rule(*rule) for rule in each.rules])),
}

_encode: Final = Encoder().encode
_decode: Final = Decoder(_Written).decode
_decode_head: Final = Decoder(_Head).decode


def level_of(operation: Any) -> int:
    """Return the level from which on there may be this operation in a log."""
    return SINCE.get(type(operation), 1)


def encode_command(command: Command) -> bytes:
    """Encode a command; raises ValueError for text or numbers that have no encoding."""
    operation: Any = command.operation
    caller = command.caller
    logged = _LOGGED.get(type(operation))
    written = _Written(
        level_of(operation),
        operation if logged is None else logged(operation),
        command.wall_ms,
        command.request,
        None if caller is NOBODY or caller == NOBODY else caller,
        command.if_held,
    )
    try:
        return _encode(written)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"cannot be encoded: {error}") from error


def decode_command(data: bytes) -> Command:
    """Decode a command; raises ValueError unless it is one, of this format, and nothing else."""
    try:
        written = _decode(data)
        is_whole = _encode(written) == data and level_of(written.operation) == written.level
    except (ValueError, RecursionError) as error:
        raise ValueError(_explained(data, error)) from None
    if not is_whole:
        raise ValueError("expected a command as it is written, found it otherwise")
    operation: Any = written.operation
    read = _READ.get(type(operation))
    return Command(
        operation if read is None else read(operation),
        written.wall_ms,
        written.request,
        NOBODY if written.caller is None else written.caller,
        written.if_held,
    )


def _explained(data: bytes, error: Exception) -> str:
    try:
        check_level(max(OLDEST, _decode_head(data).level))
    except UnreadLevelError as unread:
        return f"expected a command that can be read: {unread}"
    except (ValueError, RecursionError):
        pass
    return f"expected a command: {error}"
