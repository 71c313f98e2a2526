"""Locks, counters, sequences and sets: histories to accept, to refuse, and to compare."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import histories
from tests.history.checker import check
from tests.history.models import MODELS, GrowingSet, NumberSequence
from tests.history.operations import Operation
from tests.history.oracle import is_linearizable_by
from tests.history.search import Verdict
from tests.history.specification import Model


def _did(
    called_at: int, returned_at: int | None, kind: str, asked: Any = None, told: Any = None
) -> Operation:
    output = None if returned_at is None else told or {}
    return Operation("c", "/x", kind, asked or {}, output, called_at, returned_at)


def _acquire(call: int, ret: int | None, owner: str, token: int | None = None) -> Operation:
    return _did(call, ret, "acquire", {"owner": owner}, None if token is None else {"token": token})


def _release(
    call: int, ret: int | None, owner: str, token: int, error: str | None = None
) -> Operation:
    asked = {"owner": owner, "token": token}
    return _did(call, ret, "release", asked, None if error is None else {"error": error})


def _expire(call: int, ret: int | None, owner: str) -> Operation:
    return _did(call, ret, "expire", {"owner": owner})


def _query(call: int, ret: int, owner: str | None, token: int | None) -> Operation:
    return _did(call, ret, "query", None, {"owner": owner, "token": token})


def _add(call: int, ret: int | None, delta: int, value: int | None = None) -> Operation:
    return _did(call, ret, "add", {"delta": delta}, None if value is None else {"value": value})


def _next(call: int, ret: int | None, number: int | None = None) -> Operation:
    return _did(call, ret, "next", None, {"number": number})


def _insert(call: int, ret: int | None, element: str) -> Operation:
    return _did(call, ret, "add", {"element": element})


def _elements(call: int, ret: int, elements: str) -> Operation:
    return _did(call, ret, "read", None, {"elements": list(elements)})


def _value(call: int, ret: int, value: int) -> Operation:
    return _did(call, ret, "read", None, {"value": value})


GOOD: dict[str, tuple[str, list[Operation]]] = {
    "handed over": ("lock", [
        _acquire(1, 2, "a", 3), _release(3, 4, "a", 3), _acquire(1, 6, "b", 5),
    ]),
    "freed by the end of a session": ("lock", [
        _acquire(1, 2, "a", 3), _expire(3, None, "a"), _acquire(4, 9, "b", 5),
        _release(10, 11, "a", 3, "NotOwner"), _query(12, 13, "b", 5),
    ]),
    "an unknown acquire holds": ("lock", [
        _acquire(1, None, "a"), _query(3, 4, "a", 7), _expire(5, None, "a"), _acquire(6, 9, "b", 8),
    ]),
    "a release again": ("lock", [
        _acquire(1, 2, "a", 3), _release(3, 4, "a", 3), _acquire(5, 6, "b", 5),
        _release(7, 8, "a", 3), _query(9, 10, "b", 5),
    ]),
    "an end of a session that does nothing now, and something later": ("lock", [
        _acquire(1, 5, "a"), _acquire(1, 5, "a"), _expire(1, 5, "a"),
    ]),
    "counted with an unknown": ("counter", [
        _add(1, 2, 1, 1), _add(3, None, 1), _add(4, 5, 1, 3), _value(6, 7, 3),
    ]),
    "numbers with gaps": ("sequence", [_next(1, 2, 0), _next(3, 8, 9), _next(4, 5, 3)]),
    "a set that grows": ("set", [
        _elements(1, 2, ""), _insert(3, 8, "a"), _insert(4, None, "b"), _elements(5, 6, "b"),
        _elements(7, 9, "ab"), _insert(10, None, "c"),
    ]),
}  # fmt: skip

BAD: dict[str, tuple[str, list[Operation]]] = {
    "two holders": ("lock", [
        _acquire(1, 2, "a", 3), _acquire(3, 4, "b", 5), _release(5, 6, "a", 3),
    ]),
    "one token twice": ("lock", [
        _acquire(1, 2, "a", 3), _release(3, 4, "a", 3), _acquire(5, 6, "b", 3),
    ]),
    "tokens that go back": ("lock", [
        _acquire(1, 2, "a", 3), _release(3, 4, "a", 3), _acquire(5, 6, "b", 2),
    ]),
    "a late release freed the next holder": ("lock", [
        _acquire(1, 2, "a", 3), _expire(3, 4, "a"), _acquire(5, 6, "b", 5),
        _release(7, 8, "a", 3), _acquire(9, 10, "c", 7),
    ]),
    "the holder was told that it is not": ("lock", [
        _acquire(1, 2, "a", 3), _release(3, 4, "a", 3, "NotOwner"), _query(5, 6, "a", 3),
    ]),
    "nobody holds although nobody released": ("lock", [
        _acquire(1, 2, "a", 3), _query(3, 4, None, None),
    ]),
    "a lost increment": ("counter", [_add(1, 2, 1, 1), _add(3, 4, 1, 1)]),
    "an increment applied twice": ("counter", [
        _add(1, 2, 1, 1), _add(3, None, 1), _value(4, 5, 3),
    ]),
    "one number twice": ("sequence", [_next(1, 4, 7), _next(2, 3, 7)]),
    "a later number that is lower": ("sequence", [_next(1, 2, 7), _next(3, 4, 6)]),
    "an acknowledged element lost": ("set", [
        _insert(1, 2, "a"), _insert(3, 4, "b"), _elements(5, 6, "b"),
    ]),
    "an element twice": ("set", [_insert(1, 2, "a"), _elements(3, 4, "aa")]),
    "an element nobody added": ("set", [_insert(1, 2, "a"), _elements(3, 4, "ax")]),
    "reads that saw two orders": ("set", [
        _insert(1, 9, "a"), _insert(1, 9, "b"), _elements(2, 8, "a"), _elements(2, 8, "b"),
    ]),
    "an element from the future": ("set", [_elements(1, 2, "a"), _insert(3, None, "a")]),
    "an element that vanished": ("set", [
        _insert(1, None, "a"), _elements(3, 4, "a"), _elements(5, 6, ""),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_accepts(name: str) -> None:
    """A history that a correct service can produce is accepted."""
    model, history = GOOD[name]

    result = check(history, MODELS[model]())

    assert result.verdict is Verdict.OK
    assert is_linearizable_by(MODELS[model](), history)


@pytest.mark.parametrize("name", BAD)
def test_refuses(name: str) -> None:
    """A history that only a broken service can produce is refused."""
    model, history = BAD[name]

    result = check(history, MODELS[model]())

    assert result.verdict is Verdict.NOT_LINEARIZABLE
    assert not is_linearizable_by(MODELS[model](), history)


def test_a_gapless_sequence_allows_only_gaps_of_unknown_outcomes() -> None:
    """A number may be missing only if a request of unknown outcome may have taken it."""
    model = NumberSequence(is_gapless=True)
    with_gap = [_next(1, 2, 0), _next(5, 6, 2)]

    assert not check(with_gap, model).is_ok
    assert check([*with_gap, _next(3, None)], model).is_ok
    assert not check([*with_gap, _next(7, None)], model).is_ok


def _spans() -> st.SearchStrategy[tuple[int, int | None]]:
    return st.tuples(st.integers(0, 8), st.integers(0, 4), st.integers(0, 3)).map(
        lambda drawn: (drawn[0], None if drawn[2] == 0 else drawn[0] + drawn[1])
    )


@st.composite
def _lock_operations(draw: st.DrawFn) -> Operation:
    call, ret = draw(_spans())
    kind = draw(st.sampled_from(["acquire", "acquire", "release", "expire", "query"]))
    owner = draw(st.sampled_from("ab"))
    token = draw(st.none() | st.integers(1, 4))
    if kind == "acquire":
        return _acquire(call, ret, owner, token)
    if kind == "release":
        error = draw(st.sampled_from([None, None, "NotOwner"]))
        return _release(call, ret, owner, token or 1, error)
    if kind == "expire":
        return _expire(call, ret, owner)
    if draw(st.booleans()):
        return _query(call, call + 1, None, None)
    return _query(call, call + 1, owner, token or 2)


@st.composite
def _counter_operations(draw: st.DrawFn) -> Operation:
    call, ret = draw(_spans())
    if draw(st.integers(0, 3)) == 0:
        return _value(call, ret or call + 2, draw(st.integers(0, 4)))
    return _add(call, ret, draw(st.integers(1, 2)), draw(st.none() | st.integers(1, 5)))


@st.composite
def _sequence_operations(draw: st.DrawFn) -> Operation:
    return _next(*draw(_spans()), draw(st.integers(0, 4)))


@st.composite
def _set_operations(draw: st.DrawFn) -> Operation:
    call, ret = draw(_spans())
    if draw(st.booleans()):
        return _insert(call, ret, draw(st.sampled_from("abc")))
    return _elements(call, ret or call + 2, "".join(draw(st.sets(st.sampled_from("abc")))))


def _compare(model: Model, history: list[Operation]) -> None:
    expected = is_linearizable_by(model, history)

    verdict = check(history, model).verdict

    assert (verdict is Verdict.OK) == expected, "\n".join(map(str, history))


_EXAMPLES = histories(250, derandomize=True)


@_EXAMPLES
@given(st.lists(_lock_operations(), max_size=6))
def test_locks_agree_with_the_brute_force(history: list[Operation]) -> None:
    """Whatever six lock operations say, the verdict is the brute-force one."""
    _compare(MODELS["lock"](), history)


@_EXAMPLES
@given(st.lists(_counter_operations(), max_size=6))
def test_counters_agree_with_the_brute_force(history: list[Operation]) -> None:
    """Whatever six counter operations say, the verdict is the brute-force one."""
    _compare(MODELS["counter"](), history)


@_EXAMPLES
@given(st.lists(_sequence_operations(), max_size=6), st.booleans())
def test_sequences_agree_with_the_brute_force(history: list[Operation], is_gapless: bool) -> None:
    """Whatever six sequence operations say, the verdict is the brute-force one."""
    _compare(NumberSequence(is_gapless=is_gapless), history)


@_EXAMPLES
@given(st.lists(_set_operations(), max_size=6))
def test_sets_agree_with_the_brute_force(history: list[Operation]) -> None:
    """Whatever six set operations say, the verdict is the brute-force one."""
    _compare(GrowingSet(), history)
