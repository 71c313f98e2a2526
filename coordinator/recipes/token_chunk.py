"""Permits of a token bucket that a client takes in chunks and spends without a request.

::

    with TokenBucket(client, "mail", rate=5000, burst=10_000).chunk(200) as permits:
        for mail in mails:
            if permits.take(timeout=1):           # one request for 200 of these
                send(mail)

1. A client has at most ``size`` permits at hand. So N clients exceed the rate by N x ``size`` at
   most, in any span of time: what was taken from the bucket may be spent later.
2. When the bucket has no whole chunk it takes what is asked for, so a scarce rate is shared.
3. Permits end with the session under which they were taken, by this client's clock: a client that
   is cut off spends none after its lease. The bucket has refilled by then.
4. ``give_back``, and the end of ``with``, return what was not spent. Those of a client that dies
   are lost, until the bucket has refilled.
5. One object may be used by many tasks and threads; one of them fetches, the others wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from coordinator.client import ClientT, Session, both, limit_ms_of, within
from coordinator.errors import CoordinatorError
from coordinator.recipes.base.names import checked_count
from coordinator.recipes.ended_by_with import EndedByWith
from coordinator.recipes.waits import Timeout, wait_ms_of


class Bucket(Protocol):
    """Where the permits come from: a ``TokenBucket``."""

    burst: int

    async def _try_take(self, count: int) -> int: ...
    async def _put_back(self, count: int) -> None: ...


class TokenChunk(EndedByWith[ClientT]):
    """The permits of ``bucket`` that this client has at hand; made by ``TokenBucket.chunk``."""

    def __init__(self, client: ClientT, bucket: Bucket, size: int) -> None:
        self.client = client
        self.size = checked_count("size", size, bucket.burst)
        self._bucket = bucket
        self._guard = threading.Lock()
        self._left = 0
        self._session: Session | None = None
        self._fetching = asyncio.Lock()

    @property
    def left(self) -> int:
        """How many permits can be spent without a request."""
        session = self._session
        return 0 if session is None or session.is_lost else self._left

    async def _take(self, count: int = 1, *, timeout: Timeout = 0) -> bool:
        """Take ``count`` permits together; False if they are not there within ``timeout`` seconds.

        Raises:
            BadArgumentsError: more than ``size`` at once.
            SessionExpiredError, UnhealthyError: this client has no session to take them under.
            All else that ``TokenBucket.take`` raises.
        """
        checked_count("count", count, self.size)
        if self._spend(count):
            return True
        core, wait_ms = self.client.core, wait_ms_of(timeout)
        ends_ms = None if wait_ms is None else core.clock.monotonic_ms() + wait_ms
        with within(core.clock, limit_ms_of(timeout)):
            while (missing_ms := await self._fetch(count)) > 0:
                if ends_ms is not None and core.clock.monotonic_ms() + missing_ms > ends_ms:
                    return False
                await asyncio.sleep(missing_ms / 1000)  # others with less time look meanwhile
        return True

    async def _fetch(self, count: int) -> int:
        """Spend ``count``; return 0, or for how many ms there will not be enough.

        What is missing at hand is taken from the bucket: all of the chunk, or just that.
        """
        core = self.client.core
        async with self._fetching:
            if self._spend(count):
                return 0
            session = await core.session(core.time_left_ms() / 1000)
            with self._guard:  # what is left is put aside, as others spend meanwhile
                aside, self._left, self._session = self.left, 0, session
            try:
                if (missing_ms := await self._bucket._try_take(self.size - aside)) == 0:
                    aside = self.size - count
                elif (missing_ms := await self._bucket._try_take(count - aside)) == 0:
                    aside = 0
                return missing_ms
            finally:
                with self._guard:
                    self._left += aside

    take = both(_take, has_own_time=True)

    async def _give_back(self) -> int:
        """Return what was not spent to the bucket; return how many those were.

        Raises:
            UnavailableError, OutcomeUnknownError: they are not returned; they may have been. They
                are not spent any more either way.
            BadArgumentsError, TooManyRetriesError: as ``TokenBucket.take``.
        """
        async with self._fetching:
            with self._guard:
                count, self._left = self.left, 0
            if count > 0:
                await self._bucket._put_back(count)
            return count

    give_back = both(_give_back)

    def _spend(self, count: int) -> bool:
        with self._guard:
            if self.left < count:
                return False
            self._left -= count
            return True

    async def _end(self, error: BaseException | None) -> None:
        try:
            await self._give_back()
        except CoordinatorError:
            pass  # the bucket refills by itself
