"""A session: the client's promise to be alive, and for how long it may rely on it.

::

                 heartbeat failed                  safe time ran out, or the member says
    connected ────────────────────► suspended ─────────────────────────────► lost
        ▲  └─────────────────────────────┼──────────────────────────────────►  ▲
        └────────────────────────────────┘ heartbeat acknowledged              │
        closed by its client: closed           (nothing leaves lost or closed)

1. ``is_lost`` and ``remaining_safe_ms`` read the clock at each call: after a pause of the whole
   process the first question gets the truth, before any task has run.
2. Once it was reported lost it stays lost, even if an acknowledgement arrives later.
3. A failed heartbeat is tried again until the safe time has run out, never less.
4. A session whose client is not well is lost at once, and never renewed again. It is ended in the
   cluster when its holders have stopped, at the latest when the safe time of its last heartbeat is
   over. If the cluster cannot be reached, the lease runs out.
5. A request that is sent anyway renews it, too, when half of the time to the next heartbeat is
   over; a client that is busy sends no heartbeats.
6. A revoked credential ends it at once, whichever request was refused for it (``delivery``).
7. Safe to ask from any thread. Callbacks run where nothing waits for them (``callbacks``).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from coordinator.client.calling.calls import Call, target_of
from coordinator.client.calling.deadline import without_deadline
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.calling.failures import CallFailures
from coordinator.client.running.callbacks import Callback
from coordinator.client.running.process import OfOneProcess, OwnLoop
from coordinator.client.sessions.grant_watch import GrantWatch
from coordinator.client.sessions.lease import Lease, margin_ms
from coordinator.client.sessions.lifetime import Lifetime
from coordinator.client.sessions.probing import Prober
from coordinator.errors import (
    AuthFailedError,
    CoordinatorError,
    NoAuthError,
    OutcomeUnknownError,
    SessionError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.model.sessions import (
    FAILURE_CHARACTERS_MAX,
    SessionClosed,
    SessionLease,
    SessionRequest,
)
from coordinator.wire.codec import reader


class SessionState(StrEnum):
    """The state of a session as its client knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


class StateListeners:
    """The callbacks of one session, added and taken away in any thread, called in ``loop``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[SessionState], None]] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``callback(state)`` at each change; returns how to stop that."""
        number = next(self._numbers)
        self._callbacks[number] = callback

        def stop() -> None:
            self._callbacks.pop(number, None)

        return stop

    def notify(self, state: SessionState) -> None:
        """Call all of them."""
        for callback in list(self._callbacks.values()):
            try:
                callback(state)
            except (Exception, asyncio.CancelledError) as error:
                # One holder's mistake must not keep the others uninformed.
                self._loop.call_exception_handler(
                    {"message": "a callback of a session failed", "exception": error}
                )


T = TypeVar("T")


_ENDED = (SessionState.LOST, SessionState.CLOSED)


class _End(NamedTuple):
    state: SessionState
    reason: str
    is_unheard: bool = False
    """Only because no member has answered in time."""


class Session(OfOneProcess):
    """One open session with its heartbeats; made by ``open_session``."""

    def __init__(
        self, delivery: CallDelivery, session_id: str, lease: Lease, margin_ratio: float
    ) -> None:
        self.session_id = session_id
        self._delivery = delivery
        self._clock = delivery.clock
        self._lease = lease
        self.grant_watch = GrantWatch(delivery.clock, margin_ratio)
        """What heartbeats say of the grants of this session."""
        self._contact = SessionState.CONNECTED
        """Whether its members answer: connected or suspended."""
        self._ends: list[_End] = []
        """Its end, once it has come; a thread may add another one in that moment, which is void."""
        self._announced = SessionState.CONNECTED
        self.own_loop = OwnLoop()
        """Where its heartbeats are sent."""
        self._loop = self.own_loop.loop
        self._listeners = StateListeners(self._loop)
        self._failure = ""
        """What is wrong with the client, if that is why the session ended."""
        self._is_end_reported = False
        self._probes: asyncio.Task[None] | None = None
        self._heartbeats = self._loop.create_task(
            self._keep_alive(),
            name=f"heartbeats of session {session_id}",
            context=without_deadline(),
        )

    @property
    def timeout_ms(self) -> int:
        """After how much silence the cluster ends the session."""
        return self._lease.timeout_ms

    @property
    def state(self) -> SessionState:
        """The state as of now, by the clock; lost in a forked child."""
        if not self.own_loop.process.is_ours:
            return SessionState.LOST
        self.remaining_safe_ms()
        return self._state

    @property
    def _state(self) -> SessionState:
        return self._ends[0].state if self._ends else self._contact

    @property
    def reason(self) -> str:
        """Why the session ended; empty while it has not."""
        process = self.own_loop.process
        if not process.is_ours:
            return process.reason
        return self._ends[0].reason if self._ends else ""

    @property
    def is_lost(self) -> bool:
        """Whether nothing that this session owns may be relied upon any more."""
        return self.remaining_safe_ms() == 0

    def remaining_safe_ms(self) -> int:
        """Return for how long the server certainly keeps this session, 0 when that is not known.

        Always 0 in a forked child: the session is its parent's."""
        if not self.own_loop.process.is_ours:
            return 0
        # The lease before the end: what it says was true when there was no end. Again, if it was
        # renewed while the clock was read: a signal handler may come in between, for seconds.
        lease = None
        while lease is not self._lease:
            lease = self._lease
            remaining_ms = lease.safe_until_ms - self._clock.monotonic_ms()
        if self._ends:
            return 0
        if remaining_ms > 0:
            return remaining_ms
        # No guard: a signal handler may come in between that waits for the loop, which takes it.
        unheard = (
            f"no heartbeat of session {self.session_id} was acknowledged within its "
            f"{self.timeout_ms} ms"
        )
        self._ends.append(_End(SessionState.LOST, unheard, is_unheard=True))
        self.own_loop.soon(self._announce)
        return 0

    @property
    def has_ended(self) -> bool:
        """Whether its end was announced to its callbacks."""
        return self._announced in _ENDED

    @property
    def is_unheard(self) -> bool:
        """Whether it is lost only because no member answered: the cluster may still keep it."""
        return self.is_lost and bool(self._ends) and self._ends[0].is_unheard

    def check(self) -> None:
        """Ask the clock whether the session is certainly alive now.

        Raises:
            SessionExpiredError: it is not.
        """
        if self.is_lost:
            raise SessionExpiredError(self.reason, session_id=self.session_id)

    def on_state(self, callback: Callable[[SessionState], object]) -> Callable[[], None]:
        """Call ``callback(state)`` at each change (``callbacks``); returns how to stop that.

        Raises:
            ClientClosedError: in a forked child, where it would not be called.
            BadArgumentsError: it is no function that this client can call.
        """
        self.own_loop.process.check()
        called = Callback(self.own_loop, "session.on_state", callback)
        stop = self.on_change(called)

        def stop_all() -> None:
            stop()
            called.stop()

        return stop_all

    def on_change(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``callback(state)``, which must not block, in the loop at each change; for ours."""
        return self._listeners.add(callback)

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, but no longer than this session lives.

        Raises:
            SessionExpiredError: the session ended first.
            What ``work`` raises.
        """
        try:
            with Lifetime(self):
                return await work
        except SessionExpiredError as error:
            self.note_end(error)
            raise

    def note_end(self, error: SessionExpiredError) -> None:
        """Note that a member has answered a request by saying that this session has ended.

        So its holders are notified now and not by the next heartbeat, and the next acquire opens a
        new session.
        """
        if error.fields.get("session_id") == self.session_id:
            self._end(SessionState.LOST, f"the member says: {error.message}")

    async def renew(self, timeout_ms: int) -> int:
        """Send a heartbeat now; return the safe time it leaves, in ms.

        The lease has its full length from now on. Heartbeats do this anyway, so it is only
        for a caller that wants to know before a long step.

        Raises:
            SessionExpiredError: the session has ended, or cannot be relied upon any more.
            UnavailableError: no member answered in time; the session is as it was.
        """
        self.check()
        sent_ms = self._clock.monotonic_ms()
        call = self._heartbeat()
        try:
            renewed = await self._delivery.read(call, reader(SessionLease), timeout_ms)
        except SessionError as error:
            self._end(SessionState.LOST, f"the member says: {error.message}")
            raise
        self._renew(sent_ms, renewed)
        self.check()
        return self.remaining_safe_ms()

    async def close(self, timeout_ms: int) -> bool:
        """End the session at the server, releasing all it owns; False when that is not known."""
        was_lost = self.is_lost
        self._end(SessionState.CLOSED, f"session {self.session_id} was closed by its client")
        self._heartbeats.cancel()
        await asyncio.wait([self._heartbeats])
        if was_lost and (not self._failure or self._is_end_reported):
            return True  # the server ends it; a holder may still be stopping its work
        return await self._report_end(timeout_ms)

    @property
    def has_failed(self) -> bool:
        """Whether it ended because its client was not well."""
        return bool(self._failure)

    async def fail(self, failure: str, timeout_ms: int) -> bool:
        """End the session because its client is not well, for the reason ``failure``.

        It is lost at once, and its holders are notified. When they have stopped, it is ended at the
        server as a loss: lock-delays apply, and the history keeps the reason. False when that
        is not known, or when it had ended before.
        """
        if self._ends:
            return False
        self._failure = failure[:FAILURE_CHARACTERS_MAX] or "its client is not well"
        self._end(SessionState.LOST, self._failure)
        self._heartbeats.cancel()
        remaining_ms = self._lease.remaining_ms(self._clock.monotonic_ms())
        with suppress(TimeoutError):
            async with asyncio.timeout(remaining_ms / 1000):
                await self.grant_watch.nothing_watched()
        return await self._report_end(timeout_ms)

    def keep_probing(self, prober: Prober, on_failed: Callable[[Session, str], None]) -> None:
        """Let ``prober`` look while the session lives; ``on_failed`` is called when it fails."""

        async def probe() -> None:
            on_failed(self, await prober.failed())

        self._probes = self._loop.create_task(probe(), name=f"probes of session {self.session_id}")

    async def _report_end(self, timeout_ms: int) -> bool:
        target = target_of("sessions", self.session_id)
        if self._failure:
            target += f"?failure={quote(self._failure, safe='')}"
        try:
            await self._delivery.write(Call("DELETE", target), reader(SessionClosed), timeout_ms)
        except (UnavailableError, OutcomeUnknownError):
            return False
        except (AuthFailedError, NoAuthError):
            return False  # its token was revoked, and with that the server has ended it
        except SessionError:
            pass  # it had ended before
        self._is_end_reported = True
        return True

    # --- heartbeats

    async def _keep_alive(self) -> None:
        try:
            failures = CallFailures()
            while not self.is_lost:
                await self._wait_for_turn(failures)
                if failures.count or self._lease.is_due(self._clock.monotonic_ms()):
                    await self._beat(failures)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the root of this task: without heartbeats nothing is safe
            self._end(SessionState.LOST, f"the heartbeats failed: {error!r}")
            raise

    async def _wait_for_turn(self, failures: CallFailures) -> None:
        lease, now_ms = self._lease, self._clock.monotonic_ms()
        if failures.count:
            delay_ms = self._delivery.retry.delay_ms(failures.count, self._delivery.random)
            wait_ms = min(delay_ms, lease.pause_ms_max)
        else:
            wait_ms = lease.sent_ms + lease.interval_ms - now_ms
        # Looks again when the safe time ends, so the loss is reported when it happens.
        wait_ms = min(max(wait_ms, 0), lease.remaining_ms(now_ms) + 1)
        await asyncio.sleep(wait_ms / 1000)

    async def _beat(self, failures: CallFailures) -> None:
        remaining_ms = self.remaining_safe_ms()
        if remaining_ms == 0:
            return
        call = self._heartbeat()
        sent_ms = self._clock.monotonic_ms()
        try:
            renewed = await self._delivery.attempt(
                call, reader(SessionLease), min(self._lease.attempt_ms, remaining_ms)
            )
        except SessionError as error:
            self._end(SessionState.LOST, f"the member says: {error.message}")
        except CoordinatorError as error:
            failures.count += 1
            self._turn(SessionState.SUSPENDED)
            if not isinstance(error, UnavailableError | OutcomeUnknownError):
                self._delivery.endpoints.avoid(self._delivery.endpoints.current)
        else:
            failures.count = 0
            self._renew(sent_ms, renewed)

    def _heartbeat(self) -> Call:
        return Call("POST", target_of("sessions", self.session_id, "heartbeat"), renews=True)

    def _renew(self, sent_ms: int, renewed: SessionLease) -> None:
        if self.remaining_safe_ms() == 0:
            return  # too late: it may have been reported lost already
        self._lease = self._lease.renewed(sent_ms)
        self.grant_watch.on_heartbeat(sent_ms, renewed)
        self._turn(SessionState.CONNECTED)

    def _turn(self, state: SessionState) -> None:
        self._contact = state
        self._announce()

    def _end(self, state: SessionState, reason: str) -> None:
        if not self._ends:
            self._ends.append(_End(state, reason))
        self._announce()

    def _announce(self) -> None:
        """Tell the callbacks the present state, once for each; runs in the event loop."""
        state = self._state
        if state is self._announced:
            return
        self._announced = state
        if state in _ENDED and self._probes is not None:
            self._probes.cancel()
        self._listeners.notify(state)


class _BesideRequests:
    """The renewals of a session beside other requests of its client."""

    def __init__(self, session: Session) -> None:
        self.session_id = session.session_id
        self._session = session
        self._last_ms = session._lease.sent_ms
        """When a request was last sent that renews it."""

    def wants_renewal(self, now_ms: int) -> bool:
        """Whether the request that is sent now should renew it."""
        session = self._session
        lease = session._lease
        if now_ms < lease.ride_from_ms:
            return False
        if session._ends or not lease.remaining_ms(now_ms):
            return False
        if now_ms - self._last_ms < lease.pause_ms_max:
            return False  # another one is under way
        self._last_ms = now_ms
        return True

    def on_renewed(self, sent_ms: int) -> None:
        """A request sent at ``sent_ms`` has renewed it, and no grant of it was lost."""
        session = self._session
        if session.remaining_safe_ms() == 0:
            return  # too late, as for a heartbeat
        session._lease = session._lease.renewed(sent_ms)
        if session._state is SessionState.SUSPENDED:
            session.own_loop.soon(lambda: session._turn(SessionState.CONNECTED))

    def on_ended(self, reason: str) -> None:
        """The session has ended in the cluster: nothing that it owns may be relied on."""
        session = self._session
        if not session._ends:
            session._ends.append(_End(SessionState.LOST, reason))
            session.own_loop.soon(session._announce)


async def open_session(
    delivery: CallDelivery,
    session_timeout_ms: int,
    *,
    label: str,
    operator: str = "",
    timeout_ms: int,
    margin_ratio: float,
) -> Session:
    """Open a session; its lease counts from before the first attempt was sent."""
    sent_ms = delivery.clock.monotonic_ms()
    call = Call("POST", "/v1/sessions", SessionRequest(session_timeout_ms, label, operator))
    opened = await delivery.write(call, reader(SessionLease), timeout_ms)
    return new_session(
        delivery,
        opened.session_id,
        opened.timeout_ms,
        sent_ms=sent_ms,
        margin_ratio=margin_ratio,
    )


def new_session(
    delivery: CallDelivery,
    session_id: str,
    timeout_ms: int,
    *,
    sent_ms: int,
    margin_ratio: float,
) -> Session:
    """Return an open session; its lease counts from when its opening was first sent."""
    lease = Lease(sent_ms, timeout_ms, margin_ms(timeout_ms, margin_ratio))
    session = Session(delivery, session_id, lease, margin_ratio)
    delivery.renewing = _BesideRequests(session)
    return session
