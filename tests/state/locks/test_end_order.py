"""Ended grants in the order of their ends (state/locks/end_order.py), beside a plain list."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from coordinator.state.locks import end_order
from coordinator.state.locks.end_order import EndOrder
from tests.state.locks.test_grant_order import ended


@pytest.mark.parametrize("seed", range(20))
def test_whatever_goes_the_rest_is_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several end in one command, and any of them may go."""
    monkeypatch.setattr(end_order, "_CHUNK_MAX", 4)
    chance, order, kept, zxid = random.Random(seed), EndOrder(), [], 1
    for number in range(1, 200):
        zxid += chance.random() < 0.5
        grant = replace(ended(number), ended_zxid=zxid)
        order.add(grant)
        kept.append(grant)
        while kept and chance.random() < 0.45:
            order.remove(kept.pop(chance.randrange(len(kept))))

        assert list(order) == kept
        assert list(reversed(order)) == kept[::-1]
        assert len(order) == len(kept)
        assert not kept or order.first() is kept[0]

    for _ in order.emptied():
        pass
    assert list(order) == []
