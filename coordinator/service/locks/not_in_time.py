"""The error of an attempt that was not granted in time: it says who holds, if that is known."""

from __future__ import annotations

from coordinator.errors import LockTimeoutError
from coordinator.service.locks.attempts import QueueAttempt
from coordinator.service.locks.contenders import first_holder
from coordinator.service.locks.holder_info import named
from coordinator.service.locks.manual_holds import in_words
from coordinator.state.machine import StateMachine


def not_in_time(
    machine: StateMachine, attempt: QueueAttempt, position: int | None, *, is_seen: bool
) -> LockTimeoutError:
    """Return it; the holder is told of if ``is_seen``: this state is no former one."""
    recipe = attempt.recipe
    directories = recipe.directories(attempt.names)
    holders = [first_holder(machine, each) for each in directories]
    closings = [machine.locks.closed(each) for each in directories]
    by_hand = [in_words(machine, each, attempt.caller) for each in directories]
    taken = [any(each) for each in zip(holders, closings, strict=True)]
    at = next((at for at, each in enumerate(by_hand) if each), None)
    if at is None:
        at = next((at for at, each in enumerate(taken) if each), 0)
    holder, name, why = holders[at], recipe.name_at(directories[at]), ""
    if by_hand[at]:
        holder, why = None, f"; {by_hand[at]}"
    elif closings[at]:
        why = "; it is closed for a while, after a holder was lost"
    described = attempt.describe(holder) if holder is not None and is_seen else None
    held_by = "" if described is None else f"; held by {named(described)}"
    return LockTimeoutError(
        f"{recipe.word} {name!r} was not granted in time{why}{held_by}",
        lock=name,
        holder=described,
        position=position,
        zxid=machine.zxid,
    )
