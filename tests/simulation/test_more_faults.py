"""What the later faults are there for is found: each promise with a product that breaks it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import BadArgumentsError
from coordinator.model.views import LockView
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.rejoin import incarnations as incarnations
from coordinator.service.locks.views import LockViews
from coordinator.service.member import Member
from coordinator.service.reads.reads import STALE, ReadMode, ReadReply, Reads
from coordinator.service.sessions import revocations as taken
from coordinator.state.locks.contender import Ending
from tests.simulation.door import Door
from tests.simulation.world import Settings, Verdict, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")


def first_broken(*faults: str, seeds: range = range(5), seconds: float = 15.0) -> str | None:
    """Return the first promise that is broken in worlds of these faults."""
    settings = Settings(seconds=seconds, settle_s=10.0, only_faults=faults, stops_at_first=True)
    found = (simulate(seed, settings).violations for seed in seeds)
    broken = next(filter(None, found), None)
    return None if broken is None else broken[0].promise


def one_world(*faults: str) -> Verdict:
    return simulate(1, Settings(seconds=15.0, only_faults=faults, keep_lines=None))


def handovers(lines: list[str]) -> int:
    """Return how often a leader stopped and the next one led long before an election timeout."""
    count = 0
    leader = stopping = ""
    until_s = 0.0
    for line in lines:
        shown_s, who, what = line.split(maxsplit=2)
        if what == "is told to stop" and who == leader:
            stopping, until_s = who, float("inf")
        elif what == "has stopped" and who == stopping:
            until_s = float(shown_s) + 0.1
        elif what.startswith("leader in term"):
            count += bool(stopping) and float(shown_s) <= until_s
            leader, stopping = who, ""
    return count


# --- they happen, and break nothing


@pytest.mark.check
def test_members_stop_in_order_and_hand_over() -> None:
    """Many times in one world, to their end."""
    verdict = one_world("stop_in_order", "stop_all_in_order")

    assert verdict.is_fine, verdict.violations
    assert verdict.tally.stops >= 5
    assert handovers(verdict.lines) >= 2


@pytest.mark.check
def test_an_old_copy_is_put_back_and_found_out() -> None:
    """The member is told, and goes on."""
    verdict = one_world("put_back_old_copy")

    assert verdict.is_fine, verdict.violations
    assert sum("comes back as it was in incarnation" in line for line in verdict.lines) >= 2
    assert sum("is known to run on an old copy" in line for line in verdict.lines) >= 2


@pytest.mark.check
def test_grants_are_deleted_over_the_tree() -> None:
    """Those who held are told, and nobody else is the worse for it."""
    verdict = one_world("delete_contender")

    assert verdict.is_fine, verdict.violations
    assert verdict.tally.locks["deleted"] >= 3


# --- what breaks a promise is found


async def never(*_: object) -> None:
    await asyncio.Event().wait()


async def fails(*_: object) -> None:
    raise RuntimeError("no end")


@pytest.mark.check
@pytest.mark.parametrize("wrong", [never, fails])
def test_a_member_that_can_not_stop_is_found(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in time, and without an error."""
    monkeypatch.setattr(Member, "stop", wrong)

    assert first_broken("stop_in_order", seconds=20.0) == "stops in order"


@pytest.mark.check
def test_an_old_copy_that_is_believed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With others that were cut off it elects a leader, and has forgotten that there was one."""
    monkeypatch.setattr(incarnations, "is_older_copy", lambda *_: False)

    assert first_broken("put_back_old_copy") in (
        "one leader", "one log", "acknowledged writes stay", "an old copy is found out"
    )  # fmt: skip


@pytest.mark.check
def test_a_holder_that_is_not_told_of_a_deleted_grant_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the next heartbeat that is acknowledged it must be."""
    told = frozenset(taken._TAKEN - {Ending.DELETED})
    monkeypatch.setattr(taken, "_TAKEN", told)

    assert first_broken("delete_contender") == "the holder is told"


def test_a_member_that_answers_before_it_has_seen_so_much_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read at least as new as asked for is answered with less."""

    async def at_once(_reads: Reads, _zxid: int) -> None:
        return

    monkeypatch.setattr(Reads, "_until_zxid", at_once)

    assert first_broken("delete_contender") == "reads show what was asked for"


@pytest.mark.check
def test_a_stale_answer_about_a_lock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With reads of the tree as they should be."""
    query = LockViews.query

    async def as_it_is(
        self: LockViews, name: str, _mode: ReadMode, deadline_ms: int
    ) -> ReadReply[LockView]:
        return await query(self, name, STALE, deadline_ms)

    monkeypatch.setattr(LockViews, "query", as_it_is)

    assert first_broken("delete_contender", "storm") == "reads never go back"


def test_a_member_that_speaks_after_its_disk_failed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is said any more once the failure is known."""

    def tell_only(self: PySyncObjEngine, error: BaseException) -> None:
        self._listeners.notify_failure(error)

    monkeypatch.setattr(PySyncObjEngine, "_fail", tell_only)

    assert first_broken("sync_error") == "stops when its disk fails"


def test_a_sound_request_that_is_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that takes what clients send for nonsense."""

    async def route(*_: object) -> None:
        raise BadArgumentsError("what?")

    monkeypatch.setattr(Door, "_route", route)

    assert first_broken("pause", seconds=2.0) == "sound requests are taken"
