"""Remembered outcomes are kept as bytes: what is recalled of them is what came about."""

from __future__ import annotations

from typing import Any, get_args

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec import Struct
from msgspec.structs import fields, replace

from coordinator.state.commands import Command
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
from tests.state.strategies import SMALL_LIMITS, histories

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
            Created("/a", STAT), Created("/b", STAT), DataSet("/a", STAT), Created("/c", STAT),
            Created("/d", STAT), Created("/e", OTHER), Created("/f", STAT), Deleted("/a", 2),
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
    [{}, {"path": "/a", "index": 1, "is": True, "no": None, "data": b"\xff"},
     {"paths": ("/a", "/b")}, {"cycle": ({"owner": "t1", "path": "/a"}, {"owner": "t2"})}],
)  # fmt: skip
def test_a_refusal_is_recalled_with_its_facts(facts: dict[str, Any]) -> None:
    """Rows are rows again, so an answer that is given twice is the same twice."""
    refusal = Refusal("NoNode", message="no such znode", fields=facts)
    outcome = Outcome(7, refusal=refusal, is_repeat=True)

    assert recalled(kept_of(outcome)) == outcome


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories)
def test_whatever_comes_about_is_recalled(history: list[Command]) -> None:
    """But for its events and grants, which were delivered the first time."""
    machine = StateMachine(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        outcome = machine.apply(command, index, 1)
        first = replace(outcome, events=(), is_repeat=True, granted=())
        assert recalled(kept_of(outcome)) == first


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


def test_many_that_were_created_together_take_little_more_than_their_paths() -> None:
    """A client may create a thousand in each of its last 128 requests."""
    paths = [f"/jobs/{number:020}" for number in range(1_000)]

    kept = kept_of(Outcome(7, MultiDone(tuple([Created(path, STAT) for path in paths]))))

    assert len(kept) < 30 * len(paths)
