"""Reading a long table of a snapshot in a thread does not hold up the others."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from coordinator.state.recency_map import RecencyMap
from coordinator.state.thread_breaks import with_breaks

PAIRS = [(number, str(number)) for number in range(100_000)]
TURNS_MIN = 10
TRIES = 10


@contextmanager
def switching_soon() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def turns_of_another_thread(work: Callable[[], object]) -> int:
    """Return how often another thread came to its turn during ``work``."""
    turns = 0
    is_over = False

    def take_turns() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            time.sleep(0)

    other = threading.Thread(target=take_turns)
    with switching_soon():
        other.start()
        while not turns:
            time.sleep(0)
        before = turns
        work()
        found = turns - before
        is_over = True
        other.join()
    return found


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_700])
def test_all_values_are_there_in_their_order(count: int) -> None:
    assert list(with_breaks(iter(range(count)))) == list(range(count))


def test_a_table_of_many_clients_is_made_with_breaks() -> None:
    """In one loop of C another thread waits for all of it: some 50 ms where a cluster remembers as
    many clients as it may. Tried some times, for the machine may not let it run."""
    assert any(
        turns_of_another_thread(lambda: RecencyMap(PAIRS)) >= TURNS_MIN for _ in range(TRIES)
    )
