"""The result of an acquire: the grant, its session, and for how long it is certainly held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.client.sessions.session import Session
from coordinator.errors import OutcomeUnknownError, UnavailableError
from coordinator.model.grants import GrantReply

_AGAIN_S = 0.05


class Acquired:
    """What ``LockQueue.acquire`` returns, for a lock, an election or several locks held as one.

    ``grant`` has the ``fencing_token``, the ``grant_id`` and the ``lock`` by which it is released;
    for several locks it is the grant of the first of them, and ``grant.grants`` has one for each.
    ``session`` is the session that keeps it. Safe to ask from any thread.
    """

    __slots__ = ("grant", "paths", "session")

    def __init__(self, grant: GrantReply, session: Session) -> None:
        self.grant = grant
        self.session = session
        self.paths: tuple[str, ...] = (
            tuple([each.path for each in grant.grants]) if grant.grants else (grant.path,)
        )
        """The contenders that hold as one: one path for each lock."""

    @property
    def is_bounded(self) -> bool:
        """Whether the hold has an end of its own (``max_hold``)."""
        return self.grant.max_hold_ms > 0

    @property
    def is_lost(self) -> bool:
        """Whether another client may be granted the lock from now on."""
        return self.remaining_safe_ms() == 0

    @property
    def loss_reason(self) -> str:
        """Why it is lost, for people; empty while it is held."""
        session = self.session
        if session.reason or session.remaining_safe_ms() == 0:
            return session.reason
        if reason := session.grant_watch.loss_reason(self.paths):
            return reason
        return "its time (max_hold) is over" if self.is_lost else ""

    def remaining_safe_ms(self) -> int:
        """Return for how many ms no other client can certainly be granted the lock, 0 when unknown.

        The least of what is left of the session's lease and of ``max_hold``; 0 once it was revoked.
        """
        session = self.session
        remaining_ms, watch = session.remaining_safe_ms(), session.grant_watch
        if watch.has_lost and watch.loss_reason(self.paths):
            return 0
        if self.grant.max_hold_ms <= 0:
            return remaining_ms
        return min(remaining_ms, watch.hold_remaining_ms(self.paths))

    async def watch(self, timeout_ms: int) -> None:
        """Return when it is known how long this grant is bounded, at once if it is not; watched.

        Raises:
            SessionExpiredError: the session has ended.
            OutcomeUnknownError: no heartbeat confirmed the hold in ``timeout_ms``; it may be over.
        """
        watch, paths = self.session.grant_watch, self.paths
        if not self.is_bounded:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not watch.hold_remaining_ms(paths):
                    await self.session.renew(timeout_ms)
                    if not watch.hold_remaining_ms(paths):
                        await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise OutcomeUnknownError(
                f"{self.grant.lock}: grant {self.grant.grant_id} was released, because the "
                f"leader did not say how much is left of its {self.grant.max_hold_ms} ms"
            ) from None
        except UnavailableError as error:
            raise OutcomeUnknownError(
                f"{self.grant.lock}: grant {self.grant.grant_id} is being released, because no "
                f"member said how much is left of it: {error.message}"
            ) from error

    def stop_watching(self) -> None:
        """Stop watching: it was released, or is given up."""
        self.session.grant_watch.stop_watching(self.paths)


async def give_back(
    acquired: Acquired, release: Callable[[GrantReply], Awaitable[object]], pause_ms: int
) -> None:
    """Release what is not reported; once if its session is lost, else until it is known."""
    is_released = False
    while not is_released:
        try:
            await release(acquired.grant)
            is_released = True
        except (UnavailableError, OutcomeUnknownError):
            if acquired.session.is_lost:
                return  # it goes with its session, at the server's time
        if not is_released:
            await asyncio.sleep(pause_ms / 1000)
