"""A dict in parts: as a plain dict whatever happens, in few parts, and in short steps."""

from __future__ import annotations

import random
import time

import pytest

from coordinator.state.emptying import emptied
from coordinator.state.large_map import PART_MAX, LargeMap
from tests.amount import drawn


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(drawn(60)))
def test_it_is_a_plain_dict(seed: int) -> None:
    """Values, lengths and order, with parts that fill, shrink, are joined and go."""
    chance = random.Random(seed)
    found, plain = LargeMap[str, int]((), part_max=8), dict[str, int]()
    parts_met = set()
    for step in range(1_500):
        key = f"k{chance.randrange(60)}"
        rising = step // 150 % 2 == 0
        match chance.randrange(10):
            case 0 | 1:
                found[key] = plain[key] = step
            case 2 | 3 | 4 if rising:
                found[key] = plain[key] = step
            case 2 | 3 | 4 | 5:
                assert found.pop(key, None) == plain.pop(key, None)
            case 6 if key in plain:
                del found[key], plain[key]
            case 7:
                assert found.setdefault(key, step) == plain.setdefault(key, step)
            case _:
                assert list(found) == list(plain)
        assert len(found) == len(plain)
        assert found.get(key) == plain.get(key)
        assert (key in found) == (key in plain)
        some = [f"k{chance.randrange(60)}" for _ in range(3)]
        assert found.get_all(some) == [plain.get(each) for each in some]
        assert found.has_any(some) == any(each in plain for each in some)
        assert list(found.items()) == list(plain.items()), "the order, too"
        parts_met.add(len(found.parts))
        assert all(len(part) <= 8 for part in found.parts)
    assert {1, 2, 3} <= parts_met
    assert list(found.values()) == list(plain.values())
    assert (len(found.items()), len(found.values())) == (len(plain), len(plain))


@pytest.mark.parametrize("several", [False, True])
def test_a_key_that_is_not_there_is_refused(several: bool) -> None:
    """As by a dict."""
    found = LargeMap((str(number), number) for number in range(20))
    if several:
        found = LargeMap(found.items(), part_max=4)
    for act in (found.__getitem__, found.__delitem__, found.pop):
        with pytest.raises(KeyError):
            act("b")
    assert found.pop("b", 7) == 7
    assert found.get("b", 8) == 8


def test_few_parts_are_left_of_many() -> None:
    """Each part keeps one key in a hundred: they are joined, a few keys with each change."""
    found, part_max = LargeMap[int, int]((), part_max=1_000), 1_000
    for number in range(100_000):
        found[number] = number
        if number % 100:
            before = {id(part): len(part) for part in found.parts}
            del found[number]
            moved = [len(part) - before.get(id(part), 0) for part in found.parts]
            assert max(moved) <= 8, "no more than a few are moved with one change"

    assert list(found) == list(range(0, 100_000, 100))
    assert len(found.parts) <= 4 * len(found) // part_max + 3


def test_it_is_one_dict_again_when_little_is_left() -> None:
    """Looking up is then the dict's own method again."""
    found = LargeMap(((number, number) for number in range(4_000)), part_max=1_000)
    assert len(found.parts) == 5
    for number in range(3_900):
        del found[number]
    found[0] = 0
    for number in range(3_900, 4_000):
        del found[number]
    assert list(found.items()) == [(0, 0)]
    assert len(found.parts) <= 2
    found.clear()
    assert len(found.parts) == 1
    assert found.get.__self__ is found.parts[0]


def test_it_is_emptied_step_by_step() -> None:
    """Also what its values contain."""
    found = LargeMap(((number, [number] * 3) for number in range(20)), part_max=6)
    assert len(list(emptied(found))) == 20 * 4
    assert not found
    assert found.parts == ({},)


@pytest.mark.check
def test_no_change_of_a_million_keys_is_long() -> None:
    """By the processor's clock, the least of some tries; a plain dict takes up to 95 ms here."""
    least = float("inf")
    for _ in range(3):
        found, longest = LargeMap[str, int](), 0.0
        for number in range(1_000_000):
            began = time.thread_time()
            found[f"/locks/{number:09}"] = number
            longest = max(longest, time.thread_time() - began)
        least = min(least, longest)
    assert least <= 0.020
    assert len(found.parts) == 1 + 1_000_000 // PART_MAX
