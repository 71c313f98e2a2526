"""Dramatiq's middleware that runs actors under a lock.

::

    broker.add_middleware(ExclusiveActors(connect()))

    @dramatiq.actor(lock_key=lambda shard: f"index-{shard}")
    def rebuild(shard):
        write(shard, token=current_grant().fencing_token)

1. An actor's option ``lock_key`` is the lock's name, or makes it of the message's arguments.
   ``lock_timeout`` is how many seconds it waits, 0 unless said otherwise. An actor without a
   ``lock_key`` is left as it is.
2. A message whose lock is held elsewhere is sent again ``busy_delay`` seconds later by Dramatiq's
   Retries, and counts as one of its ``max_retries``; with ``when_busy="skip"`` it is done.
3. The actor's function itself is wrapped, and calls without a message run under the lock as well.
   (What a middleware raises before a message is only logged by Dramatiq, and the actor runs.)
4. Nothing stops the function when its lock is lost: it calls ``current_grant().check()``. At its
   end the message fails with LockLostError.
5. One at a time, not once: a message that is delivered twice runs twice, one after the other.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

from coordinator.client import Client, expect_client, expect_function
from coordinator.errors import BadArgumentsError
from coordinator.integrations.current import BusyError, run_under
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.base.names import name_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.waits import is_seconds

try:
    from dramatiq.errors import Retry
    from dramatiq.middleware import Middleware
except ImportError as error:
    raise missing_extra("dramatiq", "dramatiq") from error


class ExclusiveActors(Middleware):
    """Runs each actor that has a ``lock_key`` one at a time; ``busy_delay`` is in seconds.

    Raises:
        BadArgumentsError: ``client`` is no Client, or an option of an actor is out of its range.
    """

    def __init__(self, client: Client, *, busy_delay: float = 5.0) -> None:
        expect_client(client, Client, "ExclusiveActors")
        if not is_seconds(busy_delay):
            raise BadArgumentsError(f"busy_delay: expected seconds from 0, found {busy_delay!r}")
        self._client = client
        self._busy_delay_ms = round(busy_delay * 1000)

    @property
    def actor_options(self) -> set[str]:
        """The options of an actor that this middleware reads."""
        return {"lock_key", "lock_timeout", "when_busy"}

    def after_declare_actor(self, broker: Any, actor: Any) -> None:
        """Put the lock around an actor's function."""
        key = actor.options.get("lock_key")
        if key is None:
            return
        timeout = actor.options.get("lock_timeout", 0)
        when_busy = actor.options.get("when_busy", "retry")
        if when_busy not in ("retry", "skip"):
            raise BadArgumentsError(f"when_busy: expected retry or skip, found {when_busy!r}")
        label, work = str(actor.actor_name)[:200], actor.fn
        expect_function(self._client, label, work)

        @wraps(work)
        def run_exclusively(*args: Any, **kwargs: Any) -> Any:
            name = name_of(key(*args, **kwargs) if callable(key) else key, "lock_key")
            lock = Lock(self._client, name, timeout=timeout, label=label)
            try:
                return run_under(lock, partial(work, *args, **kwargs))
            except BusyError as busy:
                if when_busy == "skip":
                    return None
                raise Retry(str(busy), delay=self._busy_delay_ms) from busy

        actor.fn = run_exclusively
