"""What belongs to the latest changes: order, places, and memory that is given up."""

from __future__ import annotations

import random

from coordinator.model.events import Change
from coordinator.service.watches.watch_history import Recent


def test_it_does_what_a_dict_in_order_does() -> None:
    """Thousands of steps drawn at random, also across the places that are given up in bulk."""
    draw, recent, model = random.Random(7), Recent[Change](), dict[int, Change]()
    zxid = 0
    for step in range(6_000):
        if draw.random() < (0.7 if step % 2_000 < 1_200 else 0.2):
            zxid += draw.randrange(1, 4)
            change = model[zxid] = Change(zxid, ())
            recent.append(change)
        elif model:
            oldest = model.pop(next(iter(model)))
            assert recent.pop_first() is oldest
        if step % 50 == 0:
            assert [recent.at(place) for place in range(len(recent))] == list(model.values())
            for known in (0, draw.randrange(zxid + 2), zxid, zxid + 1):
                assert recent.get(known) is model.get(known)
                assert recent.place_after(known) == sum(each <= known for each in model)
            if draw.random() < 0.02:
                recent.clear()
                model.clear()


def test_the_places_of_those_that_went_are_given_up() -> None:
    recent = Recent[Change]()
    for zxid in range(1, 10_001):
        recent.append(Change(zxid, ()))
        if zxid > 10:
            recent.pop_first()

    assert len(recent) == 10
    assert len(recent._kept) <= 2_048
    assert recent.at(0).zxid == 9_991
