"""The one session of a client: opened when first needed, and again after a loss.

A client with a health probe gets one only while the probe says that it is well. The first attempt
to hold a lock opens it with itself, in the same entry of the log, if no other call has asked for
it yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from coordinator.client.calling.background import BackgroundTasks
from coordinator.client.calling.calls import Call, target_of
from coordinator.client.calling.deadline import limited
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.sessions.probing import Prober
from coordinator.client.sessions.session import Session, new_session, open_session
from coordinator.client.sessions.settings import ClientSettings
from coordinator.errors import (
    ClientClosedError,
    OutcomeUnknownError,
    SessionError,
    UnavailableError,
    UnhealthyError,
)
from coordinator.model.sessions import SessionClosed
from coordinator.wire.codec import reader

_OPENED_S = 0.25


class OpeningSession:
    """The session that an attempt to hold opens with itself, under an id drawn here."""

    def __init__(
        self,
        delivery: CallDelivery,
        settings: ClientSettings,
        on_unopened: Callable[[OpeningSession], None],
    ) -> None:
        self.session_id = f"{delivery.entropy.getrandbits(64):016x}"
        self.is_known: asyncio.Future[Session | None] = asyncio.get_running_loop().create_future()
        """Done when a member has said that it is open; with None if the attempt ended before."""
        self.waiting = 0
        """How many others wait for it."""
        self._delivery = delivery
        self._settings = settings
        self._on_unopened = on_unopened
        self._first_ms: int | None = None
        self._last_ms = 0

    def sent(self) -> dict[str, str | int]:
        """Return what the attempt says of the session; it is sent now."""
        self._last_ms = self._delivery.clock.monotonic_ms()
        if self._first_ms is None:
            self._first_ms = self._last_ms  # a repetition may be answered with the first outcome
        return {
            "session_id": self.session_id,
            "lease_ms": self._settings.session_timeout_ms,
            "session_label": self._settings.label,
        }

    def opened(self) -> Session:
        """A member says that it is open."""
        assert self._first_ms is not None, "what is answered was sent"
        session = new_session(
            self._delivery,
            self.session_id,
            self._settings.session_timeout_ms,
            sent_ms=self._first_ms,
            margin_ratio=self._settings.lease_margin_ratio,
        )
        if not self.is_known.done():
            self.is_known.set_result(session)
        return session

    @property
    def has_ended(self) -> bool:
        """Whether it has run out, if it was opened at all: it has no heartbeats."""
        if self._first_ms is None:
            return True
        ends_ms = self._last_ms + 2 * self._settings.session_timeout_ms
        return self._delivery.clock.monotonic_ms() > ends_ms

    async def close(self, timeout_ms: int) -> None:
        """End the session that the attempt may have opened, and that is not used."""
        call = Call("DELETE", target_of("sessions", self.session_id))
        with suppress(UnavailableError, OutcomeUnknownError, SessionError):  # it runs out
            await self._delivery.write(call, reader(SessionClosed), timeout_ms)

    def end(self) -> None:
        """The attempt is over: if no session is known by now, others open their own."""
        if self.is_known.done():
            return
        self._on_unopened(self)
        if self.waiting:
            self.is_known.set_result(None)
        else:
            self.is_known.cancel()


class CurrentSession:
    """Shared by all who need it."""

    def __init__(
        self, delivery: CallDelivery, settings: ClientSettings, background: BackgroundTasks
    ) -> None:
        self._delivery = delivery
        self._settings = settings
        self._background = background
        self._prober = None if settings.probe is None else Prober(settings.probe)
        self._opening: asyncio.Task[Session] | None = None
        self._with_attempt: OpeningSession | None = None

    def begin(self) -> OpeningSession | None:
        """Let the caller's attempt open the session; None if there is one, or it is being opened.

        The caller ends it in any case.
        """
        settings, opening = self._settings, self._opening
        if self._prober is not None or settings.operator:
            return None  # more is to be said of it, or to be asked before
        if opening is not None and not _is_over(opening):
            return None
        begun = self._with_attempt = OpeningSession(self._delivery, settings, self._forget)
        self._opening = self._background.start(self._opened_with(begun), "open a session")
        return begun

    def _forget(self, begun: OpeningSession) -> None:
        if self._with_attempt is begun:
            self._with_attempt = None
            if not begun.waiting:
                self._opening = None

    async def _opened_with(self, begun: OpeningSession) -> Session:
        session = await begun.is_known
        return await self._open() if session is None else session

    @property
    def open_now(self) -> Session | None:
        """The session, if there is one; safe to ask from any thread."""
        opening = self._opening
        if opening is None or not opening.done() or _has_failed(opening):
            return None
        session = opening.result()
        return None if session.is_lost else session

    async def get(self, timeout_s: float | None) -> Session:
        """Return the session, opening it if need be, within ``timeout_s``, or the client's."""
        opening = self._opening
        if opening is None or _is_over(opening):
            # A task of its own: all callers share it, and one that gives up does not end it.
            opening = self._opening = self._background.start(self._open(), "open a session")
        if timeout_s is None:  # the attempt that opens it may wait for ever
            timeout_s = self._settings.timeout_ms / 1000
        now_ms = self._delivery.clock.monotonic_ms()
        timeout_s = limited(now_ms, round(timeout_s * 1000)) / 1000
        if not opening.done():
            await self._wait(opening, timeout_s)
        if not opening.done():
            failure = self._delivery.last_failure
            because = f": {failure}" if failure else ""
            raise UnavailableError(f"no session could be opened within {timeout_s:g} s{because}")
        if opening.cancelled():  # a cancellation of the caller's own is raised by the wait
            raise ClientClosedError("this client was closed while a session was being opened")
        if opening.exception() is not None and self._opening is opening:
            self._opening = None  # its error holds its callers, and so this client
        return opening.result()

    async def _wait(self, opening: asyncio.Task[Session], timeout_s: float) -> None:
        begun = self._with_attempt
        if begun is None:
            await asyncio.wait({opening}, timeout=timeout_s)
            return
        begun.waiting += 1
        try:
            await asyncio.wait({opening}, timeout=timeout_s)
        finally:
            begun.waiting -= 1  # no session is opened for a caller that has given up

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
        self._background.start(ending, f"end the failed session {session.session_id}")

    async def stop_opening(self) -> None:
        """Give up a session that is still being opened, unless that is about to be done.

        No caller waits for it any more; if it was opened nevertheless, it runs out.
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
