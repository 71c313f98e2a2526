"""Answers read straight from msgpack are the values that the codec reads, or left to it."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from coordinator.model import grants, history, operations, sessions, status, views, znodes
from coordinator.model.znodes import Stat, Written, Znode
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.packed import packed_reader

MODULES: tuple[ModuleType, ...] = (
    grants, history, operations, sessions, status, views, znodes,
)  # fmt: skip
STAT = Stat(
    czxid=1,
    mzxid=2,
    pzxid=3,
    ctime_ms=4,
    mtime_ms=5,
    version=6,
    cversion=7,
    aversion=8,
    ephemeral_owner=None,
    data_length=9,
    num_children=10,
)


def kinds() -> list[type[Any]]:
    return [
        each
        for module in MODULES
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, msgspec.Struct)
        and each.__module__ == module.__name__
        and packed_reader(each) is not None
    ]


def drawn(kind: Any, number: int) -> Any:
    """Return a value of this type, of whose fields every one is said that a body carries."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return drawn(kind.type, number)
    match kind:
        case msgspec.inspect.IntType(ge=low):
            return max(low or 0, 1) + number
        case msgspec.inspect.StrType():
            return f"text {number}"
        case msgspec.inspect.BytesType():
            return bytes([number, 255])
        case msgspec.inspect.BoolType():
            return number % 2 == 0
        case msgspec.inspect.UnionType(types=types):
            return drawn(types[number % len(types)], number)
        case msgspec.inspect.NoneType():
            return None
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            left_out = ("is_election", "grants") if cls is grants.GrantReply else ("is_election",)
            said = [each for each in fields if each.name not in left_out]
            return cls(**{each.name: drawn(each.type, number) for each in said})
        case msgspec.inspect.VarTupleType(item_type=item):
            return tuple(drawn(item, number + at) for at in range(number))
        case msgspec.inspect.DictType(value_type=item):
            return {f"name {at}": drawn(item, at) for at in range(number)}
        case msgspec.inspect.NamedTupleType(cls=cls, fields=fields):
            return cls(**{each.name: drawn(each.type, number) for each in fields})
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_both_readers_agree(kind: type[Any]) -> None:
    """With every field, without those that have a default, with one that nobody knows."""
    read = packed_reader(kind)
    assert read is not None
    info: Any = msgspec.inspect.type_info(kind)
    for number in range(4):
        value = drawn(info, number)
        body = {**to_body(value, Encoding.MSGPACK), "new": 1}
        without = {
            each.name: body[each.name]
            for each in info.fields
            if each.required and each.name in body
        }
        if info.tag is not None:
            without[info.tag_field] = info.tag
        for said in (body, without):
            assert read(msgpack.packb(said)) == from_body(kind, said)


def test_the_common_answers_are_read_so() -> None:
    """What is answered to reads, writes, heartbeats and whoever acquires a lock or looks at it."""
    common = {Znode, Written, sessions.SessionLease, grants.AcquireReply, grants.Granted}
    assert {*common, grants.ReleaseReply, views.LockView} <= set(kinds())


@pytest.mark.parametrize("change", [{"is_election": True}, {"grants": 2}])
def test_the_rarer_grants_are_left_to_the_codec(change: dict[str, Any]) -> None:
    """An election's fields are called otherwise; several locks' have grants within the grant."""
    one = grants.GrantReply(
        grant_id="g", lock="jobs", fencing_token=7, session_id="s", path="/locks/jobs/c-1", zxid=9
    )
    if "grants" in change:
        change = {"grants": (one, one)}
    reply = grants.AcquireReply(msgspec.structs.replace(one, **change))
    body = to_body(reply, Encoding.MSGPACK)
    read = packed_reader(grants.AcquireReply)

    assert read is not None
    with pytest.raises(ValueError, match=r"."):
        read(msgpack.packb(body))
    assert from_body(grants.AcquireReply, body) == reply


def test_what_no_body_carries_is_not_read() -> None:
    """Whoever says it is not believed, as by the codec."""
    one = grants.GrantReply(
        grant_id="g", lock="jobs", fencing_token=7, session_id="s", path="/locks/jobs/c-1", zxid=9
    )
    body = {"grant": {**to_body(one, Encoding.MSGPACK), "is_election": True}}
    read = packed_reader(grants.AcquireReply)

    assert read is not None
    assert read(msgpack.packb(body)) == from_body(grants.AcquireReply, body)
    assert not read(msgpack.packb(body)).grant.is_election


@pytest.mark.parametrize(
    "said",
    [
        {"path": "/a"},
        {"path": "/a", "stat": None},
        {"path": 7, "stat": STAT._asdict()},
        {"path": "/a", "stat": {**STAT._asdict(), "version": -1}},
        [],
    ],
)
def test_what_it_does_not_take_is_left_to_the_codec(said: Any) -> None:
    """It says so by a ValueError, whatever is wrong."""
    read = packed_reader(Written)

    assert read is not None
    with pytest.raises(ValueError, match=r"."):
        read(msgpack.packb(said))
    with pytest.raises(ValueError, match=r"."):
        read(b"\xc1")
