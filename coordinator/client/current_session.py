"""The one session of a client: opened when first needed, and again after a loss.

A client with a health probe gets one only while the probe says that it is well.
"""

from __future__ import annotations

import asyncio

from coordinator.client.chores import Chores
from coordinator.client.delivery import Delivery
from coordinator.client.probing import Prober
from coordinator.client.session import Session, open_session
from coordinator.client.settings import ClientSettings
from coordinator.errors import ClientClosedError, UnavailableError, UnhealthyError

_OPENED_S = 0.25


class CurrentSession:
    """Shared by all who need it."""

    def __init__(self, delivery: Delivery, settings: ClientSettings, chores: Chores) -> None:
        self._delivery = delivery
        self._settings = settings
        self._chores = chores
        self._prober = None if settings.probe is None else Prober(settings.probe)
        self._opening: asyncio.Task[Session] | None = None

    async def get(self, timeout_s: float | None) -> Session:
        """Return the session, opening it if need be, within ``timeout_s``."""
        opening = self._opening
        if opening is None or _is_over(opening):
            # A task of its own: all callers share it, and one that gives up does not end it.
            opening = self._opening = self._chores.start(self._open(), "open a session")
        if not opening.done():
            await asyncio.wait({opening}, timeout=timeout_s)
        if not opening.done():
            failure = self._delivery.last_failure
            because = "" if failure is None else f": {failure.message}"
            raise UnavailableError(f"no session could be opened within {timeout_s:g} s{because}")
        if opening.cancelled():  # a cancellation of the caller's own is raised by the wait
            raise ClientClosedError("this client was closed while a session was being opened")
        return opening.result()

    async def _open(self) -> Session:
        settings, prober = self._settings, self._prober
        if prober is not None and (trouble := await prober.look()):
            raise UnhealthyError(f"no session was opened, because the health probe said: {trouble}")
        session = await open_session(
            self._delivery,
            settings.session_timeout_ms,
            label=settings.label,
            operator=settings.operator,
            timeout_ms=settings.timeout_ms,
            margin_ratio=settings.lease_margin_ratio,
        )
        if prober is not None:
            session.keep_probing(prober, self._end)
        return session

    def _end(self, session: Session, failure: str) -> None:
        ending = session.fail(failure, self._settings.timeout_ms)
        self._chores.start(ending, f"end the failed session {session.session_id}")

    async def stop_opening(self) -> None:
        """Give up a session that is still being opened, unless that is about to be done.

        Nobody waits for it any more; one that was opened all the same runs out by itself.
        """
        opening = self._opening
        if opening is not None and not opening.done():
            await asyncio.wait({opening}, timeout=_OPENED_S)
            opening.cancel()

    async def close(self, limit_ms: int) -> None:
        """Close the session, if there is one, within ``limit_ms``."""
        opening = self._opening
        if opening is not None and opening.done() and not _has_failed(opening):
            await opening.result().close(limit_ms)


def _is_over(opening: asyncio.Task[Session]) -> bool:
    return opening.done() and (_has_failed(opening) or opening.result().is_lost)


def _has_failed(opening: asyncio.Task[Session]) -> bool:
    return opening.cancelled() or opening.exception() is not None
