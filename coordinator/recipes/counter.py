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

from coordinator.client import (
    Check,
    ClientT,
    Conditions,
    Create,
    Operation,
    Read,
    SetData,
    Stat,
    both,
)
from coordinator.errors import BadArgumentsError, TooManyRetriesError
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.base.names import is_integer, name_of, path_of

ROOT = "/counters"
VALUE_MAX = 2**63 - 1
VALUE_MIN = -(2**63)
_CONFLICTS_MAX = 100

Seen = tuple[int, Check]
"""The value as it was seen, and the condition that it still is."""


class Counter(Generic[ClientT]):
    """The counter ``name``; it is there, and 0, before it is first added to."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        self.client = client
        self.name = name_of(name)
        self._path = path_of(ROOT, name)
        self._known: Seen = (0, Check(self._path, exists=False))
        """What a caller saw here last: where the next one begins, and nothing more."""

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
        seen, is_asked = self._known, False
        for failures in range(_CONFLICTS_MAX + 1):
            total = seen[0] + number
            if at_least <= total <= at_most:
                is_written, seen = await self._exchange(seen, total, if_held)
                if is_written:
                    return total
            elif is_asked:
                return None
            else:  # what is known here may be the past
                seen = await self._look()
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
        return (await self._look())[0]

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
            seen = await self._look()
            if seen[0] != expected:
                return False
            if (await self._exchange(seen, value, if_held))[0]:
                return True
        raise TooManyRetriesError(
            f"{self._path}: expected no other writer, found one in {_CONFLICTS_MAX} tries; "
            f"nothing was set",
            path=self._path,
            tries=_CONFLICTS_MAX,
        )

    # --- inside

    async def _look(self) -> Seen:
        znode = await read(self.client.core, self._path)
        seen = self._seen(b"", None) if znode is None else self._seen(znode.data, znode.stat)
        self._known = seen
        return seen

    async def _exchange(self, seen: Seen, value: int, if_held: Conditions) -> tuple[bool, Seen]:
        """Write ``value`` if the counter is as it was ``seen``; return whether, and what it is."""
        path, data = self._path, str(value).encode()
        write: Operation = SetData(path, data)
        if seen[1].exists is False:
            write = Create(path, data, parents="persistent")
        reply = await self.client.core.guarded(
            [seen[1]], then=[write], otherwise=[Read(path)], if_held=if_held
        )
        result = reply.results[0]
        is_written = reply.branch == "then"
        self._known = now = self._seen(data if is_written else result.data, result.stat)
        return is_written, now

    def _seen(self, data: bytes, stat: Stat | None) -> Seen:
        if stat is None:
            return 0, Check(self._path, exists=False)
        try:
            value = int(data.decode("ascii"))
        except ValueError:
            raise BadArgumentsError(
                f"{self._path}: expected a Counter, found {data[:60]!r}"
            ) from None
        condition = Check(self._path, expected_version=stat.version, expected_czxid=stat.czxid)
        return value, condition


def _check(what: str, given: int) -> None:
    if not is_integer(given) or not VALUE_MIN <= given <= VALUE_MAX:
        raise BadArgumentsError(
            f"{what}: expected an integer from -2**63 to 2**63 - 1, found {given!r:.60}"
        )
