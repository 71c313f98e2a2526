"""A queue as long as sessions allow is looked at without a long step of the loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.service.locks.elections import ElectionService
from coordinator.service.locks.views import LockViews
from coordinator.state.commands import Command, Enter, Kind, OpenSession
from coordinator.state.machine import StateMachine
from tests.loop_meter import HELD_MS_MAX, metered

LONG = 20_000
DATA = b'{"label":"report 7","host":"worker-7.example.com","pid":4711}'


def long_queue(directory: str, prefix: str) -> StateMachine:
    machine = StateMachine()
    for number in range(20):
        machine.apply(Command(OpenSession(f"{number:016x}", 60_000), 1), number + 1, 1).unwrap()
    for number in range(LONG):
        enter = Enter((directory,), prefix, Kind.EXCLUSIVE, f"{number % 20:016x}", DATA)
        machine.apply(Command(enter, 1), 21 + number, 1).unwrap()
    return machine


@pytest.mark.parametrize("what", ["lock", "election"])
def test_no_look_at_a_long_queue_holds_the_loop(what: str) -> None:
    """What is one step takes no more than a copy; the view of each is made in slices."""
    nothing: Any = None
    if what == "lock":
        machine = long_queue("/locks/q", "lock-")
        replica = cast("Any", SimpleNamespace(machine=machine))
        denials = cast("Any", SimpleNamespace(of=lambda _: None))
        views = LockViews(nothing, replica, nothing, denials, nothing)
    else:
        machine = long_queue("/elections/q", "candidate-")
        replica = cast("Any", SimpleNamespace(machine=machine))
        elections = ElectionService(nothing, nothing, replica, nothing, nothing)

    async def look() -> int:
        if what == "lock":
            view = await views._look("q", "/locks/q")
            return len(view.holders) + len(view.queue)
        seen = await elections._view("q")
        return (seen.elected is not None) + len(seen.candidates)

    with metered() as loop:
        assert loop.run(look()) == LONG
        assert loop.held_ms(lambda _: loop.run(look())) < HELD_MS_MAX
