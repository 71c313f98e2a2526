"""The hold behind a grant: how long it is certainly held, its callbacks, and its release.

Several grants may share one hold: those of a ``MultiLock``, which are acquired and released as one,
and those of an owner of a ``ReentrantLock``, of which the last one releases it.

1. Once lost, a hold is never held again; once given back, neither.
2. It counts as held until the cluster has said that it is not.
3. Safe to ask from any thread. Its callbacks are called in the client's event loop and must not
   block (a program's are put behind a ``Callback``); once that loop is closed they are called at
   once, in the caller's thread.
4. Nothing is locked: a signal handler may come in the middle of any step of a thread, and wait for
   the loop. Threads change the callbacks in one step; all else is changed in the loop alone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from coordinator.client import SessionState
from coordinator.client.locks import Acquired, GrantReply
from coordinator.errors import ClientClosedError, OutcomeUnknownError, UnavailableError

_AGAIN_MS = 1_000


class QueueClient(Protocol):
    """Where a grant comes from and is given back: a ``LockQueue``, or a recipe's own."""

    is_election: bool

    async def release(self, grant: GrantReply) -> bool:
        """Give the grant back; False when it was not held any more."""
        ...

    async def is_current(self, grant: GrantReply) -> tuple[bool, int]:
        """Return whether the cluster still says that this grant holds, and as of which zxid."""
        ...

    async def note(self, grant: GrantReply, note: bytes) -> None:
        """Leave a note with the grant."""
        ...

    async def downgrade(self, grant: GrantReply) -> Any:
        """Turn the exclusive grant into a shared one."""
        ...

    async def extend(self, grant: GrantReply, *, by_ms: int = 0, to_ms: int = 0) -> int:
        """Move the end of a bounded hold; return how many ms from now it is at the latest."""
        ...

    def clean_up(self, work: Coroutine[Any, Any, Any], name: str, owner: str) -> asyncio.Task[Any]:
        """Run ``work`` in the background; ``owner`` acquires again only when it has ended."""
        ...

    async def pause(self, owner: str, pause_ms: int) -> None:
        """Wait before a clean-up tries again; not long while ``owner`` waits to acquire."""
        ...

    def begin_release(self, owner: str) -> None:
        """Let ``owner`` acquire again only after ``end_release``."""
        ...

    def end_release(self, owner: str) -> None:
        """Such a release has ended, whatever its outcome."""
        ...


class Hold:
    """What was ``acquired`` from ``queue`` in the name of ``owner``; made in the event loop."""

    def __init__(self, acquired: Acquired, queue: QueueClient, owner: str = "") -> None:
        self._acquired = acquired
        self._grant_id = acquired.grant.grant_id
        self._session = acquired.session
        self._queue = queue
        self._owner = owner
        self._own_loop = acquired.session.own_loop
        self._loop = self._own_loop.loop
        self._reason = ""
        self._is_released = False
        self._callbacks: deque[Callable[[], None]] = deque()
        self._ends: deque[Callable[[], None]] = deque()
        self._write_numbers = itertools.count(1)
        self._unsubscribe = self._session.on_change(self._on_session_state)
        token = acquired.grant.fencing_token
        self._session.grant_watch.watch(acquired.paths, token, self.lose)
        self._releasing: Future[bool | None] | None = None
        """The outcome of the release under way: whether it was held; None if its caller gave up."""
        self._may_be_released = False
        """Whether a release was sent whose outcome is not known."""
        self._keeps_releasing: asyncio.Task[None] | None = None
        self._end_of_bound: asyncio.TimerHandle | None = None
        if acquired.is_bounded:
            self._await_end_of_bound()

    @property
    def is_released(self) -> bool:
        """Whether the cluster confirmed that it was given back."""
        return self._is_released

    @property
    def was_lost(self) -> bool:
        """Whether it was lost before it could be given back, as far as is known."""
        return bool(self._reason)

    @property
    def reason(self) -> str:
        """Why it is not held any more; empty while it is."""
        if self._reason:
            return self._reason
        return "it was released" if self._is_released else self._acquired.loss_reason

    def remaining_safe_ms(self) -> int:
        """Return for how many ms no other client can be granted the lock, 0 when unknown."""
        if self._is_released or self._reason:
            return 0
        return self._acquired.remaining_safe_ms()

    def on_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` once when it is lost; returns how to stop that.

        In a forked child, which does not hold, at once."""
        if not self._session.own_loop.process.is_ours:
            callback()
            return lambda: None
        self._callbacks.append(callback)
        if self._reason or (not self._is_released and self.remaining_safe_ms() == 0):
            try:
                self._loop.call_soon_threadsafe(self._call_back)
            except RuntimeError:  # the loop is closed: only this thread can call it
                self._call_back()

        def stop() -> None:
            with suppress(ValueError):  # it was called
                self._callbacks.remove(callback)

        return stop

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` when it is lost or given back, in any thread; it must not block."""
        self._ends.append(callback)
        if self._is_released or self._reason:
            self._call_ends()

    def _call_ends(self) -> None:
        for each in _taken(self._ends):
            each()

    def _call_back(self) -> None:
        self._call_ends()
        for callback in _taken(self._callbacks):
            try:
                callback()
            except (Exception, asyncio.CancelledError) as error:
                # A callback that fails stops neither the others nor the session.
                self._loop.call_exception_handler(
                    {"message": f"a callback of grant {self._grant_id} failed", "exception": error}
                )

    def lose(self, reason: str) -> None:
        """Say that it is not held any more; only from the event loop."""
        if not self._reason and not self._is_released:
            self._reason = reason
        self._call_back()

    def next_write_number(self) -> int:
        """Return 1, then 2, and so on: each number once, whichever thread asks.

        Raises:
            ClientClosedError: in a forked child, whose parent gives the same numbers.
        """
        self._own_loop.process.check()
        return next(self._write_numbers)

    async def give_back(self) -> bool:
        """Release; goes on until it is known even if the caller is cancelled.

        Raises:
            OutcomeUnknownError: it is not known in time, or the client was closed.
            UnavailableError: nothing was done, and nothing goes on unless ``keep_releasing``.
        """
        if self._is_released:
            return False
        if self._session.has_failed:
            # Lost, not released: its session ends, now that no grant relies on it.
            self.lose(self.reason)
            self._retire()
            return False
        if self.remaining_safe_ms() == 0:
            # Its session may live on at the server for a while: let the next one in earlier.
            self.lose(self.reason)
            self._start(self._release_once(), "release after its loss")
            self._retire()
            return False
        try:
            return await self._given_back()
        except asyncio.CancelledError:
            self.keep_releasing()  # its caller will not try again
            raise
        except ClientClosedError:
            unknown = OutcomeUnknownError(
                f"{self._grant_id}: the client was closed before it was known to be released; it "
                f"ends with session {self._session.session_id} at the latest"
            )
            raise unknown from None

    def keep_releasing(self) -> None:
        """Go on releasing in the background until it is known, or the session has ended."""
        if self._keeps_releasing is None or self._keeps_releasing.done():
            self._keeps_releasing = self._start(self._release_until_known(), "keep releasing")

    def _start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self._queue.clean_up(work, f"{name} {self._grant_id}", self._owner)

    async def renew(self, timeout_ms: int) -> None:
        """Renew the lease of its session now; raises as ``Session.renew``."""
        await self._session.renew(timeout_ms)

    async def _given_back(self) -> bool:
        """Release, one at a time: of two releases, one would find the lock lost. Others wait."""
        mine: Future[bool | None] = Future()
        while (other := self._releasing) is not None:
            was_held = await asyncio.wrap_future(other)
            if was_held is not None:
                return was_held
            if self._is_released:
                return not self._reason
        self._releasing = mine
        mine.set_running_or_notify_cancel()
        self._queue.begin_release(self._owner)
        try:
            was_held = await self._release_once()
        except Exception as error:
            self._end(mine).set_exception(error)
            del mine  # which has the error, whose frames have this one
            raise
        except BaseException:
            self._end(mine).set_result(None)
            raise
        self._end(mine).set_result(was_held)
        return was_held

    def _end(self, release: Future[bool | None]) -> Future[bool | None]:
        self._queue.end_release(self._owner)
        self._releasing = None
        return release

    async def _release_once(self) -> bool:
        """Send one release, and act on its outcome."""
        try:
            was_held = await self._queue.release(self._acquired.grant)
        except (OutcomeUnknownError, asyncio.CancelledError):
            self._may_be_released = True
            raise
        if not was_held and not self._is_released and not self._may_be_released:
            self.lose("the cluster says that it is not held")
        self._retire()
        return was_held

    async def _release_until_known(self) -> None:
        while not self._is_released and self.remaining_safe_ms() > 0:
            try:
                await self._given_back()
            except (UnavailableError, OutcomeUnknownError):
                await self._queue.pause(self._owner, _AGAIN_MS)

    def _retire(self) -> None:
        self._is_released = True
        self._unsubscribe()
        self._acquired.stop_watching()
        if self._end_of_bound is not None:
            self._end_of_bound.cancel()
        self._callbacks.clear()
        self._call_ends()

    def _on_session_state(self, state: SessionState) -> None:
        if state in (SessionState.LOST, SessionState.CLOSED):
            self.lose(self._session.reason)

    def _await_end_of_bound(self) -> None:
        """Call back when a bounded hold ends; heartbeats may have moved its end."""
        remaining_ms = self._session.grant_watch.hold_remaining_ms(self._acquired.paths)
        if remaining_ms == 0:
            self.lose("its time (max_hold) is over")
            return
        self._end_of_bound = self._loop.call_later(
            (remaining_ms + 1) / 1000, self._await_end_of_bound
        )


def _taken(callbacks: deque[Callable[[], None]]) -> list[Callable[[], None]]:
    """Take all away, each in one step: one that a thread adds meanwhile is taken now or later."""
    taken: list[Callable[[], None]] = []
    with suppress(IndexError):
        while True:
            taken.append(callbacks.popleft())
    return taken
