"""Sessions opened for one grant, kept alive by this member while their client waits for it.

A client that names a lease in its request cannot send heartbeats before it has the answer: it does
not know the session yet. So the member that holds its connection sends them.

1. While the client waits, three renewals per lease go to the leader. If this member dies they stop,
   and the lease runs out like any other.
2. After the grant the lease is renewed once more before the client is answered, so the client gets
   the full lease. If no leader confirms that while the lease lasts, the client gets an error.
3. The remaining lease is counted from when the last confirmed renewal was *sent*, on this member's
   clock. The leader counts from its arrival, so this member never promises more than the leader.
4. The attempt to hold opens the session with itself. What was opened, or may have been, is always
   ended. If that is unknown, the number of the attempt is abandoned first, so that no session is
   opened after its end.

A client that knows its session may have it renewed beside any of its requests
(``heartbeats.LeaseRenewal``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    LockLostError,
    OutcomeUnknownError,
    RequestForgottenError,
    SessionExpiredError,
    ShuttingDownError,
    UnavailableError,
)
from coordinator.model.access import NOBODY, Caller
from coordinator.model.sessions import SessionLease
from coordinator.service.base.context import MemberContext
from coordinator.service.base.tasks import let_go
from coordinator.service.sessions.heartbeats import Heartbeats, LeaseRenewal
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.service.writes.proposals import Proposer, RequestContext, SubmitOptions
from coordinator.state.commands import Abandon, CloseSession, OpenSession, RequestId

_ATTEMPT_MS_MIN = 200

T = TypeVar("T")


class KeptSessions:
    """The factory of kept sessions; each belongs to the request that it was made for."""

    def __init__(self, context: MemberContext, proposer: Proposer, heartbeats: Heartbeats) -> None:
        self.proposer = proposer
        self.heartbeats = heartbeats
        self.replica = context.replica
        self.timers = context.timers
        self.clock = context.clock
        self._entropy = context.random

    def new(
        self, lease_ms: int, label: str, address: str = "", *, caller: Caller = NOBODY
    ) -> KeptSession:
        """Return a session that is not open yet, under an id drawn here, for this client."""
        opening = self.opening(lease_ms, label, None, address=address)
        client_id = f"member-{self._entropy.getrandbits(128):032x}"
        request = RequestId(client_id, 1, self.replica.machine.applied_index)
        return KeptSession(self, opening, request, caller)

    def renewal(self, session_id: str, caller: Caller = NOBODY) -> LeaseRenewal | None:
        """Renew a session beside a request that names it; who asks ends it with the request.

        Not that of another, nor one that was opened with another credential: a heartbeat judges."""
        machine = self.replica.machine
        session = machine.session(session_id)
        if session is None:
            may_ride = not machine.access.is_on
        elif session.caller == caller:
            may_ride = True
        else:  # while rights are off anybody may, but for who moves it to its next credential
            may_ride = not machine.access.is_on and session.caller.identity != caller.identity
        if not may_ride:
            return None
        return LeaseRenewal(self.heartbeats, self.timers, self.clock, session_id)

    def opening(
        self,
        timeout_ms: int,
        label: str,
        request: RequestId | None,
        *,
        session_id: str | None = None,
        address: str = "",
        by: str = "",
    ) -> OpenSession:
        """Return what opens a session, under an id drawn here unless the client drew one."""
        session_id = session_id or f"{self._entropy.getrandbits(64):016x}"
        client_id = "" if request is None else request.client_id
        return OpenSession(session_id, timeout_ms, label, address, client_id, by)


class KeptSession:
    """One session of one waiting client."""

    def __init__(
        self, parts: KeptSessions, opening: OpenSession, request: RequestId, caller: Caller
    ) -> None:
        self._parts = parts
        self._caller = caller
        self._opening = opening
        self.request = request
        """The number of the attempt that opens it."""
        self._opened = asyncio.Event()
        self._opened_ms = 0
        """When it was known to be open."""
        self._may_be_open = False
        self._sent_ms = 0
        """When the last confirmed renewal was sent, or the opening."""
        self._hold_ends_ms: dict[str, int] = {}

    @property
    def session_id(self) -> str:
        """The id of the session, which is open."""
        return self._opening.session_id

    @property
    def lease_ms(self) -> int:
        """How long the session lasts without a heartbeat."""
        return self._opening.timeout_ms

    def begin(self) -> OpenSession:
        """Return what the attempt opens it by; it is sent now."""
        self._may_be_open = True
        self._sent_ms = self._parts.clock.monotonic_ms()
        return self._opening

    def on_entered(self, is_open: bool) -> None:
        """It is certain now whether the attempt has opened it."""
        self._may_be_open = is_open
        if is_open:
            self._opened_ms = self._parts.clock.monotonic_ms()
            self._opened.set()

    async def end(self, deadline_ms: int) -> None:
        """End it, whether it was opened or only may have been; nothing remains of it."""
        if not self._may_be_open:
            return
        if not self._opened.is_set():
            with suppress(RequestForgottenError):  # then it cannot be opened any more
                request = self.request
                abandon = Abandon(request.client_id, request.number, request.floor_index)
                await self._submit(abandon, deadline_ms)
        await self._submit(CloseSession(self.session_id, at_once=ENDED_AT_ONCE), deadline_ms)

    async def _submit(self, operation: Abandon | CloseSession, deadline_ms: int) -> None:
        await self._parts.proposer.submit(
            operation,
            RequestContext(None, deadline_ms, caller=self._caller),
            SubmitOptions(need_local=False),
        )

    async def kept(self, work: Awaitable[T]) -> T:
        """Return the result of ``work``, and renew the lease while it runs."""
        keeping = asyncio.create_task(self._keep(), name=f"keep session {self.session_id}")
        try:
            return await work
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
            if not keeping.cancelled():
                keeping.result()  # a defect of ours is raised, not dropped
            let_go(keeping)

    async def begin_in_full(self, paths: Sequence[str]) -> None:
        """Renew the lease now that ``paths`` hold; return once that is confirmed.

        Raises:
            SessionExpiredError, LockLostError: the grant ended before it could be answered.
            ConnectionLostError: no leader confirmed it while the lease lasted.
        """
        clock = self._parts.clock
        ends_ms = max(self._sent_ms, self._opened_ms) + self.lease_ms
        while clock.monotonic_ms() < ends_ms:
            try:
                ack = await self._renew(ends_ms)
            except ShuttingDownError:
                break
            except (UnavailableError, OutcomeUnknownError):
                again_ms = clock.monotonic_ms() + self._pause_ms
                await self._parts.timers.sleep_until(min(again_ms, ends_ms))
                continue
            lost = [each for each in ack.lost if each.path in paths]
            if lost:
                raise LockLostError(
                    f"{lost[0].path} was granted, and lost before the client was answered: "
                    f"{lost[0].how}",
                    path=lost[0].path,
                )
            return
        raise ConnectionLostError(
            f"session {self.session_id} was granted what it waited for, and no leader confirmed "
            "its lease in time; the session is being ended. Ask again",
            session_id=self.session_id,
        )

    def remaining_ms(self, paths: Sequence[str]) -> int:
        """Return the least time that the lease and the bounded holds of ``paths`` will last."""
        ends_ms = [self._hold_ends_ms[each] for each in paths if each in self._hold_ends_ms]
        end_ms = min([self._sent_ms + self.lease_ms, *ends_ms])
        return max(0, end_ms - self._parts.clock.monotonic_ms())

    @property
    def _pause_ms(self) -> int:
        return max(1, self.lease_ms // 12)

    async def _keep(self) -> None:
        timers, clock = self._parts.timers, self._parts.clock
        await self._opened.wait()
        while True:
            await timers.sleep_until(self._sent_ms + self.lease_ms // 3)
            try:
                await self._renew()
            except (SessionExpiredError, ShuttingDownError):
                return  # the wait itself ends by it, and says so
            except (UnavailableError, OutcomeUnknownError):
                await timers.sleep_until(clock.monotonic_ms() + self._pause_ms)

    async def _renew(self, until_ms: int | None = None) -> SessionLease:
        sent_ms = self._parts.clock.monotonic_ms()
        deadline_ms = sent_ms + max(_ATTEMPT_MS_MIN, self.lease_ms // 6)
        if until_ms is not None:
            deadline_ms = min(deadline_ms, until_ms)
        ack = await self._parts.heartbeats.heartbeat(
            self.session_id, deadline_ms, is_urgent=until_ms is not None
        )
        self._sent_ms = sent_ms
        self._hold_ends_ms = {path: sent_ms + left_ms for path, left_ms in ack.holds.items()}
        return ack


def in_words_of_a_lease(error: CoordinatorError) -> CoordinatorError:
    """Return the refusal of an opening in terms of the requested lease."""
    if not isinstance(error, BadArgumentsError) or "timeout_ms_min" not in error.fields:
        return error
    shortest, longest, found = (
        error.fields[name] for name in ("timeout_ms_min", "timeout_ms_max", "timeout_ms")
    )
    return BadArgumentsError(
        f"body.lease_ms: expected {shortest} to {longest} ms, found {found}", **error.fields
    )
