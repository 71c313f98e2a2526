"""Celery tasks that run under a lock.

::

    client = connect()

    @app.task(base=ExclusiveTask, lock_client=client, lock_key=lambda shard: f"index-{shard}")
    def rebuild(shard):
        write(shard, token=current_grant().fencing_token)

1. A task whose lock is held elsewhere is retried ``busy_countdown`` seconds later, as often as its
   ``max_retries`` allows; with ``when_busy="skip"`` it ends with None.
2. One at a time, not once: a task that is delivered twice runs twice, the second after the first.
   For work that may be done once only there is ``Once``, with the business key.
3. Nothing stops the body when its lock is lost: it calls ``current_grant().check()`` between steps,
   or gives the token to a guard. At its end the task fails with LockLostError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from coordinator.client import Client, expect_function
from coordinator.errors import BadArgumentsError
from coordinator.integrations.current import BusyError, run_under
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.base.names import name_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.waits import Timeout

try:
    from celery import Task
except ImportError as error:
    raise missing_extra("celery", "celery") from error


class ExclusiveTask(Task):
    """Base of tasks that run one at a time; options of ``@app.task``.

    ``lock_client`` is a Client, shared by the worker's threads. ``lock_key`` is the lock's name, or
    makes it of the task's arguments. ``lock_timeout`` is in seconds; 0 tries once.
    ``current_grant()`` is the grant. ``busy_countdown`` is in seconds.
    """

    abstract = True
    lock_client: Client | None = None
    lock_key: str | Callable[..., str | int] = ""
    lock_timeout: Timeout = 0
    when_busy: Literal["retry", "skip"] = "retry"
    busy_countdown: float = 5.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task while its lock is held.

        Raises:
            celery.exceptions.Retry: another worker holds the lock; BusyError if it was called
                without a worker, or has no retries left.
            LockLostError: the lock was lost while the task ran.
            BadArgumentsError: ``lock_client`` or ``lock_key`` is absent; or the task is a coroutine
                function or a generator function, which would not run.
            All else that ``Lock.acquire`` and the task raise.
        """
        key = type(self).lock_key  # of the class: a function is no method of the task
        if not isinstance(self.lock_client, Client) or not key:
            raise BadArgumentsError(
                f"{self.name}: expected lock_client=connect() and lock_key='...' in @app.task, "
                f"found {self.lock_client!r} and {key!r}"
            )
        expect_function(self.lock_client, str(self.name), self.run)
        name = name_of(key(*args, **kwargs) if callable(key) else key, "lock_key")
        label = str(self.name)[:200]
        lock = Lock(self.lock_client, name, timeout=self.lock_timeout, label=label)
        try:
            return run_under(lock, partial(self.run, *args, **kwargs))
        except BusyError as busy:
            if self.when_busy == "skip":
                return None
            raise self.retry(exc=busy, countdown=self.busy_countdown) from None
