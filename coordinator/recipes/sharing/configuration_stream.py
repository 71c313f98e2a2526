"""The versions of a configuration as they come: read once, then watched with values.

1. The watch goes on from the zxid of the read, so nothing is missed in between and nothing older
   follows. A change costs no request.
2. Of several versions that have arrived, the newest is returned.
3. When the watch is lost, all is read again, as it is now.
"""

from __future__ import annotations

import asyncio

from coordinator.client import (
    AsyncClient,
    Change,
    ChangeStream,
    Client,
    ClientT,
    both,
    expect_client,
)
from coordinator.errors import (
    ClientClosedError,
    CompactedError,
    CoordinatorError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes.base.changes import last_look
from coordinator.recipes.base.ended_by_with import EndedByWith
from coordinator.recipes.sharing.configuration_snapshot import (
    KeptVersions,
    Snapshot,
    current,
    snapshot_of,
)
from coordinator.recipes.waits import FOREVER, Timeout, wait_ms_of

_CONTACT_TIMEOUT_S = 1.0
"""A watch that was without a member for longer is lost."""

_NoAnswer = UnavailableError | OutcomeUnknownError


class Snapshots(EndedByWith[ClientT]):
    """The versions of a configuration, for ``for`` and ``async for``; never ends.

    ``with``, ``close`` or the client's end stop it. One ``next`` at a time; others wait for their
    turn."""

    def __init__(self, client: ClientT, kept: KeptVersions) -> None:
        self.client = client
        self._kept = kept
        self._turn = asyncio.Lock()
        self._seen = -1
        """The zxid of the version that was returned last, 0 if there was none."""
        self._must_read = True
        """What the watch brings may be older than what was returned, or it is not there."""
        self._changes: ChangeStream | None = None
        self._pull: asyncio.Task[Change] | None = None
        self._arrived: Snapshot | None = None
        """The newest that the watch has brought, not returned yet."""

    @both
    async def next(self, timeout: Timeout = FOREVER) -> Snapshot | None:
        """Return the newest version if it was not returned before, else wait; None: none yet.

        Raises:
            BadArgumentsError: the znode is no configuration.
            UnavailableError: no member answered at the end of the time.
        """
        wait_ms = wait_ms_of(timeout)
        if wait_ms == 0:
            self._must_read = True
            return self._unless_seen((await self._kept.now())[0])
        last_error: list[_NoAnswer] = []
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000) as scope:
                async with self._turn:
                    return await self._next(last_error)
        except TimeoutError:
            if not scope.expired():
                raise
        if last_error:
            raise last_error[-1]
        now, _ = await last_look(self._kept.path, self._kept.now())
        if now.zxid == self._seen:
            return None
        self._must_read = True
        return self._unless_seen(now)

    @both
    async def close(self) -> None:
        """Stop watching. Idempotent; a later ``next`` begins again."""
        await self._stop()

    async def _next(self, last_error: list[_NoAnswer]) -> Snapshot:
        """Wait for a version; ``last_error`` has why the last try failed, if it did."""
        core, failures = self.client.core, 0
        while True:
            try:
                found = await (self._read() if self._must_read else self._told())
                last_error.clear()
                failures = 0
                if found is not None and (found := self._unless_seen(found)) is not None:
                    return found
            except CompactedError:
                await self._stop()
            except (UnavailableError, OutcomeUnknownError) as error:
                await self._stop()
                if isinstance(error, ClientClosedError):
                    raise
                last_error[:] = [error]
                failures += 1
                await core.wait(core.retry_delay_ms(failures))
            except CoordinatorError:
                await self._stop()
                raise

    async def _read(self) -> Snapshot:
        """Return what is there, and watch from there."""
        await self._stop()
        core, path = self.client.core, self._kept.path
        page = await core.subtree(path, limit=1)
        if page.znodes and page.znodes[0].path == path:
            found = current(path, page.znodes[0].data, page.znodes[0].stat)
        else:
            found, _ = await self._kept.now()  # says so if it may not be read
        changes = core.watch(
            path, values=True, from_zxid=page.zxid, contact_timeout=_CONTACT_TIMEOUT_S
        )
        try:
            await changes.open()
        except BaseException:
            await changes.close()
            raise
        self._changes, self._must_read = changes, False
        return found

    async def _told(self) -> Snapshot | None:
        """Return the newest version that has arrived; None: what arrived says nothing."""
        assert self._changes is not None, "it watches"
        while True:
            if self._pull is None:
                self._pull = asyncio.create_task(anext(self._changes))
                self._pull.add_done_callback(_noted)
            if self._arrived is None:
                await asyncio.wait({self._pull})
            else:
                await asyncio.sleep(0)  # takes what else is there
            if self._must_read:
                return None
            if not self._pull.done():
                found, self._arrived = self._arrived, None
                return found
            pull, self._pull = self._pull, None
            self._arrived = self._of(pull.result()) or self._arrived

    def _of(self, change: Change) -> Snapshot | None:
        found = None
        for event in change.events:
            if event.path != self._kept.path or change.zxid <= self._seen:
                continue
            if event.is_withheld:
                self._must_read = True  # which says why
            elif event.data is None:
                found = Snapshot(0, {})
            else:
                found = snapshot_of(event.path, event.data, change.zxid, change.wall_ms)
        return found

    def _unless_seen(self, found: Snapshot) -> Snapshot | None:
        if found.zxid == self._seen:
            return None
        self._seen = found.zxid
        return found

    async def _stop(self) -> None:
        pull, self._pull = self._pull, None
        changes, self._changes = self._changes, None
        self._arrived, self._must_read = None, True
        try:
            if pull is not None:
                pull.cancel()
                await asyncio.wait({pull})
        finally:
            if changes is not None:
                await changes.close()

    async def _end(self, error: BaseException | None) -> None:
        await self._stop()

    def __iter__(self: Snapshots[Client]) -> Snapshots[Client]:
        expect_client(self.client, Client, "for")
        return self

    def __next__(self: Snapshots[Client]) -> Snapshot:
        found = self.next()
        assert found is not None, "it waited without end"
        return found

    def __aiter__(self: Snapshots[AsyncClient]) -> Snapshots[AsyncClient]:
        expect_client(self.client, AsyncClient, "async for")
        return self

    async def __anext__(self: Snapshots[AsyncClient]) -> Snapshot:
        found = await self.next()
        assert found is not None, "it waited without end"
        return found


def _noted(pull: asyncio.Task[Change]) -> None:
    if not pull.cancelled():
        pull.exception()  # the next caller sees it, or none needs it
