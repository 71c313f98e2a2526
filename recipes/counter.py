"""A whole number that all share: added to in one request, each addition done exactly once.

::

    visits = Counter(client, "visits")
    number = visits.add()                  # 1, then 2: no other caller gets the same number
    stock.add(-1, at_least=0)              # None when nothing is left; nothing was changed

1. A request carries the value that this client believes in, and writes only if that is still so.
   If not, it returns the value, and is sent again. Up to a hundred times; then
   TooManyRetriesError: for that much contention use several counters, and add them up.
2. An addition whose answer is lost is asked for again under the same request number, so it is done
   once. If no answer comes in time this is OutcomeUnknownError: it may have been counted, and a
   number drawn from the counter may be left out. No number is ever given out twice.
3. A counter that is deleted begins again at 0; numbers drawn from it are then not unique any more.
4. The value is between -2**63 and 2**63 - 1. The znode holds it as decimal digits, for all to read.
"""

from __future__ import annotations

import asyncio
from typing import Generic

from coordinator.client import Check, ClientT, Conditions, Create, Operation, Read, SetData, both
from coordinator.errors import BadArgumentsError, TooManyRetriesError
from recipes.counts import is_integer
from recipes.maybe_there import read
from recipes.options import name_of
from recipes.paths import path_of

ROOT = "/counters"
VALUE_MAX = 2**63 - 1
VALUE_MIN = -(2**63)
_CONFLICTS_MAX = 100


class Counter(Generic[ClientT]):
    """The counter ``name``; it is there, and 0, before it is first added to."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        self.client = client
        self.name = name_of(name)
        self._path = path_of(ROOT, name)
        self._known: tuple[int, Check] = (0, Check(self._path, exists=False))
        """The value as it was last seen, and the condition that it still is."""

    @both
    async def add(
        self,
        number: int = 1,
        *,
        at_least: int = VALUE_MIN,
        at_most: int = VALUE_MAX,
        if_held: Conditions = None,
    ) -> int | None:
        """Add ``number`` and return the sum; None if it would be out of bounds: nothing was added.

        Raises:
            TooManyRetriesError: others were first, a hundred times in a row; nothing was added.
            LockLostError: a grant of ``if_held`` does not hold; nothing was added.
            UnavailableError, OutcomeUnknownError: nothing was added; it may have been.
            BadArgumentsError: an argument is no integer in range, or the znode is no counter.
        """
        for what, given in (("number", number), ("at_least", at_least), ("at_most", at_most)):
            _check(what, given)
        is_asked = False
        for failures in range(_CONFLICTS_MAX + 1):
            seen = self._known
            total = seen[0] + number
            if at_least <= total <= at_most:
                if await self._exchange(seen, total, if_held):
                    return total
            elif is_asked:
                return None
            else:  # what is known here may be the past
                await self._look()
            is_asked = True
            if failures > 0:  # the first only read it; another was served, so nothing is overloaded
                await asyncio.sleep(self.client.core.retry_delay_ms(1) / 1000)
        raise TooManyRetriesError(
            f"{self._path}: expected to be first once, found another in {_CONFLICTS_MAX} tries; "
            f"nothing was added. Try again later, or use several counters",
            path=self._path,
            tries=_CONFLICTS_MAX,
        )

    @both
    async def value(self) -> int:
        """Return the value: the past when it is read.

        Raises:
            BadArgumentsError: the znode is no counter.
            UnavailableError: no member answered in time.
        """
        return await self._look()

    @both
    async def compare_and_set(
        self, expected: int, value: int, *, if_held: Conditions = None
    ) -> bool:
        """Set ``value`` if the counter is ``expected``; False if it is not.

        Raises:
            All that ``add`` raises.
        """
        _check("expected", expected)
        _check("value", value)
        for _ in range(_CONFLICTS_MAX):
            if await self._look() != expected:
                return False
            if await self._exchange(self._known, value, if_held):
                return True
        raise TooManyRetriesError(
            f"{self._path}: expected no other writer, found one in {_CONFLICTS_MAX} tries; "
            f"nothing was set",
            path=self._path,
            tries=_CONFLICTS_MAX,
        )

    # --- inside

    async def _look(self) -> int:
        znode = await read(self.client.core, self._path)
        if znode is None:
            self._known = (0, Check(self._path, exists=False))
        else:
            self._learn(znode.data, znode.stat.version, znode.stat.czxid)
        return self._known[0]

    async def _exchange(self, seen: tuple[int, Check], value: int, if_held: Conditions) -> bool:
        """Write ``value`` if the counter is as it was ``seen``; learn what it is if not."""
        path, data = self._path, str(value).encode()
        write: Operation = SetData(path, data)
        if seen[1].exists is False:
            write = Create(path, data, parents="persistent")
        reply = await self.client.core.guarded(
            [seen[1]], then=[write], otherwise=[Read(path)], if_held=if_held
        )
        result = reply.results[0]
        is_written = reply.branch == "then"
        if result.stat is None:
            self._known = (0, Check(path, exists=False))
        else:
            now = data if is_written else result.data
            self._learn(now, result.stat.version, result.stat.czxid)
        return is_written

    def _learn(self, data: bytes, version: int, czxid: int) -> None:
        try:
            value = int(data.decode("ascii"))
        except ValueError:
            raise BadArgumentsError(
                f"{self._path}: expected a Counter, found {data[:60]!r}"
            ) from None
        condition = Check(self._path, expected_version=version, expected_czxid=czxid)
        self._known = (value, condition)


def _check(what: str, given: int) -> None:
    if not is_integer(given) or not VALUE_MIN <= given <= VALUE_MAX:
        raise BadArgumentsError(
            f"{what}: expected an integer from -2**63 to 2**63 - 1, found {given!r:.60}"
        )
