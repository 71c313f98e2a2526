"""Remembered outcomes are kept as bytes: what is recalled of them is what came about."""

from __future__ import annotations

from typing import Any, get_args

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Delete,
    Enter,
    Kind,
    Multi,
    OpenSession,
    Operation,
    Read,
    RequestId,
    SetData,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import (
    Created,
    DataSet,
    Deleted,
    Entered,
    GuardedDone,
    LimitsSet,
    MultiDone,
    Outcome,
    ReadDone,
    Refusal,
    Result,
    Revoked,
    Stat,
)
from coordinator.state.remembered import SIZE_BYTES, check_kept, kept_of, recalled
from coordinator.state.snapshot import encode_snapshot
from coordinator.state.znode import DataChanges
from tests.amount import histories as histories_of
from tests.state.strategies import SMALL_LIMITS, histories
from tests.state.values import changed, names_of

STAT = Stat(
    czxid=1, mzxid=2, pzxid=3, ctime_ms=4_000, mtime_ms=5_000, version=6, cversion=7, aversion=8,
    ephemeral_owner="s1", data_length=9, num_children=10, mode="ttl", ttl_ms=11,
)  # fmt: skip
OTHER = STAT._replace(version=5)
PARTS: dict[type, Any] = {
    Created: Created("/a", STAT),
    DataSet: DataSet("/a", STAT),
    MultiDone: MultiDone(
        (
            Created("/a", STAT),
            Created("/b", STAT),
            DataSet("/a", STAT),
            Created("/c", STAT),
            Created("/d", STAT),
            Created("/e", OTHER),
            Created("/f", STAT),
            Deleted("/a", 2),
            ReadDone("/a", data=b"\xff", stat=None),
        )
    ),
    GuardedDone: GuardedDone(True, (ReadDone("/a", data=b"x", stat=STAT),)),
    Entered: Entered((Created("/locks/a/lock-1", STAT),), is_granted=True, position=0),
    LimitsSet: LimitsSet(1, changes=(("znodes_max", 1, 2),)),
    Revoked: Revoked(
        "/locks/a/lock-1", czxid=5, paths=("/locks/a/lock-1", "/locks/b/lock-1"), was_holder=True
    ),
}


def one_of(kind: type[Struct]) -> Any:
    """Return a result of this class."""
    if kind in PARTS:
        return PARTS[kind]
    words = {"str": "text", "int": 5, "bool": True, "str | None": None, "int | None": 3}
    words["Positive"] = 1
    return kind(**{each.name: words[str(kind.__annotations__[each.name])] for each in fields(kind)})


@pytest.mark.parametrize("kind", get_args(Result), ids=lambda kind: kind.__name__)
def test_a_result_of_each_kind_is_recalled(kind: type[Struct]) -> None:
    """With its class and all of its values."""
    outcome = Outcome(7, result=one_of(kind), is_repeat=True)

    kept = kept_of(outcome)

    assert recalled(kept) == outcome
    assert type(recalled(kept).result) is kind
    check_kept(kept)


@pytest.mark.parametrize(
    "facts",
    [{}, {"path": "/a", "index": 1, "is": True, "no": None},
     {"paths": ("/a", "/b")}, {"cycle": ({"owner": "t1", "path": "/a"}, {"owner": "t2"})}],
)  # fmt: skip
def test_a_refusal_is_recalled_with_its_facts(facts: dict[str, Any]) -> None:
    """Rows are rows again, so an answer that is given twice is the same twice."""
    refusal = Refusal("NoNode", message="no such znode", fields=facts)
    outcome = Outcome(7, refusal=refusal, is_repeat=True)

    assert recalled(kept_of(outcome)) == outcome


def with_numbers(value: Any, number: int) -> Any:
    """Return a value with this in place of each number."""
    if type(value) is int:
        return number
    if type(value) is Stat:
        return Stat._make([with_numbers(each, number) for each in value])
    if type(value) is tuple:
        return tuple([with_numbers(each, number) for each in value])
    if isinstance(value, Struct):
        return replace(
            value, **{name: with_numbers(getattr(value, name), number) for name in names_of(value)}
        )
    return value


@pytest.mark.parametrize("number", [-(2**63), -5, 2**31, 2**63, 2**64 - 1])
@pytest.mark.parametrize("kind", get_args(Result), ids=lambda kind: kind.__name__)
def test_a_result_with_any_number_is_recalled(kind: type[Struct], number: int) -> None:
    """What clients may send is bounded; commands are not, nor what they come to."""
    outcome = Outcome(number, result=with_numbers(one_of(kind), number), is_repeat=True)
    kept = kept_of(outcome)

    assert repr(recalled(kept)) == repr(outcome), "of the same types, too"
    check_kept(kept)


TTL = Create("/ttl", data=b"", mode=CreateMode.TTL, ttl_ms=2**63)
MANY = Multi((Create("/b"), Create("/c"), SetData("/a", b"new"), Read("/a"), Delete("/c")))
ENTER = Enter(("/locks/a",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"who")


@pytest.mark.parametrize("operation", [Create("/b"), TTL, MANY, SetData("/a", b"new"), ENTER])
@pytest.mark.parametrize("wall_ms", [-(2**63), -5, 7, 2**63, 2**64 - 1])
def test_what_a_command_comes_to_is_said_again_whatever_its_numbers(
    operation: Operation, wall_ms: int
) -> None:
    """By the machine that ran it, and by one that is restored from its snapshot."""
    machine, restored = StateMachine(), StateMachine()
    machine.apply(Command(OpenSession("s1", 10_000), wall_ms), 1, 1)
    machine.apply(Command(Create("/a"), wall_ms), 2, 1)
    command = Command(operation, wall_ms=wall_ms, request=RequestId("c1", 1))
    assert decode_command(encode_command(command)) == command

    first = machine.apply(command, 3, 1)
    restored.restore(machine.snapshot())

    assert first.refusal is None
    for each in (machine, restored):
        again = each.apply(command, 4, 1)
        assert again == changed(first, events=(), granted=(), is_repeat=True)


def test_a_set_beyond_the_greatest_version_is_said_again() -> None:
    """Once a member failed by it, at each of its starts."""
    machine, restored = StateMachine(), StateMachine()
    machine.apply(Command(Create("/a"), 0), 1, 1)
    capture = machine._capture()
    znodes = dict(capture.znodes)
    znodes["/a"] = changed(znodes["/a"], writes=DataChanges(1, mtime_ms=0, version=2**31 - 1))
    machine.restore(encode_snapshot(changed(capture, znodes=znodes)))
    command = Command(SetData("/a", b"new"), wall_ms=0, request=RequestId("c1", 1))

    first = machine.apply(command, 2, 1).unwrap()
    restored.restore(machine.snapshot())

    assert type(first) is DataSet
    assert first.stat.version == 2**31
    assert [each.apply(command, 3, 1).unwrap() for each in (machine, restored)] == [first, first]
    swap = Command(SetData("/a", b"newer", expected_version=2**31), wall_ms=0)
    swapped = [each.apply(swap, 4, 1).unwrap() for each in (machine, restored)]
    assert [each.stat.version for each in swapped] == [2**31 + 1] * 2


@histories_of(100, suppress_health_check=list(HealthCheck))
@given(histories, st.sampled_from([None, None, -5, 2**63]))
def test_whatever_comes_about_is_recalled(history: list[Command], wall_ms: int | None) -> None:
    """But for its events and grants, which were delivered the first time."""
    machine = StateMachine(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        dated = command if wall_ms is None else changed(command, wall_ms=wall_ms)
        outcome = machine.apply(dated, index, 1)
        first = replace(outcome, events=(), is_repeat=True, granted=())
        assert recalled(kept_of(outcome)) == first
        check_kept(kept_of(outcome))


KEPT = kept_of(Outcome(7, Deleted("/a", 1)))
BODY = msgpack.unpackb(KEPT[SIZE_BYTES:])


@pytest.mark.parametrize(
    "kept",
    [
        b"", KEPT[:-1], KEPT + b"x", b"\0" + KEPT[1:3] + b"\x7f" + KEPT[4:],
        KEPT[:SIZE_BYTES] + msgpack.packb([7, None, None]),
        KEPT[:SIZE_BYTES] + msgpack.packb([7, BODY[1], ["NoNode", "no", {}]]),
        KEPT[:SIZE_BYTES] + msgpack.packb([7, {"op": "no such"}, None]),
        KEPT[:SIZE_BYTES] + msgpack.packb([7, {"op": "multi", "results": ["/a"]}, None]),
        KEPT[:SIZE_BYTES] + msgpack.packb(["7", BODY[1], None]),
        KEPT[:SIZE_BYTES] + msgpack.packb([7, {**BODY[1], "more": 1}, None]),
        KEPT[:SIZE_BYTES] + msgpack.packb([7, None, {"code": "", "message": "", "fields": 5}]),
    ],
)  # fmt: skip
def test_bytes_that_are_no_outcome_are_refused(kept: bytes) -> None:
    """A snapshot of another member may have anything in it; apply must not find it later."""
    check_kept(KEPT)
    with pytest.raises(ValueError, match="expected"):
        check_kept(kept)


MANY_KEPT = kept_of(Outcome(7, MultiDone((Created("/a", STAT), Created("/b", STAT)))))
CREATED = {"op": "create", "path": "/a", "stat": tuple(STAT)}


@pytest.mark.parametrize(
    "results",
    [
        (CREATED, {**CREATED, "path": "/b"}), (CREATED, {"op": "delete", "path": "/a"}, "/b"),
        ({"op": "set", "path": "/a", "stat": tuple(STAT)}, "/b"), (CREATED, "/bb"), ("/a", "/b"),
        (CREATED, {"op": "read", "path": "/", "data": b"xy", "stat": None}),
    ],
)  # fmt: skip
def test_results_that_are_kept_otherwise_are_refused(results: tuple[Any, ...]) -> None:
    """A Stat that is repeated, a path without one, and a size that is another."""
    check_kept(MANY_KEPT)
    assert msgpack.unpackb(MANY_KEPT[SIZE_BYTES:])[1]["results"][1:] == ["/b"]
    body = msgpack.packb([7, {"op": "multi", "results": results}, None])
    with pytest.raises(ValueError, match="expected"):
        check_kept(MANY_KEPT[:SIZE_BYTES] + body)


NESTED = b"\x91" * 5_000 + b"\x90"


@pytest.mark.parametrize(
    "fact",
    [
        NESTED, msgpack.packb(1.5), msgpack.packb(float("nan")),
        msgpack.packb(msgpack.Timestamp(1)), msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb([["/a"]]), msgpack.packb({"a": 1}), msgpack.packb([{1: "a"}]),
        msgpack.packb([{"a": ["b"]}]),
    ],
    ids=["nested", "float", "nan", "time", "extension", "rows", "map", "number", "row in a map"],
)  # fmt: skip
def test_a_fact_that_no_refusal_has_is_refused(fact: bytes) -> None:
    """As it is in an answer. A row of 5,000 rows within each other is damage like any other."""
    refusal = {"code": "NoNode", "message": "no", "fields": {"path": None}}
    kept = kept_of(Outcome(7, refusal=Refusal("NoNode", "no", fields={"path": None})))
    assert kept[SIZE_BYTES:] == msgpack.packb([7, None, refusal])
    check_kept(kept)

    with pytest.raises(ValueError, match="expected"):
        check_kept(kept[:-1] + fact)


def test_rows_within_rows_where_nothing_is_expected_are_refused() -> None:
    more = BODY[1] | {"more": 0}
    kept = KEPT[:SIZE_BYTES] + msgpack.packb([7, more, None])

    with pytest.raises(ValueError, match="expected"):
        check_kept(kept.replace(b"\xa4more\x00", b"\xa4more" + NESTED))


def test_many_that_were_created_together_take_little_more_than_their_paths() -> None:
    """A client may create a thousand in each of its last 128 requests."""
    paths = [f"/jobs/{number:020}" for number in range(1_000)]

    kept = kept_of(Outcome(7, MultiDone(tuple([Created(path, STAT) for path in paths]))))

    assert len(kept) < 30 * len(paths)
