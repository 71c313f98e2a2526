"""What can be asked of several znodes at once: operations, multi and guarded writes, results.

A create, a set or a delete alone has the same fields, as the body of its own route.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coordinator.errors import BadArgumentsError
from coordinator.model.fields import ANY_VERSION as ANY_VERSION
from coordinator.model.fields import VERSION_MAX as VERSION_MAX
from coordinator.wire.encoding import Encoding, data_fields
from coordinator.wire.fields import Fields
from coordinator.wire.messages.if_held import IF_HELD_FIELD
from coordinator.wire.messages.znodes import Stat

CREATE_MODES = (
    "persistent",
    "persistent_sequential",
    "ephemeral",
    "ephemeral_sequential",
    "container",
    "ttl",
    "ttl_sequential",
)
PARENT_MODES = ("persistent", "container")


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode; alone it is the body of POST /v1/tree/{path} (without ``op``, ``path``)."""

    path: str
    data: bytes = b""
    mode: str = "persistent"
    session_id: str | None = None
    ttl_ms: int | None = None
    parents: str | None = None

    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"data", "data_base64", "mode", "session_id", "ttl_ms", "parents"}
    )

    def to_body(self, encoding: Encoding) -> dict[str, Any]:
        body = data_fields(self.data, encoding)
        body["mode"] = self.mode
        _put(body, session_id=self.session_id, ttl_ms=self.ttl_ms, parents=self.parents)
        return body

    @classmethod
    def from_fields(cls, path: str, fields: Fields, data: bytes | None = None) -> Create:
        return cls(
            path=path,
            data=fields.data() if data is None else data,
            mode=fields.choice("mode", CREATE_MODES, "persistent"),
            session_id=fields.text("session_id", None),
            ttl_ms=fields.integer("ttl_ms", None, minimum=1),
            parents=fields.choice("parents", PARENT_MODES, None),
        )


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data; the body of PUT /v1/tree/{path}."""

    path: str
    data: bytes
    expected_version: int = ANY_VERSION

    FIELDS: ClassVar[frozenset[str]] = frozenset({"data", "data_base64", "expected_version"})

    def to_body(self, encoding: Encoding) -> dict[str, Any]:
        body = data_fields(self.data, encoding)
        if self.expected_version != ANY_VERSION:
            body["expected_version"] = self.expected_version
        return body

    @classmethod
    def from_fields(cls, path: str, fields: Fields) -> SetData:
        return cls(path, fields.data(is_required=True), expected_version(fields))


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode; ``is_recursive`` (``recursive`` on the wire) takes the subtree."""

    path: str
    expected_version: int = ANY_VERSION
    expected_czxid: int | None = None
    is_recursive: bool = False

    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"expected_version", "expected_czxid", "recursive"}
    )

    def to_body(self, encoding: Encoding) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if self.expected_version != ANY_VERSION:
            body["expected_version"] = self.expected_version
        _put(body, expected_czxid=self.expected_czxid, recursive=self.is_recursive or None)
        return body

    @classmethod
    def from_fields(cls, path: str, fields: Fields) -> Delete:
        return cls(
            path=path,
            expected_version=expected_version(fields),
            expected_czxid=fields.integer("expected_czxid", None, minimum=0),
            is_recursive=fields.boolean("recursive", False),
        )


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on one znode; every field that is given must hold."""

    path: str
    exists: bool | None = None
    expected_version: int = ANY_VERSION
    expected_czxid: int | None = None
    has_children: bool | None = None
    expected_owner: str | None = None

    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"exists", "expected_version", "expected_czxid", "has_children", "expected_owner"}
    )

    def to_body(self, encoding: Encoding) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if self.expected_version != ANY_VERSION:
            body["expected_version"] = self.expected_version
        _put(
            body,
            exists=self.exists,
            expected_czxid=self.expected_czxid,
            has_children=self.has_children,
            expected_owner=self.expected_owner,
        )
        return body

    @classmethod
    def from_fields(cls, path: str, fields: Fields) -> Check:
        return cls(
            path=path,
            exists=fields.boolean("exists", None),
            expected_version=expected_version(fields),
            expected_czxid=fields.integer("expected_czxid", None, minimum=0),
            has_children=fields.boolean("has_children", None),
            expected_owner=fields.text("expected_owner", None),
        )


@dataclass(frozen=True, slots=True)
class Read:
    """Read a znode inside a multi or a guarded write."""

    path: str

    FIELDS: ClassVar[frozenset[str]] = frozenset()

    def to_body(self, encoding: Encoding) -> dict[str, Any]:
        return {}

    @classmethod
    def from_fields(cls, path: str, fields: Fields) -> Read:
        return cls(path)


Operation = Create | SetData | Delete | Check | Read

_OPERATIONS: dict[str, type[Operation]] = {
    "create": Create,
    "set": SetData,
    "delete": Delete,
    "check": Check,
    "read": Read,
}
_NAMES: dict[type[Any], str] = {kind: name for name, kind in _OPERATIONS.items()}


def operation_body(operation: Operation, encoding: Encoding) -> dict[str, Any]:
    """Return one operation as an item of a multi."""
    name = _NAMES[type(operation)]
    return {"op": name, "path": operation.path, **operation.to_body(encoding)}


def read_operation(body: Any, where: str) -> Operation:
    """Return the operation that an item of a multi describes."""
    name = Fields(body, where).choice("op", tuple(_OPERATIONS))
    kind = _OPERATIONS[name]
    fields = Fields(body, where, kind.FIELDS | {"op", "path"})
    return kind.from_fields(fields.text("path"), fields)


def read_condition(body: Any, where: str) -> Check:
    """Return a condition of a guarded write; ``op`` may be left out, it can only be check."""
    fields = Fields(body, where, Check.FIELDS | {"op", "path"})
    fields.choice("op", ("check",), "check")
    return Check.from_fields(fields.text("path"), fields)


@dataclass(frozen=True, slots=True)
class Multi:
    """All of these, in order, or none."""

    operations: tuple[Operation, ...]

    def to_body(self, encoding: Encoding) -> dict[str, Any]:
        return {"operations": [operation_body(each, encoding) for each in self.operations]}


@dataclass(frozen=True, slots=True)
class Guarded:
    """If all conditions hold then ``then`` else ``otherwise``; the branch is all or nothing."""

    conditions: tuple[Check, ...]
    then: tuple[Operation, ...] = ()
    otherwise: tuple[Operation, ...] = ()

    def to_body(self, encoding: Encoding) -> dict[str, Any]:
        return {
            "conditions": [operation_body(each, encoding) for each in self.conditions],
            "then": [operation_body(each, encoding) for each in self.then],
            "otherwise": [operation_body(each, encoding) for each in self.otherwise],
        }


def read_multi(body: Any) -> Multi | Guarded:
    """Return the multi or the guarded write that the body of POST /v1/multi describes."""
    if isinstance(body, Mapping) and "operations" in body:
        fields = Fields(body, "body", {"operations", IF_HELD_FIELD})
        return Multi(fields.items("operations", read_operation))
    guarded = {"conditions", "then", "otherwise", IF_HELD_FIELD}
    is_guarded = isinstance(body, Mapping) and "conditions" in body
    # Of neither kind: what was mistyped may belong to both.
    fields = Fields(body, "body", guarded if is_guarded else {*guarded, "operations"})
    if not is_guarded:
        raise BadArgumentsError("body: expected operations, or conditions; found neither")
    return Guarded(
        conditions=fields.items("conditions", read_condition),
        then=fields.items("then", read_operation, ()),
        otherwise=fields.items("otherwise", read_operation, ()),
    )


# --- results


@dataclass(frozen=True, slots=True)
class Result:
    """What one operation of a multi came to; which fields are given depends on ``op``."""

    op: str
    path: str
    stat: Stat | None = None
    data: bytes = b""
    deleted_count: int = 0

    @classmethod
    def from_body(cls, body: Any, where: str) -> Result:
        fields = Fields(body, where)
        stat = fields.inner("stat")
        return cls(
            op=fields.text("op"),
            path=fields.text("path"),
            stat=None if stat is None else Stat.from_body(stat, fields.of("stat")),
            data=fields.data(),
            deleted_count=fields.integer("deleted_count", 0),
        )


@dataclass(frozen=True, slots=True)
class MultiReply:
    """``branch`` is None for a plain multi, else "then" or "otherwise"."""

    results: tuple[Result, ...]
    zxid: int
    branch: str | None = None

    @classmethod
    def from_body(cls, body: Any) -> MultiReply:
        fields = Fields(body, "body")
        return cls(
            results=fields.items("results", Result.from_body),
            zxid=fields.integer("zxid"),
            branch=fields.choice("branch", ("then", "otherwise"), None),
        )


def expected_version(fields: Fields) -> int:
    """Return the field ``expected_version``, ANY_VERSION when it is absent."""
    version: int = fields.integer(
        "expected_version", ANY_VERSION, minimum=ANY_VERSION, maximum=VERSION_MAX
    )
    return version


def _put(body: dict[str, Any], **fields: Any) -> None:
    """Add the fields that are given; null and absent mean the same."""
    body.update({name: value for name, value in fields.items() if value is not None})
