"""What waits for the disk: messages that may leave only after a sync, and that sync.

A quick disk is synced in place, in the pass that wrote: that is fastest when little waits. A slow
one is synced elsewhere (a thread), so that the loop goes on; what is written and held meanwhile
waits for the next sync. A failed sync is never tried again (row 1; Rebello et al., ATC 2020).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.raft.blocking import RunBlocking
from coordinator.raft.journal import Journal, SyncToken
from coordinator.raft.messages import Message

AVERAGE_WEIGHT = 0.2
"""Of the newest sync, in the running average of how long one takes."""

Send = Callable[[str, Message], bool]


class Durability:
    """One member's syncs, one at a time.

    Args:
        in_place_seconds_max: syncs that take longer, on average, are not done on the loop.
        on_durable: told after a sync that did not end in the pass it began in.
        on_failure: told when such a sync failed; one in place raises.
    """

    def __init__(
        self,
        log: Journal,
        *,
        send: Send,
        run_blocking: RunBlocking,
        in_place_seconds_max: float,
        on_durable: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._send = send
        self._run_blocking = run_blocking
        self._in_place_seconds_max = in_place_seconds_max
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._held: list[tuple[str, Message]] = []
        self._average_seconds = 0.0
        self._syncing: asyncio.Task[None] | None = None
        self.sync_count = 0
        self.sync_seconds_total = 0.0

    def hold(self, member_id: str, message: Message) -> None:
        """Send ``message`` when everything written by now is durable."""
        self._held.append((member_id, message))

    def sync(self) -> None:
        """Make everything durable and send what waits for it, now or when that is done."""
        if self._syncing is not None:
            return
        if not self._log.is_dirty:
            self._release(self._take())
            return
        if self._average_seconds >= self._in_place_seconds_max:
            token = self._log.begin_sync()
            assert token is not None, "a dirty log has something to sync"
            loop = asyncio.get_running_loop()
            self._syncing = loop.create_task(self._sync_elsewhere(token, self._take()))
            return
        began = asyncio.get_running_loop().time()
        self._log.sync()
        self._note(began)
        self._release(self._take())

    def drop(self) -> None:
        """Nothing that is held may leave any more."""
        self._held.clear()
        if self._syncing is not None:
            self._syncing.cancel()

    async def stop(self) -> None:
        """Hold nothing any more, and wait for the sync under way: its file must stay open."""
        self._held.clear()
        if self._syncing is not None:
            await asyncio.wait((self._syncing,))

    async def _sync_elsewhere(self, token: SyncToken, held: list[tuple[str, Message]]) -> None:
        began = asyncio.get_running_loop().time()
        try:
            await self._run_blocking(token)
            self._log.end_sync(token)
        except Exception as error:
            self._on_failure(error)
            return
        finally:
            self._syncing = None
        self._note(began)
        self._release(held)
        self._on_durable()

    def _take(self) -> list[tuple[str, Message]]:
        held, self._held = self._held, []
        return held

    def _release(self, held: list[tuple[str, Message]]) -> None:
        for member_id, message in held:
            self._send(member_id, message)

    def _note(self, began: float) -> None:
        took = asyncio.get_running_loop().time() - began
        self._average_seconds += AVERAGE_WEIGHT * (took - self._average_seconds)
        self.sync_count += 1
        self.sync_seconds_total += took
