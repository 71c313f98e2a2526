"""The sending of one queue's attempts and releases: what runs for each, between its session and a
member. A program subclasses or replaces the queue, and awaits its verbs; nothing of this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from coordinator.client.calls import Call
from coordinator.client.delivery import CallDelivery
from coordinator.client.failures import CallFailures
from coordinator.client.home import Home
from coordinator.client.locks.attempt import POSITIONS, AcquireAttempt, AskAgain
from coordinator.client.session import WaitOverError
from coordinator.client.transport import NotByStreamError
from coordinator.errors import (
    LockLostError,
    LockTimeoutError,
    NotOwnerError,
    OutcomeUnknownError,
    RequestError,
    RequestForgottenError,
    SessionError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.model.acquire import Acquire, AcquireRequest, fields_of
from coordinator.model.grants import GrantReply, ReleaseReply
from coordinator.wire.codec import reader

_LAST_MS_MIN: Final = 300
_FORGOTTEN_MAX: Final = 3


class AttemptSender:
    """Sends attempts at the locks ``names``, or at one election, and what gives them back."""

    def __init__(
        self, home: Home, names: tuple[str, ...], target: str, title: str, timeout_ms: int
    ) -> None:
        self._home = home
        self._names = names
        self._target = target
        self._title = title
        self._timeout_ms = timeout_ms
        self._known_fields: tuple[AcquireRequest | None, dict[str, Any]] = None, {}
        """The request that was sent last, and what its body says of it: mostly the next one's."""

    async def release(self, delivery: CallDelivery, target: str) -> bool:
        """Release the grant at ``target``; False when it was not held any more."""
        try:
            reply: ReleaseReply = await delivery.write(
                Call("DELETE", target), reader(ReleaseReply), self._timeout_ms
            )
        except NotOwnerError:
            return False
        return reply.released

    async def until_answered(
        self,
        delivery: CallDelivery,
        attempt: AcquireAttempt,
        request: AcquireRequest,
        on_position: Callable[[int], None] | None,
    ) -> GrantReply:
        """Send the attempt until it is granted, or raise what it comes to."""
        failures = CallFailures()
        forgotten = 0
        while (remaining_ms := attempt.remaining_ms()) > 0:
            if failures.count:
                self._check_session(attempt)
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
                self._check_session(attempt)
                break
        tries = delivery.retry.tries
        is_out_of_tries = tries is not None and failures.count >= tries
        if attempt.position is not None and not is_out_of_tries:
            raise LockTimeoutError(
                f"{self._title}: not granted in time, {attempt.position} before us in the queue",
                position=attempt.position,
            )
        raise failures.verdict(is_write=True)

    def _check_session(self, attempt: AcquireAttempt) -> None:
        """End the wait of a thread with its session; in the loop ``while_alive`` does it."""
        session = attempt.session
        if session is not None and not self._home.is_here and session.is_lost:
            raise WaitOverError

    async def _listen(
        self,
        delivery: CallDelivery,
        attempt: AcquireAttempt,
        request: AcquireRequest,
        remaining_ms: int,
        on_position: Callable[[int], None] | None,
    ) -> GrantReply:
        was_maybe_queued = attempt.may_be_queued
        turn = delivery.turn_now()
        if turn is None:
            turn = await delivery.turn(remaining_ms)
            remaining_ms = attempt.remaining_ms()
        failure: BaseException | None = None
        try:
            attempt.may_be_queued = True
            accept = delivery.either if on_position is None else POSITIONS
            call = self._call(attempt, request, max(1, remaining_ms), accept)
            headers_ms = attempt.first_answer_ms(
                delivery, self._timeout_ms, remaining_ms, self._home
            )
            opening = delivery.stream(call, headers_ms, attempt.ids, is_bounded=attempt.is_try)
            stream = await opening.__aenter__()
            turn.end()
            try:
                grant = await attempt.heard(stream, delivery, self._title, on_position)
            except BaseException as error:
                failure = error
            else:
                await opening.__aexit__(None, None, None)
                return grant
            await opening.__aexit__(type(failure), failure, failure.__traceback__)
            raise failure
        except NotByStreamError:
            attempt.may_be_queued = was_maybe_queued
            raise
        except (LockTimeoutError, SessionExpiredError, LockLostError):
            attempt.may_be_queued = False  # the server says that it is gone
            raise
        except (RequestError, SessionError, UnavailableError, RequestForgottenError):
            attempt.may_be_queued = was_maybe_queued  # this sending certainly changed nothing
            raise
        finally:
            failure = None  # its frames hold it: no cycle is left for the collector
            turn.end()

    def _call(
        self, attempt: AcquireAttempt, request: AcquireRequest, remaining_ms: int, accept: str
    ) -> Call:
        known = self._known_fields
        if known[0] is not request:
            known = self._known_fields = request, fields_of(request)
        body: Any = attempt.fields(known[1], remaining_ms)
        if len(self._names) > 1:
            body["names"] = list(self._names)
        elif request.value is not None:  # data, which is written otherwise in JSON
            body = Acquire(**body)
        return Call("POST", self._target, body, accept=accept)
