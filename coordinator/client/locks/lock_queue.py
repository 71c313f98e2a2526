"""The client of one queue that the server runs: a lock's, an election's, or several locks' as one.

1. An attempt is one request number. However often it is sent, and to whichever member, it is one
   contender at one place in the queue; a member that dies while we wait costs nothing.
2. The server keeps the contender when a connection breaks (``on_disconnect: stay``). The client
   withdraws it by its number when the attempt fails, times out or is cancelled, and by looking at
   the queue when the members have forgotten the number. A withdrawal that cannot be delivered is
   retried in the background until it is, or the session has ended.
3. The wait has one overall deadline; each request carries what is left of it.
4. A grant that arrives when the session has no safe time left is given back, not reported. So is
   a bounded one, until a heartbeat has said how much of it is left.
5. The wait is a stream of lines: a silent member is noticed by its missing keep-alive lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from coordinator.client.calling.background import BackgroundTasks
from coordinator.client.calling.calls import Call, quoted
from coordinator.client.calling.deadline import LAST_MS, TRY_MS, limited
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.calling.failures import CallFailures
from coordinator.client.locks.acquired import Acquired, give_back
from coordinator.client.locks.attempt import (
    POSITIONS,
    AcquireAttempt,
    AskAgain,
    CallbackFailed,
)
from coordinator.client.locks.clean_ups import CleanUps
from coordinator.client.locks.held_verbs import HeldVerbs
from coordinator.client.running.process import OfOneProcess
from coordinator.client.sessions.current_session import CurrentSession, OpeningSession
from coordinator.client.sessions.lifetime import Lifetime
from coordinator.client.sessions.session import Session
from coordinator.errors import (
    AuthFailedError,
    LockLostError,
    LockTimeoutError,
    NoAuthError,
    NotOwnerError,
    OutcomeUnknownError,
    RequestError,
    RequestForgottenError,
    SessionError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.model.acquire import Acquire, AcquireRequest, fields_of
from coordinator.model.grants import (
    AbandonReply,
    GrantReply,
    ReleaseReply,
)
from coordinator.model.views import Candidate, Contender, ElectionView, LockView
from coordinator.wire.codec import reader

T = TypeVar("T")

_WITHDRAW_MS = 1_000
"""How long one round of a withdrawal tries; then it pauses, unless its owner waits for it."""
_LAST_MS_MIN = 300
_DEFINITE = LockTimeoutError | UnavailableError | AuthFailedError | NoAuthError
_FORGOTTEN_MAX = 3
_OWN = (
    "this very client holds it, by another object, task or thread: it is released there, or "
    "ReentrantLock counts what one task or thread holds"
)


class LockQueue(OfOneProcess, HeldVerbs):
    """The queue of one lock or election, or of several locks that are acquired as one.

    Made by ``client.core.lock_queue(*names)``. Any number of contenders may come from one client.
    """

    def __init__(
        self,
        delivery: CallDelivery,
        background: BackgroundTasks,
        clean_ups: CleanUps,
        sessions: CurrentSession,
        *,
        names: Sequence[str],
        is_election: bool,
        timeout_ms: int,
    ) -> None:
        assert names, "a queue has a name"
        self.names = tuple(names)
        self.is_election = is_election
        self._title = ", ".join(names)
        self._room = "elections" if is_election else "locks"
        self._base = ""
        # A contender in several queues is withdrawn by the name of any of them.
        self._bases = tuple([self._base_of(each) for each in self.names])
        self._base = self._bases[0]
        self._target = f"/v1/{self._room}" if len(names) > 1 else self._base
        self._delivery = delivery
        self._background = background
        self._clean_ups = clean_ups
        self._sessions = sessions
        self._timeout_ms = timeout_ms
        self._known_fields: tuple[AcquireRequest | None, dict[str, Any]] = None, {}
        """The request that was sent last, and what its body says of it: mostly the next one's."""

    async def acquire(
        self,
        request: AcquireRequest,
        wait_ms: int | None,
        on_position: Callable[[int], object] | None = None,
    ) -> Acquired:
        """Wait for the grant, for ``wait_ms`` in all (0: try once; None: without end).

        ``on_position(count)`` is called in the event loop with how many are before this
        contender, holders included; what it returns is awaited if it can be. What it raises ends
        the wait and is raised as it is.

        Raises:
            LockTimeoutError: others held until the deadline; nothing of the attempt is left.
            DeadlockError: the wait would never end; ``fields["cycle"]`` says who waits for whom.
            UnavailableError: no member could be reached, or none has a quorum (a try says so within
                a second); nothing of the attempt is left.
            OutcomeUnknownError: it is not granted to this caller, but may still be queued until
                the withdrawal, which goes on in the background, arrives or the session ends.
            SessionExpiredError: a member said that the session ended while waiting, or the grant
                came when it could not be relied upon; nothing of the attempt is left.
        """
        clock, usual_ms = self._delivery.clock, self._timeout_ms
        began_ms = clock.monotonic_ms()
        asked_ms = min(usual_ms, TRY_MS) if wait_ms == 0 else wait_ms or usual_ms
        left_ms = limited(began_ms, asked_ms + LAST_MS)  # of a verb; some of it to withdraw
        limit_ms = min(asked_ms, max(left_ms // 2, left_ms - LAST_MS))
        is_endless = wait_ms is None and limit_ms == asked_ms
        deadline_ms = None if is_endless else began_ms + limit_ms
        session, opening = self._sessions.open_now, None
        if session is None or not self._clean_ups.are_gone(self.names, request.owner):
            session, opening = await self._session_for(request.owner, limit_ms, deadline_ms)
        pool = self._delivery.request_ids
        ids = pool.take()
        attempt = AcquireAttempt(ids, clock, deadline_ms, wait_ms == 0, session, opening)
        try:
            acquired = await self._acquired_or_settled(attempt, request, on_position)
        finally:
            pool.give_back(ids)
            if opening is not None:
                opening.end()
        if not acquired.is_bounded and acquired.session.remaining_safe_ms():
            return acquired
        try:
            await self._expect_safe(acquired)
        except BaseException:
            acquired.stop_watching()
            work = give_back(acquired, self.release, self._delivery.retry.cap_ms)
            self.clean_up(work, f"give back {acquired.grant.grant_id}", request.owner)
            raise
        return acquired

    async def _acquired_or_settled(
        self,
        attempt: AcquireAttempt,
        request: AcquireRequest,
        on_position: Callable[[int], object] | None,
    ) -> Acquired:
        """Return the grant of the attempt; if it fails, withdraw what it may have left."""
        try:
            return await self._acquired(attempt, request, on_position)
        except BaseException as error:
            failure = error
        session, away = attempt.session, None
        if isinstance(failure, LockTimeoutError) and self._is_held_by(session):
            failure = LockTimeoutError(f"{failure.message}; {_OWN}", **failure.fields)
        if isinstance(failure, SessionExpiredError) and session is not None and session.is_unheard:
            away = UnavailableError(f"{self._title}: {session.reason}; not granted")
        await self._settle(attempt, request.owner, failure if away is None else away)
        try:
            if isinstance(failure, CallbackFailed):
                raise failure.error from None
            if away is not None:
                raise away from failure
            raise failure
        finally:
            del failure, away  # its frames hold it: no cycle is left for the collector

    def _is_held_by(self, session: Session | None) -> bool:
        """Whether this client itself holds what it waited for."""
        directories = [each.removeprefix("/v1") for each in self._bases]
        return session is not None and any(map(session.grant_watch.watches_below, directories))

    async def _expect_safe(self, acquired: Acquired) -> None:
        """Wait until it is known how long a bounded hold is; raise if there is no safe time."""
        if acquired.is_bounded:
            await acquired.watch(self._timeout_ms)
        session = acquired.session
        if session.remaining_safe_ms() == 0:
            raise SessionExpiredError(
                f"{self._title}: the grant {acquired.grant.grant_id} came when its session had no "
                f"safe time left, and was released",
                session_id=session.session_id,
            )

    async def release(self, grant: GrantReply) -> bool:
        """Release ``grant``; False when it was not held any more. Idempotent.

        Of several locks acquired as one, releasing the grant of any of them releases all.

        Raises:
            UnavailableError: nothing was done; it may be tried again.
            OutcomeUnknownError: it may have been released.
        """
        return await self._release(grant.lock, grant.grant_id)

    def clean_up(self, work: Coroutine[Any, Any, T], name: str, owner: str) -> asyncio.Task[T]:
        """Run ``work``, which removes what ``owner`` has in this queue, in the background.

        ``acquire`` in the name of the same owner, in whichever queue, waits for it to end. ``name``
        is the task's.
        """
        task = self._background.start(work, name)
        self._clean_ups.add(owner, task)
        return task

    async def pause(self, owner: str, pause_ms: int) -> None:
        """Wait before a clean-up tries again; not long while an ``acquire`` waits for it."""
        await self._clean_ups.pause(owner, pause_ms)

    def begin_release(self, owner: str) -> None:
        """Let ``acquire`` in the name of ``owner`` wait for ``end_release``."""
        self._clean_ups.begin_release(self.names, owner)

    def end_release(self, owner: str) -> None:
        """End what ``begin_release`` began."""
        self._clean_ups.end_release(self.names, owner)

    async def _release(self, name: str, grant_id: str) -> bool:
        call = Call("DELETE", f"{self._base_of(name)}/grants/{quoted(grant_id)}")
        try:
            reply = await self._delivery.write(call, reader(ReleaseReply), self._timeout_ms)
        except NotOwnerError:
            return False
        return reply.released

    # --- waiting

    async def _session_for(
        self, owner: str, limit_ms: int, deadline_ms: int | None
    ) -> tuple[Session | None, OpeningSession | None]:
        """Return the session to acquire in, or the one that is to be opened with the attempt.

        For what is not at hand: nothing is left of ``owner`` then."""
        if not await self._clean_ups.gone(self.names, owner, limit_ms):
            raise UnavailableError(
                f"{self._title}: an earlier contender of {owner} is still being withdrawn: no "
                f"member has answered yet"
            )
        if deadline_ms is not None:
            limit_ms = max(0, deadline_ms - self._delivery.clock.monotonic_ms())
        opening = self._sessions.begin()
        return None if opening else await self._sessions.get(limit_ms / 1000), opening

    async def _acquired(
        self,
        attempt: AcquireAttempt,
        request: AcquireRequest,
        on_position: Callable[[int], object] | None,
    ) -> Acquired:
        self._clean_ups.begin_attempt(self._bases, request.owner)
        try:
            session = attempt.session
            if session is None:
                grant = await attempt.while_opening(
                    self._until_answered(attempt, request, on_position)
                )
                session = attempt.session
                assert session is not None, "a grant says whose it is"
            else:
                with Lifetime(session):  # as ``while_alive`` does it
                    grant = await self._until_answered(attempt, request, on_position)
            acquired = Acquired(grant, session)
            session.grant_watch.watch(acquired.paths, grant.fencing_token)  # from now on it is used
            return acquired
        except SessionExpiredError as error:
            if attempt.session is not None:
                attempt.session.note_end(error)
            raise
        finally:
            self._clean_ups.end_attempt(self._bases, request.owner)

    async def _until_answered(
        self,
        attempt: AcquireAttempt,
        request: AcquireRequest,
        on_position: Callable[[int], object] | None,
    ) -> GrantReply:
        failures = CallFailures()
        forgotten = 0
        delivery = self._delivery
        while (remaining_ms := attempt.remaining_ms()) > 0:
            if failures.count and not attempt.may_be_queued and remaining_ms < _LAST_MS_MIN:
                break  # certain so far; a sending without its answer would leave it open
            try:
                return await self._listen(delivery, attempt, request, remaining_ms, on_position)
            except RequestForgottenError:
                forgotten += 1
                if attempt.may_be_queued or forgotten > _FORGOTTEN_MAX:
                    raise
                attempt.ids.renew(delivery.index_seen)
                continue
            except AskAgain:
                continue
            except (UnavailableError, OutcomeUnknownError) as error:
                if attempt.was_served:
                    failures.count = 0  # begin again with short delays
                    attempt.was_served = False
                failures.note(error)
            deadline_ms = delivery.clock.monotonic_ms() + attempt.remaining_ms()
            if not await delivery.pause(failures, deadline_ms):
                break
        tries = delivery.retry.tries
        is_out_of_tries = tries is not None and failures.count >= tries
        if attempt.position is not None and not is_out_of_tries:
            raise LockTimeoutError(
                f"{self._title}: not granted in time, {attempt.position} before us in the queue",
                position=attempt.position,
            )
        raise failures.verdict(is_write=True)

    async def _listen(
        self,
        delivery: CallDelivery,
        attempt: AcquireAttempt,
        request: AcquireRequest,
        remaining_ms: int,
        on_position: Callable[[int], object] | None,
    ) -> GrantReply:
        was_maybe_queued = attempt.may_be_queued
        turn = None
        try:
            turn = delivery.turn_now()
            if turn is None:
                turn = await delivery.turn(remaining_ms)
                remaining_ms = attempt.remaining_ms()
            attempt.may_be_queued = True
            accept = delivery.either if on_position is None else POSITIONS
            call = self._call(attempt, request, max(1, remaining_ms), accept)
            headers_ms = attempt.first_answer_ms(delivery, self._timeout_ms, remaining_ms)
            opening = delivery.stream(call, headers_ms, attempt.ids, is_bounded=attempt.is_try)
            async with opening as stream:
                turn.end()
                return await attempt.heard(stream, delivery, self._title, on_position)
        except (LockTimeoutError, SessionExpiredError, LockLostError):
            attempt.may_be_queued = False  # the server says that it is gone
            raise
        except (RequestError, SessionError, UnavailableError, RequestForgottenError):
            attempt.may_be_queued = was_maybe_queued  # this sending certainly changed nothing
            raise
        finally:
            if turn is not None:
                turn.end()

    def _call(
        self, attempt: AcquireAttempt, request: AcquireRequest, remaining_ms: int, accept: str
    ) -> Call:
        known = self._known_fields
        if known[0] is not request:
            known = self._known_fields = request, fields_of(request)
        body: Any = attempt.fields(known[1], remaining_ms)
        if len(self.names) > 1:
            body["names"] = list(self.names)
        elif request.value is not None:  # data, which is written otherwise in JSON
            body = Acquire(**body)
        return Call("POST", self._target, body, accept=accept)

    # --- leaving nothing behind

    async def _settle(self, attempt: AcquireAttempt, owner: str, error: BaseException) -> None:
        """Withdraw what the failed attempt may have left; raise what is then known of it."""
        if not attempt.may_be_queued:
            return
        ids = attempt.ids
        target = f"{self._base}/attempts/{ids.client_id}/{ids.number}"
        call = Call("DELETE", f"{target}?floor_index={ids.floor_index}")
        work = self._withdraw(call, attempt, owner)
        task = self.clean_up(work, f"withdraw {target}", owner)
        # A second cancellation does not wait any longer; the task goes on in any case.
        await asyncio.wait({task}, timeout=attempt.settling_ms() / 1000)
        is_known = task.done() and not task.cancelled() and task.exception() is None
        is_withdrawn = is_known and task.result()
        if is_withdrawn and isinstance(error, OutcomeUnknownError):
            raise UnavailableError(
                f"{self._title}: no answer in time; the attempt was withdrawn: {error.message}"
            ) from error
        if is_withdrawn or not isinstance(error, _DEFINITE | OutcomeUnknownError):
            return
        session, kind, message = attempt.session, OutcomeUnknownError, error.message
        if isinstance(error, OutcomeUnknownError):
            kind = type(error)
            message = f"{self._title}: not acquired, no member said more: {message}"
        elif session is not None and not session.is_unheard:
            session.check()
        ends = "its session" if session is None else f"session {session.session_id}"
        raise kind(
            f"{message}; it may be queued until its withdrawal arrives or {ends} ends",
            **error.fields,
        ) from error

    async def _withdraw(self, call: Call, attempt: AcquireAttempt, owner: str) -> bool:
        """Withdraw by number; False when only the end of the session will remove the contender."""
        while not (attempt.has_ended or self._delivery.is_closed):
            is_forgotten = is_withdrawn = False
            try:
                await self._delivery.read(call, reader(AbandonReply), _WITHDRAW_MS)
                is_withdrawn = True
            except UnavailableError:
                pass  # it is tried again
            except RequestForgottenError:
                is_forgotten = True
            session = attempt.session
            if is_forgotten:
                return session is not None and await self._withdraw_by_sight(session, owner)
            if is_withdrawn:
                if session is None and attempt.opening is not None:
                    await attempt.opening.close(self._timeout_ms)
                return True
            await self.pause(owner, self._delivery.retry.cap_ms)
        return False

    async def _withdraw_by_sight(self, session: Session, owner: str) -> bool:
        """Release what no caller wants, when the number is forgotten; False as ``_withdraw``."""
        if not owner and not self.is_election:
            return False  # contenders of this session without a name cannot be distinguished
        while not session.is_lost:
            with suppress(UnavailableError, OutcomeUnknownError):
                found = await unclaimed(
                    self._delivery, self._base, session, owner, self._timeout_ms
                )
                # Checked after the answer: an attempt that has begun since may be what was seen.
                if not self._clean_ups.is_contending(self._base, owner):
                    for grant_id in found:
                        await self._release(self.names[0], grant_id)
                    return True
            await self.pause(owner, self._delivery.retry.cap_ms)
        return False


async def unclaimed(
    delivery: CallDelivery, base: str, session: Session, owner: str, timeout_ms: int
) -> tuple[str, ...]:
    """Return the grant ids of contenders that ``owner`` has at ``base`` and does not hold by.

    They are left over if ``owner`` has no attempt under way there either, which the caller knows.
    So an attempt is withdrawn whose number the members have forgotten: they refuse every copy of it
    that is still under way, so what is queued now is all.
    """
    found = await _queued(delivery, f"{base}?session_id={session.session_id}", timeout_ms)
    return tuple(
        each.grant_id
        for each in found
        if each.session_id == session.session_id
        and _owner_of(each) == owner
        and not session.grant_watch.is_watched(each.path)
    )


async def _queued(
    delivery: CallDelivery, path: str, timeout_ms: int
) -> tuple[Contender | Candidate, ...]:
    call = Call("GET", path)
    if path.startswith("/v1/elections/"):
        election = await delivery.read(call, reader(ElectionView), timeout_ms)
        elected: tuple[Candidate, ...] = () if election.elected is None else (election.elected,)
        return elected + election.candidates
    lock = await delivery.read(call, reader(LockView), timeout_ms)
    return lock.holders + lock.queue


def _owner_of(each: Contender | Candidate) -> str:
    return each.owner if isinstance(each, Contender) else ""
