"""A rate that all clients share: permits a second, with bursts, in one request each.

::

    bucket = TokenBucket(client, "mail", rate=50, burst=100)
    if bucket.take():
        send()

1. One request looks and takes: it carries what this client believes the bucket to hold, and writes
   only if that is so. If not, it returns what the bucket holds, and is sent again. A lock for each
   take would be two requests, and all clients would wait for each other.
2. Where that is a request too many, ``chunk(n)`` takes up to ``n`` at once and spends them without
   a request. N clients that do so exceed the rate by at most N x n permits (``TokenChunk``).
3. The bucket refills by the members' wall clocks, as its znode's Stat says; a client whose
   own clock is off notices at its first take, which costs one burst at most. If the wall clocks of
   the members are more than ten seconds apart the rate is not kept. Nothing here is a lock.
4. An unknown outcome is raised as such: the permits may have been taken.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Generic

from coordinator.client import (
    Check,
    ClientT,
    Create,
    Operation,
    Read,
    Session,
    SetData,
    Stat,
    both,
    limit_ms_of,
    within,
)
from coordinator.errors import BadArgumentsError, CoordinatorError, TooManyRetriesError
from coordinator.recipes.base.ended_by_with import EndedByWith
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.base.names import checked_count, name_of, path_of
from coordinator.recipes.waits import Timeout, is_seconds, wait_ms_of

ROOT = "/buckets"
_MILLI = 1_000
_CONFLICTS_MAX = 100
_SKEW_MS = 5_000
"""How far clocks may be apart before one of them is taken to be wrong."""


class TokenChunk(EndedByWith[ClientT]):
    """The permits of ``bucket`` that this client has at hand; made by ``TokenBucket.chunk``.

    ::

        with TokenBucket(client, "mail", rate=5000, burst=10_000).chunk(200) as permits:
            for mail in mails:
                if permits.take(timeout=1):           # one request for 200 of these
                    send(mail)

    1. A client has at most ``size`` permits at hand. So N clients exceed the rate by N x ``size``
       at most, in any span of time: what was taken from the bucket may be spent later.
    2. When the bucket has no whole chunk it takes what is asked for, so a scarce rate is shared.
    3. Permits end with the session under which they were taken, by this client's clock: a client
       that is cut off spends none after its lease. The bucket has refilled by then.
    4. ``give_back``, and the end of ``with``, return what was not spent. Those of a client that
       dies are lost, until the bucket has refilled.
    5. One object may be used by many tasks and threads; one of them fetches, the others wait.
    """

    def __init__(self, client: ClientT, bucket: TokenBucket[ClientT], size: int) -> None:
        self.client = client
        self.size = checked_count("size", size, bucket.burst)
        self._bucket = bucket
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
                await asyncio.sleep(missing_ms / 1000)  # others with less time may look
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
            # What is left is put aside, as others go on to spend.
            aside, self._left, self._session = self.left, 0, session
            try:
                if (missing_ms := await self._bucket._try_take(self.size - aside)) == 0:
                    aside = self.size - count
                elif (missing_ms := await self._bucket._try_take(count - aside)) == 0:
                    aside = 0
                return missing_ms
            finally:
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
            count, self._left = self.left, 0
            if count > 0:
                await self._bucket._try_take(-count)
            return count

    give_back = both(_give_back)

    def _spend(self, count: int) -> bool:
        if self.left < count:
            return False
        self._left -= count
        return True

    async def _end(self, error: BaseException | None) -> None:
        try:
            await self._give_back()
        except CoordinatorError:
            pass  # the bucket refills


@dataclass(frozen=True, slots=True)
class _Level:
    """What was there at ``at_ms``, in thousandths of permits; None of ``stat`` is not there yet."""

    milli: int
    at_ms: int
    stat: Stat | None

    def to_bytes(self) -> bytes:
        return json.dumps({"milli": self.milli, "at_ms": self.at_ms}).encode()

    @classmethod
    def of(cls, path: str, data: bytes, stat: Stat) -> _Level:
        try:
            document = json.loads(data)
            milli, at_ms = document["milli"], document["at_ms"]
        except (ValueError, KeyError, TypeError):
            milli = at_ms = None
        if type(milli) is not int or type(at_ms) is not int:
            raise BadArgumentsError(f"{path}: expected a TokenBucket, found {data[:60]!r}")
        # Another time than the members' comes from a client whose clock was wrong.
        if abs(at_ms - stat.mtime_ms) > _SKEW_MS:
            at_ms = stat.mtime_ms
        return cls(milli, at_ms, stat)


class TokenBucket(Generic[ClientT]):
    """The bucket ``name``; all its clients name the same rate and burst.

    Args:
        rate: permits that come back each second, above 0.
        burst: how many permits it holds at most, 1 or more; it is full at first.
    """

    def __init__(self, client: ClientT, name: str | int, *, rate: float, burst: int) -> None:
        self._path = path_of(ROOT, name)
        if not is_seconds(rate) or rate <= 0:
            raise BadArgumentsError(f"rate: expected permits a second, above 0; found {rate!r}")
        self.client = client
        self.name = name_of(name)
        self.rate = rate
        self.burst = checked_count("burst", burst)
        self._known: _Level | None = None
        self._offset_ms = 0
        """What must be added to our own wall clock to agree with the members'."""

    @both
    async def take(self, count: int = 1, *, timeout: Timeout = 0) -> bool:
        """Take ``count`` permits together; False if they are not there within ``timeout`` seconds.

        Raises:
            BadArgumentsError: more than ``burst`` at once would never be there.
            UnavailableError: no member could be reached in time; nothing was taken.
            OutcomeUnknownError: no answer in time; the permits may have been taken.
            TooManyRetriesError: others took permits first, a hundred times in a row.
        """
        checked_count("count", count, self.burst)
        return await self._take_within(count, wait_ms_of(timeout))

    def chunk(self, size: int) -> TokenChunk[ClientT]:
        """Return permits that are taken up to ``size`` at once, and spent without a request.

        Raises:
            BadArgumentsError: ``size`` is not from 1 to ``burst``.
        """
        return TokenChunk(self.client, self, size)

    @both
    async def available(self) -> int:
        """Return how many permits are there now: the past when it is read.

        Raises:
            BadArgumentsError: the znode is no bucket.
            UnavailableError: no member answered in time.
        """
        znode = await read(self.client.core, self._path)
        if znode is None:
            self._known = None
            return self.burst
        self._known = _Level.of(self._path, znode.data, znode.stat)
        return self._refilled().milli // _MILLI

    # --- inside

    async def _take_within(self, count: int, wait_ms: int | None) -> bool:
        clock = self.client.clock
        deadline_ms = None if wait_ms is None else clock.monotonic_ms() + wait_ms
        while (missing_ms := await self._try_take(count)) > 0:
            if deadline_ms is not None and clock.monotonic_ms() + missing_ms > deadline_ms:
                return False
            await asyncio.sleep(missing_ms / 1000)
        return True

    async def _try_take(self, count: int) -> int:
        """Take, and return 0; or return for how many ms there will not be enough.

        Less than 0 puts back, up to the burst.
        """
        milli, failures = count * _MILLI, 0
        while True:
            level = self._refilled()
            if level.milli < milli:  # the others mostly take: there is no need to ask
                return math.ceil((milli - level.milli) / self.rate)
            if await self._exchange(level, milli):
                return 0
            failures += 1
            if failures >= _CONFLICTS_MAX:
                raise TooManyRetriesError(
                    f"{self._path}: expected to be first once, found another in {failures} tries; "
                    "nothing was changed. Try again later, or take more at once and less often",
                    path=self._path,
                    tries=failures,
                )
            if failures > 1:  # the first only read the bucket
                # Another client was served, so nothing is overloaded: only step aside.
                await asyncio.sleep(self.client.core.retry_delay_ms(1) / 1000)

    async def _exchange(self, level: _Level, milli: int) -> bool:
        """Write what is left if the bucket is as we know it; learn what it is if not."""
        milli_left = min(self.burst * _MILLI, level.milli - milli)
        left = _Level(milli_left, level.at_ms, None).to_bytes()
        path, stat, sent_ms = self._path, level.stat, self.client.clock.wall_ms()
        condition, write = Check(path, exists=False), Create(path, left, parents="persistent")
        steps: list[Operation] = [write]
        if stat is not None:
            condition = Check(path, expected_version=stat.version, expected_czxid=stat.czxid)
            steps = [SetData(path, left)]
        reply = await self.client.core.guarded([condition], then=steps, otherwise=[Read(path)])
        result = reply.results[0]
        is_taken = reply.branch == "then"
        data = left if is_taken else result.data
        if is_taken and result.stat is not None:
            offset_ms = result.stat.mtime_ms - sent_ms
            self._offset_ms = offset_ms if abs(offset_ms) > _SKEW_MS else 0
        self._known = None if result.stat is None else _Level.of(path, data, result.stat)
        return is_taken

    def _refilled(self) -> _Level:
        """Return what is there by now, for all that is known here."""
        now_ms, full = self.client.clock.wall_ms() + self._offset_ms, self.burst * _MILLI
        known = self._known
        if known is None:
            return _Level(full, now_ms, None)
        elapsed_ms = now_ms - known.at_ms
        if elapsed_ms < -2 * _SKEW_MS:  # a clock was set back: begin again from what is there
            return _Level(min(known.milli, full), now_ms, known.stat)
        if elapsed_ms <= 0:
            return known  # never back: many small differences would add up
        milli = min(full, known.milli + int(elapsed_ms * self.rate))
        return _Level(milli, now_ms, known.stat)
