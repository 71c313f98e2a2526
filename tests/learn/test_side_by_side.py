"""Redis and Redlock in simulated time, beside a lease with tokens: who breaks, and who does not."""

from __future__ import annotations

import pytest

from coordinator.learn.redlock import LeaseLock, Master, Redlock, Store
from coordinator.learn.side_by_side import SCHEDULES, films

FILMS = films()
NEAR = {f"m{number}": 10 for number in range(1, 6)}


def masters(count: int = 5) -> tuple[Master, ...]:
    return tuple(Master(f"m{number}") for number in range(1, count + 1))


def test_a_majority_holds_and_a_minority_does_not() -> None:
    """Three of five; what a minority took is given back."""
    lock = Redlock(masters(), 5_000)
    few = lock.acquire("B", 0, {"m1": 10, "m2": 10, "m3": None, "m4": None, "m5": None})
    most = lock.acquire("A", 100, {**NEAR, "m4": None, "m5": None})

    assert not few.is_holder
    assert most.is_holder
    assert most.granted_by == ("m1", "m2", "m3")
    assert lock.holders(200) == {"m1": "A", "m2": "A", "m3": "A", "m4": "", "m5": ""}


def test_two_never_hold_while_nothing_goes_wrong() -> None:
    """The algorithm does what it says, with clocks and masters that behave."""
    lock = Redlock(masters(), 5_000)
    first = lock.acquire("A", 0, NEAR)

    assert not lock.acquire("B", first.until_ms - 100, NEAR).is_holder
    assert lock.acquire("B", 5_100, NEAR).is_holder


def test_late_answers_are_caught() -> None:
    """What took longer than the time to live is not held, and is given back."""
    lock = Redlock(masters(), 5_000)
    late = lock.acquire("A", 0, dict.fromkeys(NEAR, 2_000))

    assert len(late.granted_by) == 5
    assert not late.is_holder
    assert set(lock.holders(10_000).values()) == {""}


def test_a_jump_of_one_clock_makes_two_holders() -> None:
    """Both believe at the same time, and both are right by the rules of Redlock."""
    lock = Redlock(masters(), 5_000)
    first = lock.acquire("A", 0, {**NEAR, "m4": None, "m5": None})
    lock.masters[2].clock_ahead_ms = 5_000
    second = lock.acquire("B", 1_000, {**NEAR, "m1": None, "m2": None})

    assert second.is_holder
    assert second.asked_ms < first.until_ms


def test_ours_keeps_one_holder_and_tokens_grow() -> None:
    lock = LeaseLock(5_000)

    assert lock.enter("A", 0) == 33
    assert lock.enter("B", 100) == 34
    assert not lock.expire(4_999)
    assert lock.expire(5_000)
    assert (lock.holder, lock.token, lock.zxid) == ("B", 34, 35)


def test_a_store_refuses_what_is_lower_and_takes_what_is_equal() -> None:
    store = Store()

    assert store.write("by B", 34)
    assert not store.write("by A", 33)
    assert store.write("by B again", 34)
    assert store.value == "by B again"


@pytest.mark.parametrize("name", FILMS)
def test_theirs_loses_work_and_ours_does_not(name: str) -> None:
    """In every schedule, on one master and on five."""
    end = FILMS[name].state()

    assert end["theirs"]["store"]["value"] == "by A"
    assert "lost" in end["theirs"]["damage"]
    assert end["ours"]["store"]["value"] == "by B"
    assert "damage" not in end["ours"]


def test_a_late_write_is_blocked_by_its_token() -> None:
    assert FILMS["redlock-long-pause"].state()["ours"]["shield"] == "BLOCKED 33 < 35"
    assert FILMS["redlock-late-packet"].state()["ours"]["shield"] == "BLOCKED 33 < 35"


def test_delayed_restarts_are_said_to_be_a_cure() -> None:
    """Two of five, one of them missing: what the specification of Redlock advises works."""
    texts = [step.text for step in FILMS["redlock-lost-master"].steps]

    assert any("B would have got 2 of 5" in text for text in texts)


@pytest.mark.parametrize("name", FILMS)
def test_both_authors_are_heard(name: str) -> None:
    """One sentence each at the least, and the defender has the last word."""
    speakers = [step.who for step in FILMS[name].steps[-2:]]

    assert speakers == ["Kleppmann", "antirez"]


def test_films_are_the_same_each_time() -> None:
    assert {name: film.to_json() for name, film in films().items()} == {
        name: film.to_json() for name, film in FILMS.items()
    }
    assert len(FILMS) == 2 * len(SCHEDULES)
