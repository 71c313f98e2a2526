"""A value that is read without a request: a copy under a lease, which a writer waits for.

::

    prices = CachedValue(client, "prices")
    prices.get()                           # a request the first time, then none
    prices.set(b"...")                     # waits until no reader relies on the former value

1. A reader that keeps a copy holds the read side of a read/write lock. ``get`` and ``peek`` return
   the copy while the clock says that this grant is certainly held, also just after a pause. So they
   never return a value older than the last acknowledged ``set``, wherever that was.
2. A writer says that it wants to write (an ephemeral znode that readers watch) and queues for the
   write side. Readers give their copies up and queue behind it. One that is paused or cut off is
   waited for until its session has ended: that long a ``set`` may take.
3. It writes only while it holds the write side, in one command; its token grows with each ``set``.
4. This is for values that are read much more often than they are written. After a ``set`` each
   reader sends four requests: it gives its copy up, which the writer waits for, watches for the
   next writer, queues again, and reads what is there. A ``TreeCache`` needs none, but is older.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Generic

from coordinator.client import LAST_MS, AsyncClient, ChangeStream, ClientT, Create, both
from coordinator.errors import (
    ClientClosedError,
    CoordinatorError,
    UnavailableError,
)
from coordinator.recipes.base.ephemeral import make, remove, unique_name
from coordinator.recipes.base.maybe_there import put, read
from coordinator.recipes.base.names import name_of, path_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.rw_lock import RWLock
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout

ROOT = "/values"
_AT_ONCE = 20


class CachedValue(Generic[ClientT]):
    """The value ``name``; ``default`` is it before the first ``set``."""

    def __init__(self, client: ClientT, name: str | int, *, default: bytes = b"") -> None:
        self.client = client
        self.name = name_of(name)
        self.default = default
        self._directory = path_of(ROOT, name, characters_max=150)
        self._path = f"{self._directory}/value"
        self._asked = f"{self._directory}/asked"
        self._lock = RWLock(client, f"value:{self.name}", owner="", when_unsure="continue")
        self._copy: tuple[Grant[ClientT], bytes] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[bytes] | None = None

    def peek(self) -> bytes | None:
        """Return the copy if it may be relied upon, else None; asks the clock, in any thread."""
        copy = self._copy
        return None if copy is None or copy[0].is_lost else copy[1]

    @both
    async def get(self) -> bytes:
        """Return the value; without a request if there is a copy.

        Raises:
            LockTimeoutError: a writer was at it for too long.
            UnavailableError, OutcomeUnknownError: no member answered in time.
            SessionExpiredError: this client's session ended.
        """
        if (value := self.peek()) is not None:
            return value
        reading, core = self._reading, self.client.core
        if reading is None or reading.done():
            reading = core.background.start(self._read(), f"read {self._path}")
            self._reading = reading
        limit_s = (core.time_left_ms() + LAST_MS) / 1000
        await asyncio.wait({reading}, timeout=limit_s)  # one that gives up leaves it to the others
        if not reading.done():
            raise UnavailableError(f"{self._path}: no member answered in time")
        if reading.cancelled():
            raise ClientClosedError(f"{self._path}: the client was closed, or forget() called")
        return reading.result()

    @both
    async def set(self, value: bytes, timeout: Timeout = DEFAULT_TIMEOUT_S) -> int:
        """Write ``value`` when no reader relies on the former one; return its fencing token.

        Raises:
            LockTimeoutError: another reader or writer was there for all of ``timeout``; nothing was
                written.
            LockLostError, UnavailableError: nothing was written.
            OutcomeUnknownError: it may have been written.
            SessionExpiredError: this client's session ended; it may have been written.
        """
        core = self.client.core
        session = await core.session(core.time_left_ms() / 1000)
        path = f"{self._asked}/{unique_name(core, session)}"
        ask = Create(path, b"", "ephemeral", session.session_id, parents="container")
        place = await make(core, session, path, [], [ask])
        assert place is not None, "there was no condition"
        writing = self._lock.write(timeout=timeout)
        try:
            await self._drop()
            grant = await writing._acquire()
            await put(core, self._path, value, if_held=grant)
            return grant.fencing_token
        finally:
            core.background.start(writing._release_until_known(), f"write {self._path} ends")
            core.background.start(remove(core, place), f"ask for {self._path} ends")

    @both
    async def forget(self) -> None:
        """Give the copy up, so that no writer waits for this reader; ends a ``get`` under way.

        Raises:
            ClientClosedError: it has gone with the client.
        """
        ending = self._reading
        if ending is not None:
            ending.cancel()
        await self._drop()
        if ending is not None:
            await asyncio.wait({ending})

    # --- inside

    async def _read(self) -> bytes:
        """Read the value under a grant, and keep both if no writer waits."""
        await self._drop()
        core, reading = self.client.core, self._lock.read()
        changes = core.watch(self._asked, kind="children")
        is_kept = False
        try:
            await _opened(core, changes)
            grant = await reading._acquire(timeout=core.settings.timeout_ms / 1000)
            value, is_asked = await self._look()
            grant.check()
            if not is_asked:
                self._copy, is_kept = (grant, value), True
                self._listening = asyncio.create_task(self._until_asked(changes))
                self._listening.add_done_callback(lambda _: self._let_go(changes, reading))
            return value
        finally:
            if not is_kept:
                self._let_go(changes, reading)

    async def _look(self) -> tuple[bytes, bool]:
        """Return the value, and whether a writer asks for it, in one request if few do."""
        core = self.client.core
        page = await core.subtree(self._directory, limit=_AT_ONCE)
        found = {each.path: each.data for each in page.znodes}
        is_asked = any(path.startswith(f"{self._asked}/") for path in found)
        if self._path not in found and page.next is not None:
            znode = await read(core, self._path)
            return self.default if znode is None else znode.data, is_asked
        return found.get(self._path, self.default), is_asked

    async def _until_asked(self, changes: ChangeStream) -> None:
        """Return when a writer asks, or it is not known whether one does."""
        with suppress(CoordinatorError):
            await anext(changes)

    def _let_go(self, changes: ChangeStream, reading: Lock[ClientT]) -> None:
        """Give the copy of this grant up, then the grant."""
        core = self.client.core
        if self._copy is not None and self._copy[0] is reading.grant:
            self._copy = None
        core.background.start(_ended(changes, reading), f"the copy of {self._path} ends")

    async def _drop(self) -> None:
        listening, self._listening, self._copy = self._listening, None, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait({listening})


async def _opened(core: AsyncClient, changes: ChangeStream) -> None:
    try:
        async with asyncio.timeout(core.time_left_ms() / 1000):
            await changes.open()
    except TimeoutError:
        raise UnavailableError(
            "no member began to watch in time; nothing was read, try again"
        ) from None


async def _ended(changes: ChangeStream, reading: Lock[ClientT]) -> None:
    await changes.close()
    await reading._release_until_known()
