"""A lock with the methods of python-redis-lock's ``Lock``, kept by the cluster instead of by Redis.

::

    from coordinator.integrations import python_redis_lock as redis_lock

    with redis_lock.Lock(client, "report", expire=60, auto_renewal=True) as lock:  # connect()
        save(report, token=lock.fencing_token)

For programs that use that library: same arguments, same methods, the same classes of errors. New
code is better off with ``recipes.Lock``. What differs:

1. There is a ``fencing_token``. Pass it to the store, as ``recipes.Lock`` says.
2. ``expire`` None, or ``auto_renewal``: the lock is kept for as long as its process lives, and
   freed a session's timeout after it died. Redis keeps the former for ever, and frees the latter
   after ``expire``. Otherwise ``expire`` ends the hold however alive the holder is, as there.
3. Waiters are served in turn. ``acquire(timeout=0)`` tries once; there it waits without end.
4. ``extend`` never ends a hold sooner than it would have ended.
5. It is the cluster's lock ``lock:NAME``. What releases a lock of another client (``reset``,
   ``reset_all``, ``release`` by an ``id`` from elsewhere) needs the right ``admin`` on it, is in
   the audit log, and its holder is notified. Raise your guards then, as after each such release.
6. A cluster that cannot be reached is UnavailableError or OutcomeUnknownError, never False.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from os import urandom
from types import TracebackType
from typing import Any

from coordinator.client import Client, Contender, both, expect_client
from coordinator.client.locks import GrantReply
from coordinator.errors import LockLostError, LockTimeoutError, NotOwnerError
from coordinator.integrations.extras import missing_extra
from coordinator.recipes import lock as fair
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import FOREVER, Timeout

try:
    from redis_lock import (
        AlreadyAcquired,
        AlreadyStarted,
        InvalidTimeout,
        NotAcquired,
        NotExpirable,
        TimeoutNotUsable,
        TimeoutTooLarge,
    )
except ImportError as error:
    raise missing_extra("python_redis_lock", "python-redis-lock") from error

__all__ = [
    "AlreadyAcquired", "AlreadyStarted", "InvalidTimeout", "Lock", "NotAcquired", "NotExpirable",
    "PythonRedisLock", "TimeoutNotUsable", "TimeoutTooLarge", "reset_all",
]  # fmt: skip

PREFIX = "lock:"
_BY = "python-redis-lock"


class PythonRedisLock:
    """The lock ``name``; the arguments are those of python-redis-lock, with a Client for Redis.

    Args:
        expire: seconds, cut to whole ones, after which the hold ends; None without end.
        id: what the holder is called, its label in the queue; random if it is not given. With the
            id of another holder, ``release`` and ``extend`` are about that one's hold.
        auto_renewal: keep the hold while the process lives, whatever ``expire`` says.
        blocking: whether ``with`` waits for the lock.

    Raises:
        ValueError: ``expire`` is negative, or missing with ``auto_renewal``.
        TypeError: ``id`` is neither text nor bytes.
        BadArgumentsError: the name or the id is too long, or empty.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        expire: float | None = None,
        id: str | bytes | None = None,
        auto_renewal: bool = False,
        strict: bool = True,
        signal_expire: int = 1000,
        blocking: bool = True,
    ) -> None:
        expect_client(client, Client, "PythonRedisLock")
        if auto_renewal and expire is None:
            raise ValueError("Expire may not be None when auto_renewal is set")
        self.client = client
        self.name = PREFIX + name
        self.blocking = blocking
        self._expire = _seconds(expire)
        self._is_renewed = auto_renewal
        self._is_own_id = id is None
        self._id = _id_of(id)
        self._mutex = threading.Lock()
        self._grant: Grant[Client] | None = None
        self._contender()  # refuses what is out of its range here, not at the first acquire

    @property
    def id(self) -> str:
        """What the holder is called."""
        return self._id

    @property
    def grant(self) -> Grant[Client] | None:
        """What was acquired and not given back, None when nothing was; it may be lost by now."""
        return self._grant

    @property
    def fencing_token(self) -> int:
        """The token of the grant that is held.

        Raises:
            NotAcquired: none is held, or it was lost.
        """
        grant = self._grant
        if grant is None or grant.is_lost:
            raise self._not_acquired()
        return grant.fencing_token

    def get_owner_id(self) -> str | None:
        """Return the id of who holds the lock, None when it is free: the past when read."""
        holder = self._holder()
        return None if holder is None else holder.label

    def locked(self) -> bool:
        """Return whether any client holds the lock: the past when it is read."""
        return self._holder() is not None

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Return whether the lock was acquired in time; ``timeout`` None waits without end.

        Raises:
            AlreadyAcquired: this object, or the holder of its id, holds it.
            TimeoutNotUsable, InvalidTimeout, TimeoutTooLarge: as there.
            UnavailableError, OutcomeUnknownError: the cluster did not answer; not acquired.
            SessionExpiredError: a member says that the session ended while waiting.
        """
        if self._is_held():
            raise AlreadyAcquired("Already acquired from this Lock instance.")
        wait: Timeout = self._wait(blocking, timeout)
        try:
            grant = self._contender().acquire(timeout=wait)
        except LockTimeoutError:
            return False
        self._keep(grant)
        return True

    def extend(self, expire: float | None = None) -> None:
        """Let the hold end not before so many seconds from now; without a number, ``expire``.

        Raises:
            NotAcquired: it is not held, or was lost.
            NotExpirable: it has no end that could be moved.
            TypeError: no number is given, here or to the lock.
            ValueError: the number is negative.
            UnavailableError, OutcomeUnknownError: it was not extended; it may have been.
        """
        seconds = _seconds(expire) or self._expire
        if seconds is None:
            raise TypeError(
                "To extend a lock 'expire' must be provided as an argument to extend() method or "
                "at initialization time."
            )
        grant = self._grant
        if grant is None and not self._is_own_id:
            self._extend_by_id(seconds)
            return
        if grant is None or grant.is_lost:
            raise self._not_acquired()
        if self._expire is None:
            raise NotExpirable(f"Lock {self.name} has no assigned expiration time")
        if self._is_renewed:
            return  # it is kept
        try:
            grant.renew_to(seconds)
        except LockLostError as error:
            raise self._not_acquired() from error

    def release(self) -> None:
        """Give the lock back.

        Raises:
            NotAcquired: it is not held, or was lost.
            UnavailableError, OutcomeUnknownError: it may be held still; it frees itself at the
                latest with the session.
            NoAuthError: another client holds it under this id, and this one may not end that.
        """
        grant = self._grant
        if grant is None:
            if self._is_own_id or not self._revoke(self._id, "released by its id"):
                raise self._not_acquired()
            return
        is_lost = grant.is_lost
        is_released = grant.release()
        with self._mutex:  # not before: what failed may be tried again
            if self._grant is grant:  # another thread may have acquired since
                self._grant = None
        if is_lost or not is_released:
            raise self._not_acquired()

    def reset(self) -> None:
        """Release the lock by force, whatever client holds it.

        Raises:
            NoAuthError: this client may not.
            UnavailableError, OutcomeUnknownError: nothing was released; it may have been.
        """
        self._revoke(None, "reset")

    def __enter__(self) -> PythonRedisLock:
        if not self.acquire(blocking=self.blocking):
            raise self._not_acquired()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.release()

    # --- inside

    def _keep(self, grant: Grant[Client]) -> None:
        """Hold by ``grant``, unless it was lost and another thread has a later one by now."""
        with self._mutex:
            if self._grant is None or self._grant.fencing_token < grant.fencing_token:
                self._grant = grant

    def _wait(self, blocking: bool, timeout: float | None) -> Timeout:
        if not blocking:
            if timeout is not None:
                raise TimeoutNotUsable("Timeout cannot be used if blocking=False")
            return 0
        if timeout is None:
            return FOREVER
        seconds, expire = int(timeout), self._expire
        if seconds < 0:
            raise InvalidTimeout(f"Timeout ({seconds}) cannot be less than or equal to 0")
        if expire is not None and not self._is_renewed and seconds > expire:
            raise TimeoutTooLarge(f"Timeout ({seconds}) cannot be greater than expire ({expire})")
        return seconds

    def _is_held(self) -> bool:
        grant = self._grant
        if grant is not None and not grant.is_lost:
            return True
        return not self._is_own_id and self.get_owner_id() == self._id

    def _contender(self) -> fair.Lock[Client]:
        longest = None if self._is_renewed else self._expire
        return fair.Lock(self.client, self.name, max_hold=longest, owner="", label=self._id)

    def _holder(self) -> Contender | None:
        return self.client.lock(self.name).holder

    def _revoke(self, owner_id: str | None, reason: str) -> bool:
        """End the hold of ``owner_id``, of anybody if None; False if there was none."""
        holder = self._holder()
        if holder is None or owner_id not in (None, holder.label):
            return False
        try:
            self.client.revoke(self.name, by=_BY, reason=reason, grant_id=holder.grant_id)
        except NotOwnerError:
            return False
        return True

    @both
    async def _extend_by_id(self, seconds: int) -> None:
        core = self.client.core
        holder = (await core.lock(self.name)).holder
        if holder is None or holder.label != self._id:
            raise self._not_acquired()
        if not holder.max_hold_ms:
            raise NotExpirable(f"Lock {self.name} has no assigned expiration time")
        held = GrantReply(
            holder.grant_id, self.name, holder.fencing_token, holder.session_id, holder.path, 1
        )
        try:
            await core.lock_queue(self.name).extend(held, to_ms=seconds * 1000)
        except NotOwnerError:
            raise self._not_acquired() from None

    def _not_acquired(self) -> NotAcquired:
        return NotAcquired(f"Lock({self.name}) is not acquired or it already expired.")


Lock = PythonRedisLock
"""As that library calls it."""


def reset_all(client: Client) -> None:
    """Release all locks of this module by force, whatever clients hold them.

    Raises:
        As ``Lock.reset``.
    """
    for each in list(client.locks()):
        if each.lock.startswith(PREFIX):
            Lock(client, each.lock.removeprefix(PREFIX)).reset()


def _seconds(expire: float | None) -> int | None:
    if not expire:
        return None
    if int(expire) < 0:
        raise ValueError("A negative expire is not acceptable.")
    return int(expire) or None


def _id_of(said: Any) -> str:
    if said is None:
        return b64encode(urandom(18)).decode("ascii")
    if isinstance(said, bytes):
        try:
            return said.decode("ascii")
        except UnicodeDecodeError:
            return b64encode(said).decode("ascii")
    if isinstance(said, str):
        return said
    raise TypeError(f"Incorrect type for `id`. Must be bytes/str not {type(said)}.")
