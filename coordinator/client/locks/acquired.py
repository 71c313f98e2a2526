"""What was granted, the session it lives by, and for how long it is certainly held."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    def paths(self) -> tuple[str, ...]:
        """The contenders that hold, as one: one for each lock."""
        return tuple(each.path for each in self.grant.grants) or (self.grant.path,)

    @property
    def is_bounded(self) -> bool:
        """Whether the hold has an end of its own (``max_hold``)."""
        return self.grant.max_hold_ms > 0

    def remaining_safe_ms(self) -> int:
        """Return for how long nobody else can certainly be granted the lock, 0 when unknown."""
        return remaining_safe_ms(self.session, self.paths, is_bounded=self.is_bounded)

    @property
    def is_lost(self) -> bool:
        return self.remaining_safe_ms() == 0

    async def attend(self, timeout_ms: int) -> None:
        """Listen for the end of this grant; a bounded one only returns when its bound is known.

        Raises:
            SessionExpiredError: the session has ended meanwhile.
            UnavailableError: no member answered a heartbeat in time.
            OutcomeUnknownError: no heartbeat told of the hold; it may be over already.
        """
        tidings, paths = self.session.tidings, self.paths
        tidings.attend(paths, self.grant.fencing_token)
        if not self.is_bounded:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not tidings.hold_remaining_ms(paths):
                    await self.session.renew(timeout_ms)
                    if not tidings.hold_remaining_ms(paths):
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
        """Listen no more for the end of this grant."""
        self.session.tidings.forget(self.paths)


def remaining_safe_ms(session: Session, paths: Sequence[str], *, is_bounded: bool) -> int:
    """Return for how long the contenders ``paths``, which hold as one, certainly hold.

    The least of what is left of the lease and of the bound; 0 once they were taken.
    """
    remaining_ms = session.remaining_safe_ms()
    if session.tidings.taken(paths):
        return 0
    return (
        min(remaining_ms, session.tidings.hold_remaining_ms(paths)) if is_bounded else remaining_ms
    )
