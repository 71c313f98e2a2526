"""The level of a state: raised one by one in the log, in every snapshot, and read or refused."""

from __future__ import annotations

import pytest

from coordinator.errors import StorageError
from coordinator.service.base.replica import MachineReplica
from coordinator.state.codec import decode_command, encode_command, level_of
from coordinator.state.commands import Command, Operation, SetLevel, SetLimits
from coordinator.state.levels import NEWEST, UnreadLevelError, check_level
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import LevelSet, Outcome
from coordinator.state.slice_room import Cursor


def raised(machine: StateMachine, *operations: Operation) -> list[Outcome]:
    """Apply these, each in an entry of its own."""
    first = machine.applied_index + 1
    return [
        machine.apply(Command(each, wall_ms=5), index, term=1)
        for index, each in enumerate(operations, first)
    ]


def test_the_level_is_raised_by_one_and_again_by_none() -> None:
    """Each of two operators may finish the same upgrade; nobody skips a level."""
    machine = StateMachine()

    done = raised(machine, SetLevel(2), SetLevel(2), SetLevel(4), SetLevel(1), SetLevel(3))

    assert [each.result for each in done] == [
        LevelSet(2, was_changed=True),
        LevelSet(2, was_changed=False),
        None,
        None,
        LevelSet(3, was_changed=True),
    ]
    for refused in done[2:4]:
        assert refused.refusal is not None
        assert refused.refusal.code == "BadArguments"
    assert machine.level == 3


def test_a_change_of_the_limits_keeps_the_level() -> None:
    """Both are of the whole cluster, and neither is of the other."""
    machine = StateMachine()

    raised(machine, SetLevel(2), SetLimits((("znodes_max", 500),)), SetLevel(3))

    assert machine.level == 3
    assert machine.limits.znodes_max == 500
    assert machine.limits_record.version == 1


def test_states_of_two_levels_have_different_digests() -> None:
    """A member that missed the switch is found, as one that missed any other entry."""
    one, two = StateMachine(), StateMachine()
    raised(one, SetLevel(2))
    raised(two, SetLevel(1))

    assert one.digest() != two.digest()
    assert one.slice_at(Cursor()).digest != two.slice_at(Cursor()).digest


def test_a_snapshot_of_a_level_that_is_not_read_is_refused_in_words() -> None:
    """It says of which level it is, what is read, and which release to start."""
    machine = StateMachine()
    raised(machine, *[SetLevel(level) for level in range(2, NEWEST + 2)])

    with pytest.raises(StorageError) as refused:
        MachineReplica(StateMachine()).prepare_restore(machine.snapshot())

    assert f"of level {NEWEST + 1}, and this release reads levels 1 to {NEWEST}" in str(
        refused.value
    )
    assert "with a newer release" in str(refused.value)
    with pytest.raises(UnreadLevelError, match="with an older release"):
        check_level(0)


def test_a_snapshot_carries_the_level() -> None:
    """Of each level that this release reads."""
    for newest in range(1, NEWEST + 1):
        machine, restored = StateMachine(), StateMachine()
        raised(machine, *[SetLevel(level) for level in range(2, newest + 1)])
        restored.restore(machine.snapshot())
        assert restored.level == newest
        assert restored.digest() == machine.digest()


def test_a_member_stops_at_the_entry_that_raises_the_level_beyond_its_release() -> None:
    """So it never reads what is written behind that entry."""
    replica = MachineReplica(StateMachine())
    replica.apply(1, 1, encode_command(Command(SetLimits((), 0), 0)))

    for level in range(2, NEWEST + 1):
        replica.apply(level, 1, encode_command(Command(SetLevel(level), 0)))

    with pytest.raises(StorageError, match="with a newer release"):
        replica.apply(NEWEST + 1, 1, encode_command(Command(SetLevel(NEWEST + 1), 0)))


def test_a_command_begins_with_the_level_that_added_its_operation() -> None:
    """One of a later level is refused in words, whatever is in it."""
    data = encode_command(Command(SetLevel(2), 5))

    assert data[1] == level_of(SetLevel(2)) == 1
    with pytest.raises(ValueError, match=f"of level {NEWEST + 1}.*with a newer release"):
        decode_command(data[:1] + bytes((NEWEST + 1,)) + data[2:])
