"""The order of ended grants (state/locks/grant_order.py), beside a list that is always sorted."""

from __future__ import annotations

import random

import pytest

from coordinator.state.commands import Kind
from coordinator.state.locks import grant_order
from coordinator.state.locks.contender import ContenderRecord, Departure, EndedGrant, Ending
from coordinator.state.locks.grant_order import GrantOrder, number_of


def ended(number: int) -> EndedGrant:
    path = f"/locks/a/lock-{number:010}"
    contender = ContenderRecord(
        path=path,
        number=number,
        czxid=2 * number,
        kind=Kind.SHARED,
        session_id=None,
        data=b"",
        entered_ms=0,
        grant_number=number,
    )
    return EndedGrant(
        contender,
        ended_zxid=0,
        ended_ms=0,
        departure=Departure(how=Ending.RELEASED, term=0, by="", reason="", silent_ms=0),
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_the_rest_is_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found from any number on, whether that is there or not."""
    monkeypatch.setattr(grant_order, "_CHUNK_MAX", 4)
    chance, order = random.Random(seed), GrantOrder()
    kept: list[EndedGrant] = []
    coming = [ended(number) for number in range(1, 120)]
    for _ in range(400):
        if coming and chance.random() < 0.5:
            one = coming.pop(0 if chance.random() < 0.5 else chance.randrange(len(coming)))
            kept.append(one)
            order.add(one, number_of(one))
        elif kept:
            order.remove(kept.pop(0 if chance.random() < 0.5 else chance.randrange(len(kept))))
        value = chance.randrange(130)
        expected = sorted([each for each in kept if number_of(each) >= value], key=number_of)
        assert list(order.since(value, number_of)) == expected


def test_two_grants_of_one_number_are_refused() -> None:
    """A snapshot that holds them is not one of ours."""
    order = GrantOrder()
    order.add(ended(1), 1)
    order.add(ended(2), 2)
    with pytest.raises(ValueError, match="two grants have the number 1"):
        order.add(ended(1), 1)
