"""Deadlocks: refused exactly when an attempt would wait for ever, by the word of brute force.

The oracle knows nothing of reductions: it lets the owners who wait for nothing give back what they
hold in every order there is, and looks whether the one who asks is ever served.
"""

from __future__ import annotations

import time

import pytest

from coordinator.model.limits import NEW_CLUSTER, MachineLimits
from coordinator.state.commands import (
    CloseSession,
    Kind,
    OpenSession,
    Resize,
    SetLimits,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered
from tests.loop_meter import HELD_MS_MAX, fixed_work_speed
from tests.state.locks.deadlock_scenes import Locks, cycle_of


def test_two_owners_in_opposite_order_close_a_cycle() -> None:
    """The request that closes it is refused and told; the other one goes on waiting."""
    locks = Locks()
    locks.granted("t1", "a")
    locks.granted("t2", "b", session_id="s2")
    locks.waiting("t1", "b")
    before = locks.machine.digest()

    refused = locks.enter("t2", "a", session_id="s2")

    assert cycle_of(refused) == [("t2", "b", "a"), ("t1", "a", "b")]
    assert locks.machine.digest() == before
    assert refused.refusal is not None
    assert "'t2' of session s2 (holds 'b') waits for 'a'" in refused.refusal.message


def test_a_cycle_through_a_contender_that_waits_first_says_so() -> None:
    """t1 does not hold `a`, but is before t2 there."""
    locks = Locks()
    locks.granted("t0", "a", session_id="s2")
    locks.waiting("t1", "a")
    locks.granted("t2", "b", session_id="s2")
    locks.waiting("t1", "b")

    refused = locks.enter("t2", "a", session_id="s2")

    assert refused.refusal is not None
    assert refused.refusal.message.endswith(
        "deadlock: 't2' of session s2 (holds 'b') waits for 'a'; "
        "'t1' of session s1 (is queued ahead in 'a') waits for 'b'"
    )


def test_a_longer_cycle_is_told_in_order() -> None:
    """Each waits for the next, the last for the first."""
    locks = Locks()
    for owner, name in (("t1", "a"), ("t2", "b"), ("t3", "c")):
        locks.granted(owner, name)
    locks.waiting("t1", "b")
    locks.waiting("t2", "c")

    refused = locks.enter("t3", "a")

    assert cycle_of(refused) == [("t3", "c", "a"), ("t1", "a", "b"), ("t2", "b", "c")]


def test_converging_waits_are_no_cycle() -> None:
    """Many who hold something and wait for the same lock are served one after the other."""
    locks = Locks()
    locks.granted("t1", "x")
    for number in range(20):
        locks.granted(f"w{number}", f"own{number}")

        locks.waiting(f"w{number}", "x")


def test_an_anonymous_contender_is_an_owner_of_its_own() -> None:
    """Who names no owner is never taken for another of its session."""
    locks = Locks()
    locks.granted("", "a")
    locks.granted("", "b")
    locks.waiting("", "b")

    locks.waiting("", "a")


def test_a_lock_taken_twice_is_refused_at_once() -> None:
    """A mutex is not reentrant, and says what to do instead."""
    locks = Locks()
    locks.granted("t1", "a")

    refused = locks.enter("t1", "a")

    assert cycle_of(refused) == [("t1", "a", "a")]
    assert refused.refusal is not None
    assert "not reentrant" in refused.refusal.message


def test_a_try_is_told_that_it_was_not_granted_not_of_a_deadlock() -> None:
    """Who does not wait is in no cycle."""
    locks = Locks()
    locks.granted("t1", "a")

    result = locks.enter("t1", "a", is_try=True).unwrap()

    assert isinstance(result, Entered)
    assert not result.is_entered


def test_there_is_no_upgrade() -> None:
    """Two readers who both wanted to write would wait for each other for ever."""
    locks = Locks()
    locks.granted("t1", "a", kind=Kind.SHARED)

    refused = locks.enter("t1", "a")

    assert refused.refusal is not None
    assert "release the shared grant first" in refused.refusal.message


def test_reading_again_behind_a_writer_is_a_cycle() -> None:
    """The queue is fair: the second read stands behind the writer, who waits for the first."""
    locks = Locks()
    locks.granted("t1", "a", kind=Kind.SHARED)
    locks.waiting("t2", "a")

    refused = locks.enter("t1", "a", kind=Kind.SHARED)

    assert cycle_of(refused) == [("t1", "a", "a"), ("t2", "a", "a")]


def test_a_slot_that_any_of_several_may_free_is_no_cycle() -> None:
    """One of the two holders waits for us; the other one can go on."""
    locks = Locks()
    locks.granted("t1", "a")
    locks.granted("t2", "pool", kind=Kind.SLOT, size=2)
    locks.granted("t3", "pool", kind=Kind.SLOT)
    locks.waiting("t2", "a")

    locks.waiting("t1", "pool", kind=Kind.SLOT)


def test_slots_that_nobody_can_free_are_a_cycle() -> None:
    """Both holders wait for us."""
    locks = Locks()
    locks.granted("t1", "a")
    locks.granted("t2", "pool", kind=Kind.SLOT, size=2)
    locks.granted("t3", "pool", kind=Kind.SLOT)
    locks.waiting("t2", "a")
    locks.waiting("t3", "a")

    refused = locks.enter("t1", "pool", kind=Kind.SLOT)

    assert cycle_of(refused)[0] == ("t1", "a", "pool")


def test_a_second_slot_of_a_full_semaphore_waits_for_oneself() -> None:
    """Size one, taken twice by one owner."""
    locks = Locks()
    locks.granted("t1", "pool", kind=Kind.SLOT, size=1)

    refused = locks.enter("t1", "pool", kind=Kind.SLOT)

    assert cycle_of(refused) == [("t1", "pool", "pool")]


def test_a_smaller_size_that_would_leave_somebody_waiting_for_ever_is_refused() -> None:
    """With two slots one of them comes free; with one slot both would have to be."""
    locks = Locks()
    locks.granted("t3", "a")
    locks.granted("t1", "pool", kind=Kind.SLOT, size=2)
    locks.granted("t2", "pool", kind=Kind.SLOT)
    locks.waiting("t2", "a")
    locks.waiting("t3", "pool", kind=Kind.SLOT)

    refused = locks.apply(Resize("/locks/pool", 1))

    assert {owner for owner, _, _ in cycle_of(refused)} == {"t2", "t3"}
    assert locks.machine.locks.size("/locks/pool") == 2


def test_a_smaller_size_takes_no_heed_of_who_is_leaving() -> None:
    """A session that ends in pieces still waits in the queue, and goes by itself."""
    locks = Locks()
    locks.granted("t1", "pool", kind=Kind.SLOT, size=2)
    locks.granted("t2", "pool", kind=Kind.SLOT)
    locks.granted("gone", "a", session_id="s2")
    locks.waiting("gone", "pool", kind=Kind.SLOT, session_id="s2")
    locks.apply(CloseSession("s2", at_once=1))
    assert locks.machine.leaving_sessions() == ("s2",)

    outcome = locks.apply(Resize("/locks/pool", 1))

    assert outcome.refusal is None
    assert locks.machine.locks.size("/locks/pool") == 1


def test_a_multi_lock_waits_for_all_of_its_queues() -> None:
    """It stands in the way in one queue while it waits in the other."""
    locks = Locks()
    locks.granted("t1", "a")
    locks.waiting("t2", "a", "b")
    locks.granted("t3", "c")
    locks.waiting("t3", "b")

    refused = locks.enter("t1", "c")

    assert cycle_of(refused) == [("t1", "a", "c"), ("t3", "c", "b"), ("t2", "b", "a")]


def test_a_long_cycle_is_cut_and_counted() -> None:
    """What is told is bounded; how long it is in truth is told too."""
    locks = Locks()
    for number in range(40):
        locks.granted(f"w{number}", f"l{number}")
    for number in range(39):
        locks.waiting(f"w{number}", f"l{number + 1}")

    refused = locks.enter("w39", "l0")

    assert refused.refusal is not None
    assert len(cycle_of(refused)) == 16
    assert refused.refusal.fields["cycle_length"] == 40


@pytest.mark.parametrize("length", [10, 1_000])
def test_a_long_queue_is_no_burden_for_who_holds_nothing_else(length: int) -> None:
    """The look is skipped altogether for an owner without another contender."""
    locks = Locks()
    for number in range(length):
        locks.enter(f"w{number}", "a")

    outcome = locks.enter("last", "a")

    assert isinstance(outcome.result, Entered)
    assert outcome.result.position == length


def crossed(count: int, **limits: int) -> Locks:
    """Return a room where t1 holds `b`, t2 holds `a`, waits for `b` and is followed by many."""
    locks = Locks()
    locks.machine = StateMachine(MachineLimits(**limits))
    locks.apply(OpenSession("s1", 10_000))
    locks.granted("t1", "b")
    locks.granted("t2", "a")
    locks.waiting("t2", "b")
    for number in range(count):
        locks.waiting(f"q{number}", "a")
    return locks


def test_what_takes_too_long_to_know_is_refused_and_is_no_deadlock() -> None:
    """The refusal names the limit; nothing is changed; with the limit raised the cycle is told."""
    locks = crossed(10, deadlock_search_max=5)
    before = locks.machine.digest()

    refused = locks.enter("t1", "a").refusal

    assert refused is not None
    assert (refused.code, dict(refused.fields)["limit"]) == ("QuotaExceeded", "deadlock_search_max")
    assert locks.machine.digest() == before
    locks.apply(SetLimits((("deadlock_search_max", 100),)))
    assert cycle_of(locks.enter("t1", "a")) == [("t1", "b", "a"), ("t2", "a", "b")]


def test_no_attempt_looks_at_a_whole_long_queue() -> None:
    """Whatever it is: it costs as much as ``deadlock_search_max`` allows, by the processor."""
    most = NEW_CLUSTER.deadlock_search_max
    locks = crossed(12 * most, deadlock_search_max=most)
    least_ms = float("inf")

    for _ in range(6):
        started = time.thread_time()
        refused = locks.enter("t1", "a").refusal
        took_ms = (time.thread_time() - started) * 1_000
        assert refused is not None
        assert refused.code == "QuotaExceeded"
        least_ms = min(least_ms, took_ms / fixed_work_speed())

    assert least_ms <= HELD_MS_MAX


def test_a_semaphore_with_a_long_queue_can_be_made_smaller() -> None:
    """Who stands there only is no part of a cycle."""
    locks = Locks()
    locks.machine = StateMachine(MachineLimits(deadlock_search_max=5))
    locks.apply(OpenSession("s1", 10_000))
    for number in range(3):
        locks.granted(f"h{number}", "pool", kind=Kind.SLOT, size=3)
    for number in range(20):
        locks.waiting(f"q{number}", "pool", kind=Kind.SLOT, size=3)

    assert locks.apply(Resize("/locks/pool", 2)).refusal is None
