"""Histories that a correct service can produce: the checker must accept every one."""

from __future__ import annotations

import pytest

from tests.history.checker import check
from tests.history.operations import Operation
from tests.history.oracle import is_linearizable
from tests.history.register import Register
from tests.history.search import Verdict
from tests.history.shorthand import create, delete, read, set_, stale_read

KNOWN_GOOD: dict[str, list[Operation]] = {
    "nothing happened": [],
    "a write and its read": [create(1, 2, "a", version=0, zxid=1), read(3, 4, "a", version=0)],
    "a read before the znode": [read(1, 2), create(3, 4, "a")],
    "a read beside a write may see it": [create(1, 2, "a"), set_(3, 6, "b"), read(4, 5, "b")],
    "a read beside a write may miss it": [create(1, 2, "a"), set_(3, 6, "b"), read(4, 5, "a")],
    "two reads beside a write, old then new": [
        create(1, 2, "a"), set_(3, 8, "b"), read(4, 5, "a"), read(6, 7, "b"),
    ],
    "concurrent writes in either order": [
        create(1, 2, "a"), set_(3, 6, "b", version=2), set_(4, 5, "c", version=1),
        read(7, 8, "b", version=2),
    ],
    "touching at one instant is concurrent": [create(1, 2, "a"), set_(3, 5, "b"), read(5, 6, "a")],
    "unknown write that took effect": [create(1, 2, "a"), set_(3, None, "b"), read(5, 6, "b")],
    "unknown write that did not": [
        create(1, 2, "a"), set_(3, None, "b"), read(5, 6, "a"), set_(7, 8, "c", version=1),
    ],
    "unknown write that took effect late": [
        create(1, 2, "a"), set_(3, None, "b"), read(5, 6, "a", version=0),
        set_(7, 8, "c", version=1), read(9, 10, "b", version=2),
    ],
    "unknown write nobody saw, told by the version alone": [
        create(1, 2, "a"), set_(3, None, "b"), set_(5, 6, "c", version=2),
    ],
    "one of two unknown writes": [
        create(1, 2, "a"), set_(3, None, "b"), set_(4, None, "c"),
        set_(5, 6, "d", version=2), read(7, 8, "d", version=2),
    ],
    "unknown create, then NodeExists": [
        create(1, None, "a"), create(3, 4, "b", no="NodeExists"), read(5, 6, "a", version=0),
    ],
    "unknown delete, then a new znode": [
        create(1, 2, "a", czxid=1), delete(3, None), create(5, 6, "b", czxid=4),
        read(7, 8, "b", version=0, czxid=4),
    ],
    "unknown delete of which nothing came": [
        create(1, 2, "a"), delete(3, None), set_(5, 6, "b", version=1),
    ],
    "unknown conditional write that no longer fits": [
        create(1, 2, "a"), set_(3, None, "b", expected=0), set_(4, 5, "c", version=1),
        read(6, 7, "c", version=1),
    ],
    "the winner of two conditional writes": [
        create(1, 2, "a"), set_(3, 6, "b", expected=0, version=1),
        set_(4, 7, "c", expected=0, no="BadVersion"), read(8, 9, "b", version=1),
    ],
    "conditional write lost to an unknown one": [
        create(1, 2, "a"), set_(3, None, "b", expected=0),
        set_(5, 6, "c", expected=0, no="BadVersion"), read(7, 8, "b", version=1),
    ],
    "deleted and created anew, versions start again": [
        create(1, 2, "a", zxid=1), set_(3, 4, "b", version=1, zxid=2), delete(5, 6, zxid=3),
        create(7, 8, "c", version=0, zxid=4), read(9, 10, "c", version=0, czxid=4, mzxid=4),
    ],
    "a conditional write meets the next incarnation at the same version": [
        create(1, 2, "a"), delete(3, 4), create(5, 6, "b"), set_(7, 8, "c", expected=0, version=1),
    ],
    "gaps between zxids belong to other keys": [
        create(1, 2, "a", zxid=3), set_(3, 4, "b", zxid=9), read(5, 6, "b", mzxid=9, zxid=20),
    ],
    "zxids order writes that overlap": [
        create(1, 2, "a", zxid=1), set_(3, 8, "b", zxid=3), set_(4, 7, "c", zxid=2),
        read(9, 10, "b", version=2, mzxid=3),
    ],
    "two unknown writes fit between two zxids": [
        create(1, 2, "a", zxid=1), set_(3, None, "b"), set_(4, None, "c"),
        set_(5, 6, "d", version=3, zxid=4),
    ],
    "a definite refusal of another kind says nothing": [
        create(1, 2, "a"), set_(3, 4, "b", no="NoLeader"), read(5, 6, "a", version=0),
    ],
    "a full znode is not deleted": [
        create(1, 2, "a"), delete(3, 4, no="NotEmpty"), read(5, 6, "a"),
    ],
    "a stale read shows the past": [
        create(1, 2, "a"), set_(3, 4, "b"), stale_read(5, 6, "a"), stale_read(7, 8),
        read(9, 10, "b"),
    ],
    "only the Stat was asked for": [
        create(1, 2, "a", zxid=5), read(3, 4, version=0, czxid=5, mzxid=5),
    ],
    "the same value twice": [
        create(1, 2, "a"), set_(3, 4, "b"), set_(5, 6, "a", version=2), read(7, 8, "a", version=2),
    ],
    "of two unknown writes the one that is not needed later": [
        create(1, 2, "a"), set_(3, None, "b"), set_(3, None, "c"), set_(3, None, "b", expected=7),
        set_(4, 5, "d", version=2), read(6, 7, "b", version=3),
    ],
    "an unknown incarnation in between, told by the czxid alone": [
        create(1, 2, "a", zxid=1), delete(3, None), create(3, None, "b"),
        set_(3, None, "d", expected=7), set_(4, 5, "d", version=1, zxid=9),
        read(6, 7, "d", czxid=4),
    ],
    "a store's zxid read before a write that is unknown": [
        create(1, None, "a"), read(2, 3, "a", zxid=5), set_(4, 5, "b", zxid=6), read(6, 7, "b"),
    ],
    "one incarnation is deleted, not the next": [
        create(1, 2, "a", czxid=1), delete(3, None, czxid=1), delete(4, 5, zxid=2),
        create(6, 7, "b", czxid=3), read(8, 9, "b", czxid=3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN_GOOD)
def test_accepts(name: str) -> None:
    """A history that a correct service can produce is accepted, whatever the order of its lines."""
    history = KNOWN_GOOD[name]

    forwards = check(history, Register())
    backwards = check(reversed(history), Register())

    assert forwards.verdict is Verdict.OK
    assert backwards.verdict is Verdict.OK


@pytest.mark.parametrize("name", KNOWN_GOOD)
def test_the_brute_force_agrees(name: str) -> None:
    """The list itself is right: the brute-force search accepts every entry too."""
    assert is_linearizable(KNOWN_GOOD[name])


@pytest.mark.parametrize("name", KNOWN_GOOD)
def test_is_still_good_with_fewer_answers(name: str) -> None:
    """Losing any one answer never makes a good history bad."""
    history = KNOWN_GOOD[name]
    for index, operation in enumerate(history):
        fewer = [*history[:index], operation.as_unknown(), *history[index + 1 :]]

        assert check(fewer, Register()).is_ok, f"without the answer of {operation}"
