"""A map that can be captured: as a plain dict, its captures as they were, and in short steps."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from coordinator.state.large_map import LargeMap, Parts
from tests.amount import drawn


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(drawn(60)))
@pytest.mark.parametrize("part_max", [5, 1_000])
def test_it_is_a_plain_dict_with_captures(seed: int, part_max: int) -> None:
    """Values, lengths and order, whatever is held meanwhile; and no capture ever changes.

    Of one dict, and of several parts that come and go."""
    chance = random.Random(seed)
    found, plain = LargeMap[str, int]((), part_max), dict[str, int]()
    held: list[tuple[Mapping[str, int], list[tuple[str, int]], Any]] = []
    for step in range(600):
        key = f"k{chance.randrange(25)}"
        match chance.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                found[key] = plain[key] = step
            case 5 | 6 | 7 | 8:
                assert found.pop(key, None) == plain.pop(key, None)
            case 9:
                captured, hold = found.capture()
                held.append((captured, list(plain.items()), hold))
            case 10 if held:
                held.pop(chance.randrange(len(held)))
            case _:
                assert sorted(found.items()) == sorted(plain.items())
        if step % 40 == 39:
            assert not found.merge_some()
        assert len(found) == len(plain)
        assert found.get(key) == plain.get(key)
        assert (key in found) == (key in plain)
        for captured, was, _ in held:
            assert list(captured.items()) == was
    held.clear()

    last, _hold = found.capture()

    assert list(last.items()) == list(plain.items()), "the order, too"


def test_no_step_is_long() -> None:
    """Counted: what a capture copies, and what one change moves when it has been let go of."""
    found = LargeMap[str, int]()
    for number in range(100_000):
        found[str(number)] = number
    captured, hold = found.capture()
    assert isinstance(captured, Parts)
    assert [id(part) for part in captured.parts] == [id(part) for part in found.parts]
    for number in range(5_000):
        found[str(number)] = -number
    assert found._beside is not None
    assert len(captured) == 100_000
    assert captured["7"] == 7
    del hold

    for number in range(1_000):
        before = len(found._beside or ())
        found["again"] = number
        assert before - len(found._beside or ()) <= 8

    assert found._beside is None
    assert found["7"] == -7


def test_a_key_that_is_not_there_is_refused() -> None:
    """As by a dict, captured or not."""
    found = LargeMap[str, int]([("a", 1)])
    for _ in range(2):
        with pytest.raises(KeyError):
            del found["b"]
        with pytest.raises(KeyError):
            found["b"]
        _captured, _hold = found.capture()
