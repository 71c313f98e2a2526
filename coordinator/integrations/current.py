"""The grant under which the work of this thread runs, for frameworks that choose its arguments.

::

    @app.task(base=ExclusiveTask, lock_key="search-index")
    def rebuild(shard):
        write(shard, token=current_grant().fencing_token)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from coordinator.client import Client, expect_result
from coordinator.errors import BadArgumentsError, LockTimeoutError
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant

T = TypeVar("T")

_current: ContextVar[Grant[Client] | None] = ContextVar("coordinator_grant", default=None)


class BusyError(Exception):
    """Another worker holds the lock; the work did not run."""


def current_grant() -> Grant[Client]:
    """Return the grant of the task, message or job that runs in this thread.

    Raises:
        BadArgumentsError: none of them runs under a lock here.
    """
    grant = _current.get()
    if grant is None:
        raise BadArgumentsError(
            "current_grant: expected a task, message or job that runs under a lock, found none"
        )
    return grant


def run_under(lock: Lock[Client], work: Callable[[], T]) -> T:
    """Return what ``work()`` returns, run while ``lock`` is held.

    Raises:
        BusyError: the lock was not acquired in time.
        LockLostError: it was lost while the work ran.
        BadArgumentsError: it returned a coroutine or a generator, which has not run.
        All else that ``Lock.acquire`` and the work raise, its own LockTimeoutError, too.
    """
    has_begun = False
    try:
        with lock as grant:
            has_begun = True
            with _as_current(grant):
                result = work()
                expect_result(work, result)
                return result
    except LockTimeoutError as error:
        if has_begun:
            raise
        raise BusyError(str(error)) from error


@contextmanager
def _as_current(grant: Grant[Client]) -> Iterator[None]:
    before: Any = _current.set(grant)
    try:
        yield
    finally:
        _current.reset(before)
