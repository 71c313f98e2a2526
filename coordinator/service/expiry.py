"""The end of what was begun under a token: with the token, by the wall clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordinator.errors import ConnectionLostError
from coordinator.model.access import Caller
from coordinator.service.access import AccessService
from coordinator.service.base.timers import Timer

_EXPIRY_LOOK_MS: Final = 60_000


class Expiry:
    """``with`` it: has ``end`` called when the token expires by which ``caller`` began what runs
    inside. Clocks may be set, so it looks again from time to time."""

    def __init__(self, service: AccessService, caller: Caller, end: Callable[[], None]) -> None:
        self._service = service
        self._caller = caller
        self._end = end
        self._timer: Timer | None = None
        self.is_over = False

    def __enter__(self) -> Expiry:
        if self._caller.credential:
            self._look()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Raise ConnectionLostError, which says what to do, if it is over."""
        if self.is_over:
            raise expired()

    def _look(self) -> None:
        left_ms = self._service.left_ms(self._caller)
        if left_ms is None:
            return
        if left_ms <= 0:
            self.is_over = True
            self._end()
            return
        service = self._service
        at_ms = service.clock.monotonic_ms() + min(left_ms, _EXPIRY_LOOK_MS)
        self._timer = service.timers.at(at_ms, self._look)


def expired() -> ConnectionLostError:
    """Return how what was begun under a token ends with it: a client goes on with the next."""
    return ConnectionLostError(
        "the token under which this was begun has expired: begin it again with the next"
    )
