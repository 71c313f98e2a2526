"""Each verdict on a load can fail: what a broken service would show is found, and only that."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.cluster.load import Added, Held, Load, Reading, Stretch, Watched
from tests.cluster.verdicts import _nothing_lost, judge


def quiet_load() -> Load:
    """Return a load that saw a correct service: two writes, a read, a lock twice, a watcher."""
    load = Load(["http://127.0.0.1:1"], seed=1)
    load.keeps_history = False
    load.readings = [
        Reading(1.0, 1.1, 11, True, "first"),
        Reading(1.2, 1.3, 12, True, "second"),
        Reading(1.4, 1.5, 12, False, "read"),
    ]
    load.held = [Held("a", 20, 2.0, 2.1), Held("a", 21, 2.2, 2.3)]
    # Two readers of the same lock, the later one told first; two slots, given back and taken again.
    load.held += [Held("a", 25, 2.4, 2.6, math.inf), Held("a", 24, 2.5, 2.7, math.inf)]
    load.held += [
        Held("s", 30, 2.0, 2.5, 2),
        Held("s", 31, 2.1, 2.2, 2),
        Held("s", 32, 2.3, 2.6, 2),
    ]
    changes = [(11, [{"type": "NodeCreated"}]), (12, [{"type": "NodeDataChanged"}])]
    load.watched = [Watched([Stretch(10, 12, changes)]), Watched([Stretch(11, 12, changes[1:])])]
    create = load.recorder.call("r0", "/a", "create", value="v0")
    load.recorder.answered(create, version=0, czxid=11, mzxid=11, zxid=11)
    return load


def stale_read(load: Load) -> None:
    load.readings.append(Reading(1.6, 1.7, 11, False, "stale"))


def zxid_given_twice(load: Load) -> None:
    load.readings.append(Reading(1.25, 1.35, 12, True, "twin"))


def lost_update(load: Load) -> None:
    read = load.recorder.call("r1", "/a", "read")
    load.recorder.answered(read, error="NoNode")


def overlapping_holders(load: Load) -> None:
    load.held[0].certain_until = 2.25


def token_goes_back(load: Load) -> None:
    load.held[1].token = 19


def token_granted_twice(load: Load) -> None:
    load.held[-1].token = 30


def writer_among_readers(load: Load) -> None:
    load.held.append(Held("a", 40, 2.65, 2.8))


def reader_beside_a_writer(load: Load) -> None:
    load.held.append(Held("a", 40, 2.25, 2.8, math.inf))


def reader_with_the_token_of_before(load: Load) -> None:
    load.held.append(Held("a", 19, 2.8, 2.9, math.inf))


def writer_with_the_token_of_before(load: Load) -> None:
    load.held.append(Held("a", 23, 2.8, 2.9))


def one_slot_too_many(load: Load) -> None:
    load.held.append(Held("s", 33, 2.4, 2.6, 2))


def event_never_told(load: Load) -> None:
    load.watched[0].stretches[0].changes.pop()


def event_told_differently(load: Load) -> None:
    load.watched[1].stretches[0].changes[0] = (12, [{"type": "NodeDeleted"}])


def refusal_that_took_effect(load: Load) -> None:
    load.refused_values.add("v7")
    load.seen_values.add("v7")


def test_what_a_correct_service_shows_is_accepted() -> None:
    """Nothing is said against it."""
    assert judge(quiet_load()) == []


@pytest.mark.parametrize(
    "break_it",
    [stale_read, zxid_given_twice, lost_update, overlapping_holders, token_goes_back,
     token_granted_twice, writer_among_readers, reader_beside_a_writer,
     reader_with_the_token_of_before, writer_with_the_token_of_before, one_slot_too_many,
     event_never_told, event_told_differently, refusal_that_took_effect],
)  # fmt: skip
def test_what_a_broken_service_shows_is_found(break_it: Callable[[Load], None]) -> None:
    """One thing is wrong, and it is named."""
    load = quiet_load()
    break_it(load)

    assert judge(load) != []


def test_what_is_lost_doubled_or_renumbered_is_found() -> None:
    """The end of a load against the tree that the members show."""
    load = quiet_load()
    load.added = [Added("x", True, "/load/set/n-0000000000", 11), Added("y", False)]

    def entry(data: str, czxid: int) -> dict[str, object]:
        return {"data": data, "stat": {"czxid": czxid}}

    kept = {"/load/set/n-0000000000": entry("x", 11)}
    assert _nothing_lost(load, kept) == []
    assert _nothing_lost(load, {}), "an acknowledged one is gone"
    assert _nothing_lost(load, {"/load/set/n-0000000000": entry("x", 13)}), "made anew"
    assert _nothing_lost(load, {**kept, "/load/set/n-0000000001": entry("x", 12)}), "twice"
    renumbered = {**kept, "/load/set/n-0000000001": entry("y", 10)}
    assert _nothing_lost(load, renumbered), "numbers and zxids disagree"
    load.added[1].is_refused = True
    assert _nothing_lost(load, {**kept, "/load/set/n-0000000001": entry("y", 12)}), "refused, there"
