"""A long queue is looked at without a long step of the loop, its head alone.

The longest of all are in ``wire/test_largest_queues``.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from coordinator.clock import ManualClock
from coordinator.service.base.replica import MachineReplica
from coordinator.service.locks.contenders import SHOWN_MAX
from coordinator.service.locks.denials import Denials
from coordinator.service.locks.elections import ElectionService
from coordinator.service.locks.hold_times import LockClasses
from coordinator.service.locks.queues import Queues
from coordinator.service.locks.views import LockViews
from coordinator.service.reads.reads import STALE, ReadMode, ReadReply
from coordinator.service.watches.hub import WatchHub
from coordinator.service.writes.proposals import Proposer
from coordinator.state.commands import Command, Enter, Kind, OpenSession
from coordinator.state.machine import StateMachine
from tests.loop_meter import HELD_MS_MAX, metered
from tests.service.contexts import context_of

LONG = 2 * SHOWN_MAX
DATA = b'{"label":"report 7","host":"worker-7.example.com","pid":4711}'


class Reads:
    """Reads that are fresh at once."""

    async def fresh(self, _mode: ReadMode, _deadline_ms: int) -> int:
        return 0

    def reply(self, value: Any, age_ms: int | None) -> ReadReply[Any]:
        return ReadReply(value, zxid=0, index=0, age_ms=age_ms)


def long_queue(directory: str, prefix: str) -> StateMachine:
    machine = StateMachine()
    for number in range(20):
        machine.apply(Command(OpenSession(f"{number:016x}", 60_000), 1), number + 1, 1).unwrap()
    for number in range(LONG):
        enter = Enter(
            (directory,),
            prefix=prefix,
            kind=Kind.EXCLUSIVE,
            session_id=f"{number % 20:016x}",
            data=DATA,
        )
        machine.apply(Command(enter, 1), 21 + number, 1).unwrap()
    return machine


@pytest.mark.parametrize("what", ["lock", "election"])
def test_no_look_at_a_long_queue_holds_the_loop(what: str) -> None:
    """What is one step takes no more than a copy of its head; views are made in slices."""
    nothing: Any = None
    reads = cast("Any", Reads())
    if what == "lock":
        machine = long_queue("/locks/q", "lock-")
        replica = MachineReplica(machine)
        clock = ManualClock()
        views = LockViews(
            reads, replica=replica, holds=nothing, clock=clock, denials=Denials(clock),
            remaining_times=nothing,
        )  # fmt: skip
    else:
        machine = long_queue("/elections/q", "candidate-")
        replica = MachineReplica(machine)
        context = context_of(ManualClock(), replica)
        proposer = Proposer(context, reads)
        queues = Queues(context, proposer=proposer, reads=reads, classes=LockClasses())
        elections = ElectionService(
            proposer, reads=reads, replica=replica, queues=queues, hub=WatchHub(context)
        )

    async def look() -> int:
        if what == "lock":
            view = (await views.query("q", STALE, 0, fencing_token=0)).value
            assert view.queue_length == LONG - 1
            return len(view.holders) + len(view.queue)
        seen = (await elections.who("q", STALE, 0)).value
        assert seen.candidate_count == LONG - 1
        return (seen.elected is not None) + len(seen.candidates)

    with metered() as loop:
        assert loop.run(look()) == SHOWN_MAX + 1
        assert loop.held_ms(lambda _: loop.run(look())) < HELD_MS_MAX
