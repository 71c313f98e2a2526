"""One partition at one member: waited for, owned, worked on, released; see ``partitioner``.

Its owner goes round: wanted, acquired, working, stopped, released. The release comes after the work
has returned, whatever ended it: that is what the next owner waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic

from coordinator.client import AsyncClient, ClientT, contained, expect_result, returned
from coordinator.errors import ClientClosedError, CoordinatorError
from coordinator.recipes.grant import Grant
from coordinator.recipes.lock import Lock
from coordinator.recipes.waits import FOREVER


@dataclass(frozen=True, slots=True)
class Owned(Generic[ClientT]):
    """A partition that is owned here: what its work is given."""

    number: int
    grant: Grant[ClientT]
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the work should end: the partition moves, or its grant is lost."""

    @property
    def fencing_token(self) -> int:
        """Larger than that of any earlier owner: pass it with every write."""
        return self.grant.fencing_token


Work = Callable[[Any], Any]


class Serving(Generic[ClientT]):
    """Serves one partition whenever that is ``wanted``."""

    def __init__(self, client: ClientT, number: int, name: str, member: str, work: Work) -> None:
        self.client = client
        self.number = number
        self._name, self._member = name, member
        self._lock: Lock[ClientT] | None = None
        self._failures = 0
        self._work = work
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._owned: Owned[ClientT] | None = None
        self._thread: threading.Thread | None = None
        """Of a sync client: what runs the work, or ran it last."""

    @property
    def is_owner(self) -> bool:
        """Whether its work runs here under a grant that may be relied upon."""
        owned = self._owned
        return owned is not None and not owned.grant.is_lost

    def want(self, is_wanted: bool) -> None:
        """Say whether it should be served here."""
        to_set, to_clear = self._wanted, self._unwanted
        if not is_wanted:
            to_set, to_clear = to_clear, to_set
        to_set.set()
        to_clear.clear()

    async def serve(self) -> None:
        """Serve it, again and again, until cancelled; cancelled, it stops and releases first."""
        while True:
            await self._wanted.wait()
            try:
                grant = await self._acquired()
                if grant is not None:
                    await self._own(Owned(self.number, grant))
            finally:
                if self._lock is not None:
                    await asyncio.shield(self._lock._release_until_known())

    def join(self) -> None:
        """Wait until its work has ended, in a thread of the program."""
        if self._thread is not None:
            self._thread.join()

    async def _acquired(self) -> Grant[ClientT] | None:
        """Return the grant; None if it is not wanted any more, or the cluster cannot be asked."""
        lock = self._lock = Lock(
            self.client,
            self._name,
            label=self._member[:200],
            owner="",
            timeout=FOREVER,
            when_unsure="continue",
        )
        acquiring = asyncio.create_task(lock._acquire())
        unwanted = asyncio.create_task(self._unwanted.wait())
        try:
            await asyncio.wait({acquiring, unwanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unwanted.cancel()
            acquiring.cancel()
            await _ended(acquiring)
        if acquiring.cancelled():
            return None
        try:
            grant = acquiring.result()
        except ClientClosedError:
            raise
        except CoordinatorError:
            self._failures += 1
            await self.client.core.wait(self.client.core.retry_delay_ms(self._failures))
            return None  # the next round asks again, if it is wanted
        self._failures = 0
        return grant

    async def _own(self, owned: Owned[ClientT]) -> None:
        """Work until it is not wanted, or lost; return when the work has."""
        ending = asyncio.Event()

        def lose() -> None:
            owned.stopping.set()  # now: the session of a closed client is ended next
            ending.set()

        forget = owned.grant.hold.on_lost(lose)
        self._owned = owned
        working = asyncio.create_task(self._worked(owned))
        waits = [asyncio.create_task(each.wait()) for each in (ending, self._unwanted)]
        try:
            await asyncio.wait({working, *waits}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.exception() is None:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            owned.stopping.set()
            working.cancel()
            await _ended(working)
            self._owned = None
            forget()
            for each in waits:
                each.cancel()
        if not working.cancelled():
            working.result()

    async def _worked(self, owned: Owned[ClientT]) -> None:
        if isinstance(self.client, AsyncClient):
            await returned(self.client, self._work, owned)
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def settle(failure: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(failure)

        def in_thread() -> None:
            failure: BaseException | None = None
            try:
                expect_result(self._work, self._work(owned))
            except BaseException as error:  # the root of this thread
                failure = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, failure)

        name = f"partition {self.number}"
        self._thread = threading.Thread(target=in_thread, name=name, daemon=True)
        self._thread.start()
        await _ended(ended)
        if (failure := ended.result()) is not None:
            raise contained(failure)


async def _ended(working: asyncio.Future[Any]) -> None:
    """Return when the work has; if this is cancelled meanwhile, that is raised then."""
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
