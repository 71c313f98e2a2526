"""Something that may have changed: waiters look again after each notification.

::

    changed = Condition(client, "stock")
    changed.wait_for(lambda: stock.value() > 0, timeout=60)     # here
    changed.notify()                                            # there, after a change

1. ``wait_for`` remembers the last notification before it looks, so one that comes while it looks is
   not missed. No lock is needed for that, other than in a program's own memory.
2. A waiter may see several notifications as one: it looks at what is there, not at how often it
   changed. And one may say nothing new: look, do not count.
3. What is looked at is the past when it is acted upon. To act upon it, write with a condition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, overload

from coordinator.client import (
    AsyncClient,
    Client,
    ClientT,
    Conditions,
    both,
    expect_function,
    limit_ms_of,
    returned,
    run_either,
    settled,
    within,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.flag import Marked
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, FOREVER, Timeout, wait_ms_of


class Condition(Marked[ClientT]):
    """Something that may have changed; ``notify`` lets all who wait look again."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        super().__init__(client, name, "/conditions")

    @both
    async def notify(self, *, if_held: Conditions = None) -> None:
        """Let all who wait look again.

        Raises:
            LockLostError: a grant of ``if_held`` does not hold; nobody was notified.
            UnavailableError, OutcomeUnknownError: nobody was notified; they may have been.
        """
        await self._put(b"", if_held)

    @both
    async def last(self) -> int:
        """Return the zxid of the last notification, 0 if there was none.

        Raises:
            UnavailableError: no member answered in time.
        """
        stat = await self.client.core.exists(self._path)
        return 0 if stat is None else stat.mzxid

    @both
    async def wait(self, after: int, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bool:
        """Wait for a notification later than ``after``, which ``last`` returned; False: none yet.

        Raises:
            UnavailableError: no member answered at the end of the time.
        """
        core = self.client.core

        async def look() -> bool | None:
            stat = await core.exists(self._path)
            return True if stat is not None and stat.mzxid > after else None

        return await until(core, self._path, "znode", look, wait_ms_of(timeout)) is True

    @overload
    def wait_for(
        self: Condition[Client], check: Callable[[], object], timeout: Timeout = DEFAULT_TIMEOUT_S
    ) -> bool: ...
    @overload
    def wait_for(
        self: Condition[AsyncClient],
        check: Callable[[], Awaitable[object] | object],
        timeout: Timeout = DEFAULT_TIMEOUT_S,
    ) -> Coroutine[Any, Any, bool]: ...

    def wait_for(self: Any, check: Callable[[], Any], timeout: Timeout = DEFAULT_TIMEOUT_S) -> Any:
        """Call ``check`` now and after each notification; True once it is true, False: not in time.

        With a Client it is called in this thread; with an AsyncClient it may be a coroutine
        function. A notification while it runs is not missed.

        Raises:
            UnavailableError: no member answered in time.
            BadArgumentsError: ``check`` cannot be run, or returned a coroutine or a
                generator, which has not run.
            What ``check`` raises.
        """
        expect_function(self.client, "Condition.wait_for", check)
        wait_ms, limit_ms = wait_ms_of(timeout), limit_ms_of(timeout)
        began_ms, clock = self.client.clock.monotonic_ms(), self.client.clock

        def left(ms: int) -> int:
            left_ms: int = max(0, began_ms + ms - clock.monotonic_ms())
            return left_ms

        return run_either(
            self.client,
            self._wait_for(
                check,
                lambda: FOREVER if wait_ms is None else left(wait_ms) / 1000,
                lambda: None if limit_ms is None else left(limit_ms),
            ),
        )

    async def _wait_for(
        self: Any,
        check: Callable[[], Any],
        remaining: Callable[[], Timeout],
        limit_ms: Callable[[], int | None],
    ) -> bool:
        while True:
            with within(self.client.clock, limit_ms()):
                seen = await settled(self.last())
            if await returned(self.client, check):
                return True
            with within(self.client.clock, limit_ms()):
                if not await settled(self.wait(seen, remaining())):
                    return False
