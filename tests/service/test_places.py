"""What the clients of a member share: none takes all, operators find the last."""

from __future__ import annotations

import pytest

from coordinator.errors import ThrottledError
from coordinator.service.base.places import SharedPlaces


def taken(places: SharedPlaces, client: str, *, takes_the_last: bool = False) -> int:
    """Take all that a client gets; return how many."""
    while True:
        try:
            places.take(client, takes_the_last=takes_the_last)
        except ThrottledError:
            return places.held_by(client)


def test_one_takes_half_and_the_next_half_of_the_rest() -> None:
    """However many are greedy, one more finds room."""
    places = SharedPlaces(1_000, "things", "limits.things_max")

    got = [taken(places, f"greedy {number}") for number in range(6)]

    assert got == [490, 245, 122, 61, 31, 15]
    places.take("new", 10)
    places.give_back("greedy 0", 490)
    assert taken(places, "greedy 5") > 100, "what is given back is for all"


def test_the_last_are_for_operators() -> None:
    """Two of a hundred."""
    places = SharedPlaces(100, "things", "limits.things_max")
    for number in range(98):
        places.take(f"client {number}")

    with pytest.raises(ThrottledError, match=r"at most 98 things \(limits.things_max\), found 98"):
        places.take("new", takes_the_last=False)
    for number in range(2):
        places.take(f"operator {number}", takes_the_last=True)
    with pytest.raises(ThrottledError, match="found 100 and 1 more"):
        places.take("another", takes_the_last=True)
