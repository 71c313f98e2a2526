"""What was granted, the session it lives by, and for how long it is certainly held."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from coordinator.client.session import Session
from coordinator.errors import OutcomeUnknownError, UnavailableError
from coordinator.wire.messages.acquire import Grant

_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Award:
    """A grant of a lock or an election, or the one grant of several locks."""

    grant: Grant
    session: Session

    @property
    def bounded_paths(self) -> tuple[str, ...]:
        """The contenders whose hold has an end of its own (``max_hold``), none without one."""
        if not self.grant.max_hold_ms:
            return ()
        return tuple(each.path for each in self.grant.grants) or (self.grant.path,)

    def remaining_safe_ms(self) -> int:
        """Return for how long nobody else can certainly be granted the lock, 0 when unknown."""
        remaining_ms = self.session.remaining_safe_ms()
        paths = self.bounded_paths
        return min(remaining_ms, self.session.hold_remaining_ms(paths)) if paths else remaining_ms

    @property
    def is_lost(self) -> bool:
        return self.remaining_safe_ms() == 0

    async def learn_bound(self, timeout_ms: int) -> None:
        """Return once a heartbeat has told how much is left of a bounded hold.

        Raises:
            SessionExpiredError: the session has ended meanwhile.
            UnavailableError: no member answered a heartbeat in time.
            OutcomeUnknownError: no heartbeat told of the hold; it may be over already.
        """
        paths = self.bounded_paths
        if not paths:
            return
        self.session.bind(paths)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self.session.hold_remaining_ms(paths):
                    await self.session.renew(timeout_ms)
                    if not self.session.hold_remaining_ms(paths):
                        await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise OutcomeUnknownError(
                f"{self.grant.lock}: grant {self.grant.grant_id} was given back, because the "
                f"leader did not say how much is left of its {self.grant.max_hold_ms} ms"
            ) from None
        except UnavailableError as error:
            raise OutcomeUnknownError(
                f"{self.grant.lock}: grant {self.grant.grant_id} is being given back, because no "
                f"member said how much is left of it: {error.message}"
            ) from error

    def forget(self) -> None:
        """Listen no more for the end of the hold."""
        self.session.unbind(self.bounded_paths)
