"""The decision of every lock at its edges: what small changes of it would turn around."""

from __future__ import annotations

from coordinator.model.queue_order import holders, place_of


def test_what_is_no_contender_stands_nowhere() -> None:
    """A name without a number, and what closes the queue."""
    names = ["plain", "delay-0000000001", "lock-0000000002"]

    assert not place_of(names, "plain").is_queued
    assert not place_of(names, "delay-0000000001").is_queued
    assert place_of(names, "plain").position == -1


def test_a_queue_is_closed_to_the_numbers_above() -> None:
    """Who has the very number of what closes it stands before it."""
    names = ["delay-0000000005", "lock-0000000005", "lock-0000000006"]

    assert holders(names) == ["lock-0000000005"]
    assert place_of(names, "lock-0000000005").is_holder
    assert place_of(names, "lock-0000000006").predecessor == "lock-0000000005"


def test_who_waits_is_queued() -> None:
    """With its place, and whom to watch."""
    found = place_of(["lock-0000000001", "lock-0000000002"], "lock-0000000002")

    assert (found.is_queued, found.position, found.is_holder) == (True, 1, False)


def test_a_slot_behind_another_kind_watches_the_queue() -> None:
    """The one before it going does not make it a holder by itself."""
    names = ["lock-0000000001", "slot-0000000002"]

    found = place_of(names, "slot-0000000002", 2)

    assert (found.is_holder, found.predecessor) == (False, None)
