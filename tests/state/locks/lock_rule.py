"""The rule of who holds, as it is written down: by the names and the kinds in a queue alone."""

from __future__ import annotations

from coordinator.state.commands import Kind
from coordinator.state.locks.contender import ContenderRecord, number_of
from coordinator.state.machine import StateMachine


def queues_of(machine: StateMachine) -> dict[str, tuple[ContenderRecord, ...]]:
    locks = machine.locks
    return {each: locks.contenders(each) for each in sorted(locks.directories())}


def closed_from(machine: StateMachine, directory: str) -> int | None:
    """Return the lowest number of what closes the queue, by the names alone."""
    numbers = [
        number
        for name in machine.children(directory) or ()
        if name.startswith("delay-") and (number := number_of(name)) is not None
    ]
    return min(numbers, default=None)


def may_hold(machine: StateMachine, directory: str, at: int) -> bool:
    """Say by the rule alone, as it is written down, whether a contender may hold."""
    contenders = machine.locks.contenders(directory)
    mine, before = contenders[at], contenders[:at]
    closed = closed_from(machine, directory)
    if closed is not None and closed < mine.number:
        return False
    if not before:
        return True
    if any(each.kind is not mine.kind for each in before) or mine.kind is Kind.EXCLUSIVE:
        return False
    return mine.kind is Kind.SHARED or len(before) < (machine.locks.size(directory) or 1)


def check_holders(
    machine: StateMachine, directory: str, contenders: tuple[ContenderRecord, ...]
) -> int:
    """Fail unless the first ones hold, and only such as may hold together; return how many."""
    held = len(machine.locks.holders(directory))
    assert all(each.is_holder for each in contenders[:held])
    assert not any(each.is_holder for each in contenders[held:])
    kinds = {each.kind for each in contenders[:held]}
    assert len(kinds) <= 1
    assert held <= 1 or kinds != {Kind.EXCLUSIVE}
    return held


def check_next(machine: StateMachine, directory: str) -> bool:
    """Return whether the one behind the holders may hold, and a command that follows grants it.

    Fail if it may hold and nothing is left to grant: in one of its queues, for a multi-lock.
    """
    contenders = machine.locks.contenders(directory)
    held = len(machine.locks.holders(directory))
    if held == len(contenders) or not may_hold(machine, directory, held):
        return False
    first = contenders[held]
    if not all(is_first(machine, path) for path in first.group):
        return False
    queues = {directory, *(path.rpartition("/")[0] for path in first.group)}
    assert queues & set(machine._locks.ungranted), f"{first.path} may hold, and waits for ever"
    return True


def is_first(machine: StateMachine, path: str) -> bool:
    directory = path.rpartition("/")[0]
    contenders = machine.locks.contenders(directory)
    return contenders[0].path == path and may_hold(machine, directory, 0)
