"""What a downgrade leaves as it was: all but the kind."""

from __future__ import annotations

from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    Command,
    Downgrade,
    Enter,
    Kind,
    Note,
    OpenSession,
    Operation,
)
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.machine import StateMachine


def test_a_downgrade_keeps_the_note_and_the_bound_of_its_grant() -> None:
    """The next holder still reads the checkpoint, and the hold ends no later than before."""
    machine = StateMachine(MachineLimits())

    def do(operation: Operation) -> None:
        outcome = machine.apply(
            Command(operation, wall_ms=0, request=None), machine.applied_index + 1, 1
        )
        assert outcome.refusal is None

    def record() -> ContenderRecord:
        return machine.locks.contenders("/locks/a")[0]

    do(OpenSession("s1", 10_000))
    do(
        Enter(
            ("/locks/a",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id="s1",
            data=b"",
            max_hold_ms=5_000,
        )
    )
    do(Note(record().path, czxid=record().czxid, note=b"at row 7"))
    before = record()

    do(Downgrade(before.path, before.czxid))

    assert record() == before.but(kind=Kind.SHARED)
    assert (record().note, record().max_hold_ms) == (b"at row 7", 5_000)
