"""What a holder has: the grant, its number, and the truth about how far it may be relied upon.

1. ``fencing_token`` grows with each grant of a lock. Pass it with every write to the store that the
   lock protects and let the store refuse a lower one: nothing else closes the gap between
   looking at a lock and writing, because a process may be paused there for any time.
2. ``check``, ``is_lost`` and ``remaining_safe_ms`` read the clock at each call (S061). What they
   say is the past as soon as it is said; so is what ``verify`` asks the cluster (S043, S076).
3. Once lost, a grant is never held again.
4. Safe to ask from any thread. Callbacks run in the client's event loop and must not block.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol

from coordinator.client import Check, Session, SessionState
from coordinator.client.facing import ClientT, both
from coordinator.errors import (
    LockLostError,
    OutcomeUnknownError,
    SessionExpiredError,
    UnavailableError,
)

_AGAIN_S = 1.0


class Queue(Protocol):
    """Where a grant came from, and goes back to."""

    async def release(self, grant_id: str) -> bool:
        """Give the grant back; False when it was not held any more."""
        ...

    async def is_current(self, grant_id: str, fencing_token: int) -> tuple[bool, int]:
        """Return whether the cluster still says that this grant holds, and as of which zxid."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """Whether a grant held at ``zxid``, and for how many ms it is certainly safe from now on.

    Never a bare yes: it describes the past when it is read (S043).
    """

    is_held: bool
    zxid: int
    safe_ms: int


class Grant(Generic[ClientT]):
    """One acquisition of ``lock``; made by the recipes."""

    def __init__(
        self,
        client: ClientT,
        *,
        lock: str,
        grant_id: str,
        fencing_token: int,
        path: str,
        session: Session,
        queue: Queue,
    ) -> None:
        self.client = client
        self.lock = lock
        self.grant_id = grant_id
        self.fencing_token = fencing_token
        self.path = path
        self.session_id = session.session_id
        self._session = session
        self._queue = queue
        self._reason = ""
        self._is_released = False
        self._callbacks: list[Callable[[], None]] = []
        self._guard = threading.Lock()
        self._unsubscribe = session.on_state(self._on_session_state)

    def __repr__(self) -> str:
        state = "released" if self._is_released else "lost" if self.is_lost else "held"
        return f"<Grant {self.grant_id} of {self.lock!r}, token {self.fencing_token}, {state}>"

    @property
    def epoch(self) -> int:
        """What an election calls its fencing token."""
        return self.fencing_token

    @property
    def is_released(self) -> bool:
        """Whether the cluster confirmed that this grant was given back."""
        return self._is_released

    @property
    def is_lost(self) -> bool:
        """Whether this grant may not be relied upon, as of now."""
        return self.remaining_safe_ms() == 0

    def remaining_safe_ms(self) -> int:
        """Return for how long nobody else can certainly be granted the lock, 0 when unknown."""
        if self._is_released or self._reason:
            return 0
        return self._session.remaining_safe_ms()

    def check(self) -> None:
        """Raise LockLostError unless the grant is certainly held now; asks only the clock."""
        if self.is_lost:
            raise self.loss()

    def loss(self) -> LockLostError:
        """Return the error that says why this grant is not held."""
        released = "it was released" if self._is_released else ""
        reason = self._reason or released or self._session.reason
        return LockLostError(
            f"{self.lock}: grant {self.grant_id} is not held: {reason}",
            lock=self.lock,
            grant_id=self.grant_id,
            fencing_token=self.fencing_token,
        )

    def on_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` once when the grant is lost; returns how to stop that.

        It is called from the client's event loop, soon also if the grant is lost already.
        """
        with self._guard:
            self._callbacks.append(callback)
        if self._reason or self._session.is_lost:
            self.client.core.loop.call_soon_threadsafe(self._tell)

        def stop() -> None:
            with self._guard:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return stop

    @both
    async def verify(self) -> int:
        """Ask the cluster whether this grant still holds; return the safe time left in ms.

        Linearizable, and the past when you read it: for writes elsewhere use the token.

        Raises:
            LockLostError: it does not hold, or its session can not be relied upon.
        """
        self.check()
        await self._ask()
        self.check()
        return self.remaining_safe_ms()

    @both
    async def is_held(self) -> Held:
        """Ask the cluster as ``verify`` does, and tell the answer instead of raising."""
        is_current, zxid = await self._ask()
        safe_ms = self.remaining_safe_ms()
        return Held(is_current and safe_ms > 0, zxid, safe_ms)

    @both
    async def extend(self) -> int:
        """Renew the lease to its full length from now on; return the safe time left in ms.

        Heartbeats do this by themselves for as long as the grant is held; call it only to know,
        before a long step, that the cluster has just agreed. All grants of the session gain by it.

        Raises:
            LockLostError: the grant is not held any more; nobody else's lease was touched (S003).
            UnavailableError: no member answered in time; the grant is as safe as it was.
        """
        self.check()
        try:
            await self._session.renew(self.client.core.settings.timeout_ms)
        except SessionExpiredError as error:
            raise self.loss() from error
        self.check()
        return self.remaining_safe_ms()

    def condition(self) -> Check:
        """Return the condition "this grant holds" for ``multi`` and ``guarded``.

        The write happens only if the grant is current in that very command; there is no gap
        between looking and writing (S052). It holds for as long as its contender exists: once the
        first of its queue, a contender has nobody before it.
        """
        return Check(self.path, expected_czxid=self.fencing_token)

    @both
    async def release(self) -> bool:
        """Give the grant back; False when it was lost (or released) before. Idempotent."""
        return await self.give_back()

    async def give_back(self) -> bool:
        """Release, on the asyncio core; goes on to its end even if the caller is cancelled.

        The grant counts as held until the cluster has said that it is not (redis-py 3847).
        """
        if self._is_released:
            return False
        chores = self.client.core.chores
        if self.is_lost:
            # Its session may live on at the server for a while; let the next one in earlier.
            self._lose(self._session.reason)
            chores.start(self._release_once(), f"release {self.grant_id} after its loss")
            self._retire()
            return False
        return await chores.shielded(self._release_once(), f"release {self.grant_id}")

    def keep_releasing(self) -> None:
        """Go on releasing in the background until it is known, or the session has ended."""
        self.client.core.chores.start(
            self._release_until_known(), f"keep releasing {self.grant_id}"
        )

    async def _release_once(self) -> bool:
        was_held = await self._queue.release(self.grant_id)
        if not was_held and not self._is_released:
            self._lose("the cluster says that it is not held")
        self._retire()
        return was_held

    async def _release_until_known(self) -> None:
        while not (self._is_released or self.is_lost):
            try:
                await self._release_once()
            except (UnavailableError, OutcomeUnknownError):
                await asyncio.sleep(_AGAIN_S)

    async def _ask(self) -> tuple[bool, int]:
        is_current, zxid = await self._queue.is_current(self.grant_id, self.fencing_token)
        if not is_current:
            self._lose("the cluster says that it does not hold any more")
        return is_current, zxid

    def _retire(self) -> None:
        self._is_released = True
        self._unsubscribe()
        with self._guard:
            self._callbacks.clear()

    def _on_session_state(self, state: SessionState) -> None:
        if state in (SessionState.LOST, SessionState.CLOSED):
            self._lose(self._session.reason)

    def _lose(self, reason: str) -> None:
        if not self._reason and not self._is_released:
            self._reason = reason
        self._tell()

    def _tell(self) -> None:
        with self._guard:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
