"""A lock with the methods of redis-py's ``Lock``, kept by the cluster instead of by Redis.

::

    lock = RedisLikeLock(client, "report", blocking_timeout=5)     # client = connect()

    with lock:
        save(report, token=lock.fencing_token)

For programs whose code, or a library's, expects that interface: same arguments, same methods, same
errors. New code is better off with ``Lock``. What differs:

1. There is a ``fencing_token``. Pass it to the store, as ``Lock`` says.
2. ``timeout`` None: the lock is kept for as long as its process lives, and freed a session's
   timeout after it died. A number (0.5 to 2,592,000 seconds) ends the hold however alive the holder
   is; then ``owned`` is False and ``release`` raises LockNotOwnedError, as in Redis.
3. Waiters are served in turn; ``sleep`` is not needed, and ignored.
4. ``extend`` and ``reacquire`` raise LockError, as they do in Redis for a lock without a timeout: a
   bound on a hold cannot be moved here. Leave ``timeout`` out instead.
5. A cluster that cannot be reached is UnavailableError or OutcomeUnknownError, never False.
"""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn

from coordinator.client import Client, expect_client
from coordinator.errors import CoordinatorError, DeadlockError, LockTimeoutError
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import FOREVER, Timeout

try:
    from redis.exceptions import LockError, LockNotOwnedError
except ImportError as error:
    raise missing_extra("redis_lock", "redis") from error

_log = logging.getLogger(__name__)


class RedisLikeLock:
    """The lock ``name``; the arguments are those of redis-py's ``Lock``, with a Client for Redis.

    Args:
        timeout: seconds after which the hold ends; None without a bound.
        blocking: whether ``acquire`` waits, unless it says otherwise.
        blocking_timeout: how many seconds it waits at most; None without end.
        thread_local: whether a grant belongs to the thread that acquired it; otherwise any thread
            may release it.
        raise_on_release_error: whether leaving the ``with`` raises if the lock was lost;
            otherwise that is logged.

    Raises:
        BadArgumentsError: an argument is out of its range.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        expect_client(client, Client, "RedisLikeLock")
        self.client = client
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = thread_local
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if thread_local else SimpleNamespace()
        self._mutex = threading.Lock()
        """Who forgets a grant must not forget one that another thread has just got."""
        self._contender()  # refuses what is out of its range here, not at the first acquire

    @property
    def grant(self) -> Grant[Client] | None:
        """What was acquired and not given back, None when nothing was; it may be lost by now."""
        found: Grant[Client] | None = getattr(self.local, "grant", None)
        return found

    @property
    def fencing_token(self) -> int:
        """The token of the grant that is held.

        Raises:
            LockNotOwnedError: none is held, or it was lost.
        """
        grant = self.grant
        if grant is None or grant.is_lost:
            raise LockNotOwnedError(f"{self.name}: expected a lock that is held; it is not")
        return grant.fencing_token

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | None = None,
    ) -> bool:
        """Return whether the lock was acquired in time; ``sleep`` and ``token`` are ignored.

        Raises:
            LockError: it would wait without end, for itself or in a circle of owners.
            UnavailableError, OutcomeUnknownError: the cluster did not answer; not acquired.
            SessionExpiredError: a member says that the session ended while waiting.
        """
        is_waiting = self.blocking if blocking is None else blocking
        limit = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        wait: Timeout = 0 if not is_waiting else FOREVER if limit is None else limit
        try:
            grant = self._contender().acquire(timeout=wait)
        except LockTimeoutError:
            return False
        except DeadlockError as error:
            if wait is FOREVER:
                raise LockError(f"{self.name}: {error}", lock_name=self.name) from error
            return False
        self._keep(grant)
        return True

    def release(self) -> None:
        """Give the lock back.

        Raises:
            LockError: nothing was acquired.
            LockNotOwnedError: it was lost before.
            UnavailableError, OutcomeUnknownError: it may be held still; it frees itself at the
                latest with the session.
        """
        grant = self.grant
        if grant is None:
            raise LockError("Cannot release an unlocked lock", lock_name=self.name)
        is_lost = grant.is_lost
        is_released = grant.release()
        with self._mutex:
            if self.grant is grant:  # not before: what failed may be tried again
                self.local.grant = None
        if is_lost or not is_released:
            raise LockNotOwnedError(
                f"{self.name}: cannot release a lock that is no longer owned", lock_name=self.name
            )

    def locked(self) -> bool:
        """Return whether any client holds the lock: the past when it is read."""
        return self.client.lock(self.name).holder is not None

    def owned(self) -> bool:
        """Return whether this lock, in this thread if it is ``thread_local``, is surely held."""
        return self.grant is not None and not self.grant.is_lost

    def extend(self, additional_time: float, replace_ttl: bool = False) -> NoReturn:
        """Refuse: see above.

        Raises:
            LockError: always.
        """
        raise LockError(
            f"{self.name}: cannot extend; without a timeout it is kept while its process lives",
            lock_name=self.name,
        )

    def reacquire(self) -> NoReturn:
        """Refuse: see above.

        Raises:
            LockError: always.
        """
        raise LockError(
            f"{self.name}: cannot reacquire; without a timeout it is kept while its process lives",
            lock_name=self.name,
        )

    def __enter__(self) -> RedisLikeLock:
        if not self.acquire():
            raise LockError("Unable to acquire lock within the time specified", self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LockError as lost:
            if self.raise_on_release_error:
                raise
            _log.warning("%s", lost)
        except CoordinatorError:
            if self.grant is not None:
                self.grant.keep_releasing()
            raise

    def _keep(self, grant: Grant[Client]) -> None:
        """Hold by ``grant``, unless it was lost and another thread has a later one by now."""
        with self._mutex:
            if self.grant is None or self.grant.fencing_token < grant.fencing_token:
                self.local.grant = grant

    def _contender(self) -> Lock[Client]:
        owner = None if self.thread_local else ""
        return Lock(self.client, self.name, max_hold=self.timeout, owner=owner)
