"""New contenders: behind all that are queued, one with each command.

So numbers and fencing tokens (czxids) grow together, and no order of events gives a later grant a
lower token, or the same.
"""

from __future__ import annotations

from coordinator.errors import BadArgumentsError
from coordinator.state.locks.contender import (
    DELAY_PREFIX,
    HAND_MADE_NUMBER_MAX,
    is_queue,
    number_of,
)
from coordinator.state.locks.queues import LockTable


def check_newcomer(path: str, directory: str, table: LockTable, *, is_sequential: bool) -> int:
    """Check the znode ``path`` that is to be created in ``directory``, a queue or below a root.

    Returns:
        The lowest number a sequential one may get: newcomers are queued behind all others.

    Raises:
        BadArgumentsError: its number, made by hand, would put it before others; or this command has
            made a contender there already, and the two would have one fencing token.
    """
    queue = table.queues.get(directory)
    if queue is None and not is_queue(directory):
        return 0
    last = -1 if queue is None else queue.last_number
    if is_sequential:
        if path[-1:].isdigit():
            raise BadArgumentsError(
                f"create {path}: expected a prefix that does not end in a digit; it would change "
                "the number of the contender",
                path=path,
            )
        _check_alone(path, directory, table)
        return last + 1
    number = number_of(path)
    if number is None:
        return 0
    if not last < number <= HAND_MADE_NUMBER_MAX:
        raise BadArgumentsError(
            f"create {path}: expected a number above {last}, the last of this queue, and at most "
            f"{HAND_MADE_NUMBER_MAX}, found {number}",
            path=path,
            last_number=last,
        )
    if not path.startswith(DELAY_PREFIX, len(directory) + 1):
        _check_alone(path, directory, table)
    return 0


def _check_alone(path: str, directory: str, table: LockTable) -> None:
    if directory in table.entered:
        raise BadArgumentsError(
            f"create {path}: expected one contender for each queue in one command, found two; they "
            "would have the same fencing token",
            path=path,
        )
    table.entered[directory] = None
