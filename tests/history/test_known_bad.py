"""Histories that only a broken service can produce: the checker must refuse every one."""

from __future__ import annotations

import pytest

from tests.history.checker import check
from tests.history.explanation import explain
from tests.history.operations import Operation
from tests.history.oracle import is_linearizable
from tests.history.register import Register
from tests.history.search import Verdict
from tests.history.shorthand import KEY, create, delete, read, set_, stale_read
from tests.history.test_known_good import KNOWN_GOOD

KNOWN_BAD: dict[str, list[Operation]] = {
    # --- reads
    "stale read after an acknowledged write": [create(1, 2, "a"), set_(3, 4, "b"), read(5, 6, "a")],
    "stale read told by the version alone": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), read(5, 6, version=0),
    ],
    "stale read told by the store's zxid alone": [
        create(1, 2, "a", zxid=1), set_(3, 4, "b", zxid=4), read(5, 6, "b", zxid=3),
    ],
    "new then old, beside one write": [
        create(1, 2, "a"), set_(3, 8, "b"), read(4, 5, "b"), read(6, 7, "a"),
    ],
    "new then old, the write unknown": [
        create(1, 2, "a"), set_(3, None, "b"), read(4, 5, "b"), read(6, 7, "a"),
    ],
    "reads that disagree on the order of two writes": [
        create(1, 2, "a"), set_(3, 10, "b"), set_(3, 10, "c"),
        read(4, 5, "b"), read(4, 5, "c"), read(6, 7, "b"), read(8, 9, "c"), read(8, 9, "b"),
        read(11, 12, "c"), read(13, 14, "b"),
    ],
    "a value that nobody wrote": [create(1, 2, "a"), read(3, 4, "x")],
    "a value whose write was refused": [
        create(1, 2, "a"), set_(3, 4, "b", expected=7, no="BadVersion"), read(5, 6, "b"),
    ],
    "a value whose write never happened": [
        create(1, 2, "a"), set_(3, 4, "b", no="NoLeader"), read(5, 6, "b"),
    ],
    "a read from the future": [create(1, 2, "a"), read(3, 4, "b"), set_(5, 6, "b")],
    "a read from the future, the write unknown": [
        create(1, 2, "a"), read(3, 4, "b"), set_(5, None, "b"),
    ],
    "a read before its znode": [read(1, 2, "a"), create(3, 4, "a")],
    "a stale read from the future": [
        create(1, 2, "a"), stale_read(3, 4, "b"), set_(5, 6, "b"),
    ],
    "a stale read of a state that never was": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), stale_read(5, 6, "a", version=1),
    ],
    "the deleted value again": [create(1, 2, "a"), delete(3, 4), read(5, 6, "a")],
    "absent although nobody deleted": [create(1, 2, "a"), read(3, 4)],
    # --- lost and doubled writes
    "a lost update": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), set_(5, 6, "c", version=1),
    ],
    "a lost update under a condition": [
        create(1, 2, "a"), set_(3, 6, "b", expected=0, version=1),
        set_(4, 7, "c", expected=0, version=1),
    ],
    "an acknowledged write gone after a crash": [
        create(1, 2, "a", zxid=1), set_(3, 4, "b", zxid=2), read(5, 6, "a", version=0, mzxid=1),
        set_(7, 8, "c", version=1, zxid=3),
    ],
    "an acknowledged create gone": [create(1, 2, "a"), create(3, 4, "b")],
    "two members both took a write of one zxid": [
        create(1, 2, "a", zxid=1), set_(3, 6, "b", version=1, zxid=2),
        set_(4, 7, "c", version=1, zxid=2),
    ],
    "split brain: both sides go on": [
        create(1, 2, "a", zxid=1), set_(3, 4, "b", version=1, zxid=2),
        set_(3, 4, "c", version=1, zxid=3), read(5, 6, "b", version=1), read(5, 6, "c", version=1),
    ],
    "split brain: a read on the side that lost": [
        create(1, 2, "a"), set_(3, 4, "b"), read(5, 8, "a"), read(6, 7, "b"),
    ],
    "a write applied twice": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), read(5, 6, "b", version=2),
    ],
    "an unknown write applied twice": [
        create(1, 2, "a"), set_(3, None, "b"), read(5, 6, "b", version=1),
        set_(7, 8, "c", version=2), read(9, 10, "b", version=3),
    ],
    "an unknown write applied twice, told by the version alone": [
        create(1, 2, "a"), set_(3, None, "b"), set_(5, 6, "c", version=3),
    ],
    "an unknown create came back after the deletion": [
        create(1, None, "a"), read(3, 4, "a", czxid=1), delete(5, 6), read(7, 8, "a", czxid=3),
    ],
    "more deletions than there were": [
        create(1, 2, "a"), delete(3, None), create(4, 5, "b"), create(6, 7, "c"),
    ],
    "an unknown conditional write although its version had passed": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), set_(5, None, "c", expected=0),
        read(6, 7, "c"),
    ],
    "a phantom: shown not to be there, then it appears at its old version": [
        create(1, 2, "a"), set_(3, None, "b"), set_(4, 5, "c", version=1),
        read(6, 7, "b", version=1),
    ],
    "a phantom: an unknown write below a zxid already read": [
        create(1, 2, "a", zxid=1), set_(3, None, "b"), read(4, 5, "a", mzxid=1, zxid=9),
        read(6, 7, "b", mzxid=5),
    ],
    "a phantom: an unknown delete that two reads disagree on": [
        create(1, 2, "a", czxid=1), delete(3, None), read(4, 5), read(6, 7, "a", czxid=1),
    ],
    # --- versions, zxids, conditions
    "versions that go back": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), set_(5, 6, "c", version=2),
        read(7, 8, "c", version=2), read(9, 10, "c", version=1),
    ],
    "a version that jumps": [create(1, 2, "a"), set_(3, 4, "b", version=2)],
    "a new znode that is not at version 0": [create(1, 2, "a", version=1)],
    "the version of the incarnation before": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), delete(5, 6), create(7, 8, "c"),
        set_(9, 10, "d", version=2),
    ],
    "the czxid of the incarnation before": [
        create(1, 2, "a", czxid=1), delete(3, 4), create(5, 6, "b", czxid=3),
        read(7, 8, "b", czxid=1),
    ],
    "a write of the incarnation before lands on the next": [
        create(1, 2, "a"), set_(3, None, "b", expected=1), delete(4, 5), create(6, 7, "c"),
        read(8, 9, "b"),
    ],
    "a condition that held was refused": [
        create(1, 2, "a"), set_(3, 4, "b", expected=0, no="BadVersion"),
    ],
    "a condition that did not hold was taken": [
        create(1, 2, "a"), set_(3, 4, "b", version=1), set_(5, 6, "c", expected=0, version=2),
    ],
    "NodeExists although there is none": [
        create(1, 2, "a"), delete(3, 4), create(5, 6, "b", no="NodeExists"),
    ],
    "NoNode although there is one": [create(1, 2, "a"), set_(3, 4, "b", no="NoNode")],
    "zxids that contradict real time": [
        create(1, 2, "a", zxid=1), set_(3, 4, "b", zxid=9), set_(5, 6, "c", zxid=8),
    ],
    "zxids that contradict the versions": [
        create(1, 2, "a", zxid=1), set_(3, 8, "b", version=1, zxid=3),
        set_(4, 7, "c", version=2, zxid=2),
    ],
    "no room for the unknown writes between the zxids": [
        create(1, 2, "a", zxid=1), set_(3, None, "b"), set_(4, None, "c"),
        set_(5, 6, "d", version=3, zxid=3),
    ],
    "an answer that contradicts itself": [create(1, 2, "a", zxid=3, mzxid=4)],
    "the store's zxid goes back between two reads of one state": [
        create(1, 2, "a", zxid=1), read(3, 4, "a", mzxid=1, zxid=9),
        read(5, 6, "a", mzxid=1, zxid=5), read(7, 8, "a"),
    ],
    "a new znode whose czxid and mzxid differ": [
        create(1, None, "a"), create(1, None, "a"), read(3, 4, "a", czxid=3),
        read(5, 6, "a", mzxid=4),
    ],
    "a czxid above an mzxid seen before": [
        create(1, None, "a"), set_(3, None, "b"), read(5, 6, "b", version=1, mzxid=4),
        read(7, 8, "b", czxid=4),
    ],
    "a czxid with no room for the sets behind it": [
        create(1, None, "a"), set_(3, None, "b"), set_(5, 6, "c", version=2, zxid=5),
        set_(7, 8, "d", zxid=9), read(9, 10, "d", czxid=4),
    ],
    "one zxid read with two values": [
        create(1, 2, "a"), set_(3, None, "b"), set_(3, None, "c"),
        read(4, 9, "b", mzxid=5), read(4, 9, "c", mzxid=5),
    ],
    "the next incarnation is deleted in place of the one meant": [
        create(1, 2, "a", czxid=1), delete(3, 4, zxid=2), create(5, 6, "b", czxid=3),
        delete(7, 8, czxid=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_refuses(name: str) -> None:
    """A history that only a broken service can produce is refused."""
    history = KNOWN_BAD[name]

    result = check(history, Register())

    assert result.verdict is Verdict.NOT_LINEARIZABLE
    assert result.keys[KEY].unplaced


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_the_brute_force_agrees(name: str) -> None:
    """The list itself is right: the brute-force search refuses every entry too."""
    assert not is_linearizable(KNOWN_BAD[name])


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_explains_with_answers_that_are_all_needed(name: str) -> None:
    """Of the answers blamed none can be left out, and without them nothing is wrong."""
    history = KNOWN_BAD[name]
    result = check(history, Register()).keys[KEY]

    explanation = explain(result, history, Register())

    assert explanation.contradiction
    assert explanation.is_minimal
    blamed = set(map(id, explanation.contradiction))
    for spared in explanation.contradiction:
        fewer = [
            o if id(o) in blamed and o is not spared else o.as_unknown()
            for o in history
            if not (o.is_unknown and id(o) in blamed)
        ]
        assert check(fewer, Register()).is_ok, f"still bad without the answer of {spared}"
    assert str(explanation).startswith(f"key {KEY}: not linearizable")


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_explains_by_the_first_answer_that_cannot_be_true(name: str) -> None:
    """What could not be placed was answered when the history went bad, and not before."""
    history = KNOWN_BAD[name]
    moments = sorted({o.returned_at for o in history if o.returned_at is not None})
    verdicts = [check(_until(history, moment), Register()).is_ok for moment in moments]
    first_bad = moments[verdicts.index(False)]

    explanation = explain(check(history, Register()).keys[KEY], history, Register())

    assert {o.returned_at for o in explanation.culprits} == {first_bad}
    answered = [o for o in history if o.returned_at is not None and o.returned_at < first_bad]
    placed = {(o.called_at, o.kind) for o in explanation.prefix}
    assert placed >= {(o.called_at, o.kind) for o in answered if o.error != "NoLeader"}


def _until(history: list[Operation], moment: int) -> list[Operation]:
    return [
        o if o.returned_at is None or o.returned_at <= moment else o.as_unknown()
        for o in history
        if o.called_at <= moment
    ]


def test_a_bad_key_is_found_among_good_ones() -> None:
    """One bad key makes the history bad and is named; the others keep their verdict."""
    bad = KNOWN_BAD["a lost update"]
    history = []
    for number, good in enumerate(KNOWN_GOOD.values()):
        history += [_moved(o, f"/good{number}") for o in good]
    history += [_moved(o, "/bad") for o in bad]

    result = check(history, Register())

    assert result.verdict is Verdict.NOT_LINEARIZABLE
    assert [key.key for key in result.bad_keys()] == ["/bad"]


def _moved(o: Operation, key: str) -> Operation:
    return Operation(o.client, key, o.kind, o.input, o.output, o.called_at, o.returned_at)
