"""Two things in one command: of several grants that end in it, each one counts."""

from __future__ import annotations

from itertools import permutations

import pytest

from coordinator.state.commands import (
    CloseSession,
    Command,
    Enter,
    ExpireSession,
    Kind,
    OpenSession,
    Operation,
)
from coordinator.state.machine import StateMachine

A = "/locks/a"
ENDS = (ExpireSession("s1", term=1, silent_ms=9), CloseSession("s1", "unwell"))


class Cluster:
    """One machine, and the next index."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.index = 0

    def apply(self, operation: Operation) -> None:
        self.index += 1
        outcome = self.machine.apply(Command(operation, self.index), self.index, 1)
        assert outcome.refusal is None, outcome.refusal

    def enter(self, session_id: str, delay_ms: int, kind: Kind = Kind.SHARED, **more: int) -> None:
        prefix = {Kind.SHARED: "read-", Kind.SLOT: "slot-", Kind.EXCLUSIVE: "lock-"}[kind]
        self.apply(
            Enter(
                (A,),
                prefix=prefix,
                kind=kind,
                session_id=session_id,
                data=b"",
                lock_delay_ms=delay_ms,
                **more,
            )
        )


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", [Kind.SHARED, Kind.SLOT])
@pytest.mark.parametrize("delays", sorted({*permutations((5_000, 9_000, 0)), (0, 7_000, 7_000)}))
def test_a_lost_session_with_several_grants_closes_for_the_longest_delay(
    delays: tuple[int, ...], kind: Kind, end: Operation
) -> None:
    """Whichever entered first: the queue is closed once, for the longest, to all who wait."""
    cluster = Cluster()
    for session_id in ("s1", "s2"):
        cluster.apply(OpenSession(session_id, 10_000))
    size = {"size": 3} if kind is Kind.SLOT else {}
    for delay_ms in delays:
        cluster.enter("s1", delay_ms, kind, **size)
    cluster.enter("s2", 0, Kind.EXCLUSIVE)
    waiting = cluster.machine.locks.contenders(A)[-1]

    cluster.apply(end)

    locks = cluster.machine.locks
    (closing,) = locks.closings()
    assert closing.delay_ms == max(delays)
    assert [each.path for each in locks.contenders(A)] == [waiting.path]
    assert not locks.holders(A), "the queue is closed to who waited behind all of them"


@pytest.mark.parametrize("end", ENDS)
def test_a_lost_session_with_grants_of_several_queues_closes_each(end: Operation) -> None:
    """Each queue for the delay that was asked for there."""
    cluster = Cluster()
    cluster.apply(OpenSession("s1", 10_000))
    for name, delay_ms in (("a", 5_000), ("b", 0), ("c", 9_000)):
        directory = f"/locks/{name}"
        cluster.apply(
            Enter(
                (directory,),
                prefix="lock-",
                kind=Kind.EXCLUSIVE,
                session_id="s1",
                data=b"",
                lock_delay_ms=delay_ms,
            )
        )

    cluster.apply(end)

    found = {each.path.split("/")[2]: each.delay_ms for each in cluster.machine.locks.closings()}
    assert found == {"a": 5_000, "c": 9_000}


@pytest.mark.parametrize("end", ENDS)
def test_a_reader_that_stays_keeps_its_grant_when_the_others_are_lost(end: Operation) -> None:
    """The delay of the lost ones closes the queue behind it, and takes nothing from it."""
    cluster = Cluster()
    for session_id in ("s1", "s2", "s3"):
        cluster.apply(OpenSession(session_id, 10_000))
    cluster.enter("s1", 5_000)
    cluster.enter("s2", 0)
    cluster.enter("s1", 9_000)

    cluster.apply(end)
    cluster.enter("s3", 0)

    locks = cluster.machine.locks
    assert [each.session_id for each in locks.holders(A)] == ["s2"]
    assert [each.delay_ms for each in locks.closings()] == [9_000]
