"""The map by last use: as an OrderedDict, its captures as they were, and in short steps."""

from __future__ import annotations

import random
from collections import OrderedDict
from itertools import islice
from typing import Any

import pytest

from coordinator.state.recency_map import RecencyMap
from tests.amount import drawn


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(drawn(60)))
@pytest.mark.parametrize("key_count", [8, 60])
def test_it_is_an_ordered_dict_with_captures(seed: int, key_count: int) -> None:
    """Values, lengths and order after each step, whatever is held; and no capture ever changes."""
    chance = random.Random(seed)
    found, plain = RecencyMap[str, int](), OrderedDict[str, int]()
    held: list[tuple[Any, list[tuple[str, int]], Any]] = []
    left = 0
    for step in range(800):
        key = f"k{chance.randrange(key_count)}"
        match chance.randrange(13):
            case 0 | 1 | 2 | 3 | 4 | 5:
                found.use(key, step)
                plain[key] = step
                plain.move_to_end(key)
            case 6 | 7:
                assert found.pop(key, -1) == plain.pop(key, -1)
            case 8 | 9 if plain:
                assert found.first() == next(iter(plain))
                assert found.pop_first() == plain.popitem(last=False)
            case 10 if step % 5 == 0:
                captured, hold = found.capture()
                held.append((captured, list(plain.items()), hold))
            case 11 if held:
                held.pop(chance.randrange(len(held)))
        if step % 40 == 39:
            assert not found.merge_some()
        if step % 3 == 0:
            assert found.first("none") == next(iter(plain), "none")
        assert len(found) == len(plain)
        assert found.get(key) == plain.get(key)
        assert (key in found) == (key in plain)
        assert list(found.items()) == list(plain.items()), "the order, too"
        assert list(reversed(found)) == list(reversed(plain))
        assert part_of(found, left) == list(reversed(list(plain)[:left]))[:3]
        left = max(left - 3, 0) if chance.randrange(9) else len(plain)
        for captured, was, _ in held:
            assert list(captured.items()) == was
            assert len(captured) == len(was)


def part_of(found: RecencyMap[str, int], left: int) -> list[str]:
    """Walk through three keys, and keep the walk for who comes next."""
    left = min(left, len(found))
    keys = found.walk(left)
    part = list(islice(keys, 3))
    if left > 3:
        found.keep_walk(left - 3, keys)
    return part


def test_a_walk_in_parts_goes_on_where_it_was_until_something_changes() -> None:
    """It begins at the nearer end; to begin again costs what lies before it."""
    for left in (100, 40):
        found = RecencyMap((str(number), number) for number in range(100))
        keys = found.walk(left)
        assert next(keys) == str(left - 1)
        found.keep_walk(left - 1, keys)
        assert found.walk(left - 1) is keys
        assert next(keys) == str(left - 2)
        found.keep_walk(left - 2, keys)
        assert found.walk(left - 3) is not keys, "it is not this one"

        for change in ("use", "pop", "capture"):
            again = found.walk(90)
            found.keep_walk(90, again)
            held = None
            if change == "use":
                found.use("0", -1)
            elif change == "pop":
                found.pop("5", 0)
            else:
                held = found.capture()
            assert found.walk(90) is not again
            assert list(found.walk(90)) == list(found)[:90][::-1]
        del held


def test_no_step_is_long() -> None:
    """Counted: nothing is copied, and a use merges a few of what lies beside the capture."""
    found = RecencyMap((str(number), number) for number in range(50_000))
    captured, hold = found.capture()
    base = found._base
    for number in range(0, 4_000, 2):
        found.use(str(number), -number)
    assert [found.pop_first() for _ in range(1_000)][-1] == ("1999", 1_999)
    assert found._base is base
    assert len(base) == len(captured) == 50_000
    del hold

    merged = 0
    while found._beside is not None:
        before = len(found._beside) + len(found._passed)
        found.use("again", merged)
        assert before - len(found._beside or ()) - len(found._passed) <= 12, (
            "4 keys, and 4 uses with theirs"
        )
        merged += 1
        assert merged < 2_000, "it comes to an end"

    assert found._base is base
    assert found.first() == "2001"
    assert list(found)[-3:] == ["3996", "3998", "again"]


def test_what_is_removed_merges_as_what_is_used_does() -> None:
    """So a table that only shrinks is whole again some time after a capture."""
    found = RecencyMap((str(number), number) for number in range(1_000))
    assert found
    _captured, hold = found.capture()
    for number in range(400):
        found.use(str(number), -number)
    del hold

    for number in range(999, 800, -1):
        assert found.pop(str(number), None) == number

    assert found._beside is None
    assert len(found) == 801
    assert not RecencyMap[str, int]()
    assert RecencyMap([("a", 1)])


def test_the_first_is_found_beyond_many_that_are_passed() -> None:
    """Right after the capture was let go of, when all that was used since is still in its place."""
    found = RecencyMap((number, number) for number in range(5_000))
    _captured, hold = found.capture()
    for number in range(4_000):
        found.use(number, number)
    del hold, _captured
    assert [found.pop_first()[0] for _ in range(1_001)] == [*range(4_000, 5_000), 0]
    assert list(found) == list(range(1, 4_000))


@pytest.mark.parametrize("is_let_go_of", [False, True])
def test_what_is_given_up_is_all_of_it(is_let_go_of: bool) -> None:
    """And nothing is left."""
    found = RecencyMap([("a", 1), ("b", 2)])
    _captured, hold = found.capture()
    found.use("c", 3)
    if is_let_go_of:
        del hold
        found.use("d", 4)
    else:
        assert found.pop("b", None) == 2
    parts = found.given_up()
    assert sorted(key for part in parts for key in part)[:3] == ["a", "b", "c"]
    assert (len(found), list(found), found.first("none")) == (0, [], "none")
    with pytest.raises(KeyError):
        found["a"]
    found.use("b", 9)
    _captured, hold = found.capture()
    assert (found.get("b"), len(found)) == (9, 1), "it may be used again"
