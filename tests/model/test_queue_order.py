"""The one decision of every lock: who holds, and whom the others watch."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from coordinator.model.queue_order import holder, holders, kind_of, place_of, sequence_of


def sorted_contenders(names: Iterable[str]) -> list[str]:
    """Return the contenders among ``names``, in their order."""
    numbered = [(sequence_of(name), name) for name in names]
    known = sorted([(number, name) for number, name in numbered if number is not None])
    return [name for _, name in known if kind_of(name) != "closed"]


def test_lowest_sequence_holds_and_others_watch_their_predecessor() -> None:
    """Three contenders: the first holds, the third watches the second."""
    names = ["lock-0000000007", "lock-0000000009", "lock-0000000012"]

    assert place_of(names, names[0]).is_holder
    assert place_of(names, names[2]).predecessor == "lock-0000000009"
    assert place_of(names, names[2]).position == 2


def test_prefixes_do_not_change_the_order() -> None:
    """Names are compared by their number, not as strings."""
    names = ["zzz-0000000001", "aaa-0000000002"]

    assert holder(names) == "zzz-0000000001"
    assert place_of(names, "aaa-0000000002").predecessor == "zzz-0000000001"


def test_numbers_wider_than_ten_digits_sort_as_numbers() -> None:
    """A queue that passed 9999999999 keeps its order."""
    names = ["lock-10000000000", "lock-9999999999"]

    assert holder(names) == "lock-9999999999"


def test_a_departed_contender_is_not_queued() -> None:
    """Who is not among the names holds nothing, even when nobody else does."""
    assert not place_of([], "lock-0000000001").is_queued
    assert not place_of([], "lock-0000000001").is_holder


def test_readers_hold_together_and_watch_the_writer_before_them() -> None:
    """A reader behind a writer waits for the writer, not for the readers between."""
    names = ["read-0000000001", "read-0000000002", "lock-0000000003", "read-0000000004",
             "read-0000000005"]  # fmt: skip

    assert holders(names) == names[:2]
    assert place_of(names, "read-0000000005").predecessor == "lock-0000000003"
    assert place_of(names, "lock-0000000003").predecessor == "read-0000000002"


def test_slots_hold_up_to_the_size() -> None:
    """The third of three waits for a semaphore of two, and watches the queue, not one of them."""
    names = ["slot-0000000001", "slot-0000000002", "slot-0000000003"]

    assert holders(names, 2) == names[:2]
    assert not place_of(names, "slot-0000000003", 2).is_holder
    assert place_of(names, "slot-0000000003", 2).predecessor is None
    assert place_of(names, "slot-0000000002", 2).is_holder


def test_a_closed_queue_grants_nobody_behind() -> None:
    """A lock-delay stands in the way of all numbered above it, and of nobody else."""
    names = ["read-0000000001", "delay-0-0000000001", "read-0000000002"]

    assert holders(names) == ["read-0000000001"]
    assert place_of(names, "read-0000000002").predecessor == "delay-0-0000000001"
    assert sorted_contenders(names) == ["read-0000000001", "read-0000000002"]
    assert not place_of(names, "delay-0-0000000001").is_queued


def test_numbers_too_long_for_a_grant_id_are_no_numbers() -> None:
    """Nineteen digits are a name made by hand, and nobody's place."""
    assert sequence_of("lock-" + "9" * 18) == 10**18 - 1
    assert sequence_of("lock-" + "9" * 19) is None


prefixes = st.sampled_from(["lock-", "read-", "slot-", "delay-"])


@given(
    st.lists(st.tuples(prefixes, st.integers(0, 6)), max_size=7, unique_by=lambda each: each[1]),
    st.integers(1, 3),
)
def test_each_decides_as_all_do_together(places: list[tuple[str, int]], size: int) -> None:
    """``place_of`` one and ``holders`` of all are one decision."""
    names = [f"{prefix}{number:010d}" for prefix, number in places]

    found = [name for name in sorted_contenders(names) if place_of(names, name, size).is_holder]

    assert found == holders(names, size)


def test_strangers_are_ignored() -> None:
    """A child without a number neither holds nor is watched."""
    names = ["config", "lock-12", "lock-0000000003"]

    assert sequence_of("lock-12") is None
    assert holder(names) == "lock-0000000003"
    assert place_of(names, "lock-0000000003").is_holder


@given(st.sets(st.integers(min_value=0, max_value=10**12), min_size=1, max_size=40))
def test_each_contender_watches_exactly_the_one_before_it(numbers: set[int]) -> None:
    """The watches form one chain: a release wakes one waiter."""
    names = [f"lock-{number:010d}" for number in numbers]
    order = sorted_contenders(names)

    assert [place_of(names, name).position for name in order] == list(range(len(order)))
    assert [place_of(names, name).predecessor for name in order] == [None, *order[:-1]]
    assert holder(names) == order[0]
