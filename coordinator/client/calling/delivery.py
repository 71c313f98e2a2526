"""One call answered: over any member, tried again, before one overall deadline, exactly once.

1. A definite refusal of the request or of the session is raised at once.
2. ``UnavailableError`` (nothing was proposed) is tried again at another member until the deadline,
   and then raised as it is.
3. A lost connection or a silent member leaves the outcome open. A write is sent again with the
   same client id and number, so it happens once; if the deadline ends in the open it is raised
   as an ``OutcomeUnknownError``, even when a later attempt was certainly refused: the earlier
   one may still arrive. A read changes nothing, so for it the end is an ``UnavailableError``.
4. One attempt gets a third of the whole time (a second at least, five at most), so a dead, slow
   or deaf member is left in time for the others.
5. ``RequestForgotten`` on a first attempt is no retry: the request gets a new id and is sent
   again. On a later attempt it is the truth, and raised.
6. A request may name the client's session, and so renew it (``renewing``). The lease counts from
   when that very attempt was sent, whatever it came to.
7. A refusal for want of rights says nothing of an earlier attempt whose outcome is open: the rights
   may have ended in between; so the outcome stays unknown (see 3).
8. A refusal that says that an accepted credential is gone ends the session (``Acceptance``).
9. A client that no member has ever answered soon says that none is there (``endpoints``), unless
   it was asked for a deadline. Once one has answered, all of them may be restarting.
10. When the client is closed no call waits for another attempt: each ends with what is known (3).
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Protocol, TypeVar

from coordinator.client.calling.answers import RecentLines, number_of, problem_in, read_answer
from coordinator.client.calling.calls import Call
from coordinator.client.calling.credentials import Acceptance, Credentials
from coordinator.client.calling.deadline import limited
from coordinator.client.calling.endpoints import Endpoints
from coordinator.client.calling.failures import CallFailures
from coordinator.client.calling.leader import KnownLeader
from coordinator.client.calling.renewal import Renewal, Renewing
from coordinator.client.calling.request_ids import RequestIdPool, RequestIds
from coordinator.client.calling.retry import RetryPolicy
from coordinator.client.calling.transport import Request, Response, ResponseStream, Transport
from coordinator.client.calling.turns import OPENINGS_MAX, AttemptTurn, AttemptTurns
from coordinator.clock import Clock
from coordinator.errors import (
    AuthFailedError,
    ClientClosedError,
    ConnectionLostError,
    CoordinatorError,
    NoAuthError,
    OutcomeUnknownError,
    RequestForgottenError,
    UnavailableError,
)
from coordinator.wire.encoding import Encoding
from coordinator.wire.messages import INDEX_HEADER, NDJSON_TYPE, ZXID_HEADER

T = TypeVar("T")

ATTEMPT_MS_MIN = 1_000
ATTEMPT_MS_MAX = 5_000
_WORTH_SENDING_MS = 20
_RENEWALS_MAX = 3
_ANSWER_ALLOWANCE_MS_MAX = 250
_SERVER_DEADLINE_MS_MAX = 60_000
_INDEX, _ZXID = INDEX_HEADER.lower(), ZXID_HEADER.lower()


class Reader(Protocol):
    """The reader of a stream."""

    def on_closed(self) -> None:
        """Look now whether the client is closed."""
        ...


class CallDelivery:
    """All calls of one client go through here."""

    def __init__(
        self,
        transport: Transport,
        endpoints: Sequence[str],
        clock: Clock,
        retry: RetryPolicy,
        leader: KnownLeader | None = None,
        *,
        encoding: Encoding = Encoding.JSON,
        credentials: Credentials | None = None,
        is_patient: bool = True,
    ) -> None:
        self.clock = clock
        self.retry = retry
        self.random = retry.source()
        """What waits are drawn from: with a seed, the same each time."""
        self.entropy: random.Random = random.SystemRandom()
        """What names are drawn from that no other client may have, in whatever process."""
        self.endpoints = Endpoints(endpoints, self.random.shuffle, is_patient=is_patient)
        self.index_seen = 0
        self.zxid_seen = 0
        self._index_said: tuple[str | None, int] = None, 0
        """The index in the last answer: many reads are answered as of the same."""
        self.last_failure = ""
        """What the latest attempt came to, "" if it was answered. An error would hold its callers,
        and so the client, which could not be forgotten."""
        self.writes_begun = 0
        """How many writes of the tree and of locks the program has asked for, for its watches."""
        self.request_ids = RequestIdPool(lambda: self.index_seen)
        self.renewing: Renewing | None = None
        """The client's session; None before there is one."""
        self.readers: weakref.WeakSet[Reader] = weakref.WeakSet()
        """The readers of streams, notified when no more lines will come."""
        self.openings = AttemptTurns(OPENINGS_MAX)
        """The turns to open a long stream of lines."""
        self.recent_lines = RecentLines()
        """What the lines of streams said that were read last."""
        self.is_closed = False
        """Whether no call is sent any more."""
        self.credentials = Credentials() if credentials is None else credentials
        self.acceptance = Acceptance()
        self._transport = transport
        self._leader = KnownLeader() if leader is None else leader
        self._leader.stay_within(self.endpoints.urls)
        self._encoding = encoding
        self.either = f"{encoding.value}, {NDJSON_TYPE}"
        """Accepts one answer as bodies usually travel, or lines."""
        self._closed = asyncio.Event()
        self._turns = AttemptTurns()

    def turn_now(self) -> AttemptTurn | None:
        """Return what ``turn`` does, None if it has to be waited for."""
        return self._turns.take_now()

    async def turn(self, limit_ms: int) -> AttemptTurn:
        """Wait until this client may send one more attempt that has no answer yet.

        Raises:
            UnavailableError: not within ``limit_ms``; nothing was sent.
        """
        return await self._turns.take(limit_ms)

    async def read(self, call: Call, parse: Callable[[Any], T], timeout_ms: int) -> T:
        """Return the parsed answer of a call that changes nothing."""
        now_ms = self.clock.monotonic_ms()
        return await self._until_answered(call, parse, now_ms, limited(now_ms, timeout_ms), None)

    async def write(
        self, call: Call, parse: Callable[[Any], T], timeout_ms: int, *, until_known: bool = False
    ) -> T:
        """Return the parsed answer of a call that is applied exactly once.

        ``until_known``: it is tried for all of the time, however few tries the policy allows.
        """
        clock, pool = self.clock, self.request_ids
        now_ms = clock.monotonic_ms()
        timeout_ms = limited(now_ms, timeout_ms)
        deadline_ms = now_ms + timeout_ms
        if self.index_seen == 0:
            await self._learn_floor(timeout_ms)
            now_ms = clock.monotonic_ms()
        ids = pool.begin_write()
        if ids is None:
            ids = await pool.wait_to_write(deadline_ms - now_ms)
            now_ms = clock.monotonic_ms()
        try:
            left_ms = deadline_ms - now_ms
            return await self._until_answered(call, parse, now_ms, left_ms, ids, until_known)
        finally:
            pool.end_write(ids)

    async def attempt(
        self,
        call: Call,
        parse: Callable[[Any], T],
        timeout_ms: int,
        ids: RequestIds | None = None,
        sent_ms: int | None = None,
    ) -> T:
        """Send once, to the leader or the current member; raises what it answers, and leaves it if
        it fails. ``sent_ms`` is the time, if the caller has just looked."""
        endpoint = self._endpoint(call)
        if sent_ms is None:
            sent_ms = self.clock.monotonic_ms()
        try:
            authorization = self.credentials.authorization()
            request = call.request(_server_ms(timeout_ms), ids, self._encoding, authorization)
            renewal = None if call.renews else self.renewal(sent_ms)
            if renewal is not None:
                request = renewal.added_to(request)
            response = await self._transport.request(endpoint, request, timeout_ms)
            self.acceptance.note(request, response.status, self.clock.monotonic_ms())
            if renewal is not None:
                renewal.on_answer(response.headers)
            said, seen = self._index_said
            if response.headers.get(_INDEX) != said or seen > self.index_seen:
                self.note_index(response.headers)
            parsed = read_answer(endpoint, response, parse)
        except AuthFailedError as error:
            self.on_auth_failed(error, request, sent_ms)
            raise
        except (UnavailableError, OutcomeUnknownError) as error:
            self.last_failure = error.message
            if not isinstance(error, RequestForgottenError):
                self.leave(endpoint)
            raise
        self.last_failure = ""
        return parsed

    def stream(
        self,
        call: Call,
        timeout_ms: int,
        ids: RequestIds | None = None,
        *,
        is_bounded: bool = False,
    ) -> Streaming:
        """Open a stream of lines at the current member, or raise what it answers instead.

        ``is_bounded``: the member is asked to answer in that time; if not, only its headers have to
        arrive.
        """
        endpoint = self._endpoint(call)
        server_ms = _server_ms(timeout_ms) if is_bounded else None
        authorization = self.credentials.authorization()
        request = call.request(server_ms, ids, self._encoding, authorization)
        if call.share is not None:
            request = request.shared(call.share(authorization, self.zxid_seen))
        return Streaming(self, endpoint, request, timeout_ms)

    def renewal(self, now_ms: int) -> Renewal | None:
        """Return what makes the request that is sent now renew the session, if it should."""
        renewing = self.renewing
        if renewing is None or not renewing.wants_renewal(now_ms):
            return None
        return Renewal(renewing, now_ms)

    def on_auth_failed(self, error: AuthFailedError, request: Request, sent_ms: int) -> None:
        """End the session if ``error`` says that its credential is gone."""
        if self.acceptance.is_over(error, request, sent_ms):
            self.end_session(f"its credential was revoked; the member says: {error.message}")

    def end_session(self, reason: str) -> None:
        """Let the client's session be lost, as a member says."""
        if self.renewing is not None:
            self.renewing.on_ended(reason)

    def leave(self, endpoint: str) -> None:
        """Go on with another member, after ``endpoint`` has failed."""
        self._leader.leave(endpoint)
        self.endpoints.avoid(endpoint)

    def _endpoint(self, call: Call) -> str:
        return self.endpoints.for_call(None if call.is_for_any else self._leader.url)

    def open_stream(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> AbstractAsyncContextManager[ResponseStream]:
        """Return the stream of the transport, for ``Streaming``."""
        return self._transport.stream(endpoint, request, timeout_ms)

    async def line(self, stream: ResponseStream, limit_ms: int) -> bytes | None:
        """Return the next line, None at the end of the stream; TimeoutError after ``limit_ms``."""
        async with asyncio.timeout(limit_ms / 1000):
            return await stream.line()

    async def rest(self, stream: ResponseStream, limit_ms: int) -> bytes:
        """Return all the rest of the stream; TimeoutError after ``limit_ms``."""
        async with asyncio.timeout(limit_ms / 1000):
            return await stream.read()

    async def send(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send one request as it is; nothing is tried again."""
        return await self._transport.request(endpoint, request, timeout_ms)

    def attempt_ms(self, timeout_ms: int, remaining_ms: int) -> int:
        """Return how long one attempt of a call of ``timeout_ms`` may take."""
        return min(remaining_ms, max(ATTEMPT_MS_MIN, timeout_ms // 3), ATTEMPT_MS_MAX)

    async def pause(
        self, failures: CallFailures, deadline_ms: int, *, is_limited: bool = True
    ) -> bool:
        """Wait as the policy says; False when no further attempt is to be made."""
        now_ms, tries = self.clock.monotonic_ms(), self.retry.tries if is_limited else None
        delay_ms = self.retry.delay_ms(max(1, failures.count), self.random)
        deadline_ms = self.endpoints.contact_deadline_ms(failures, now_ms, deadline_ms)
        is_late = now_ms + delay_ms + _WORTH_SENDING_MS > deadline_ms
        is_last = is_late or (tries is not None and failures.count >= tries)
        if not is_last:
            await self.wait(delay_ms)
        if self.is_closed:
            failures.refused = ClientClosedError("this client was closed while the call waited")
            return False
        return not is_last

    async def wait(self, delay_ms: int) -> None:
        """Wait for so long, or until the client is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_ms / 1000):
                await self._closed.wait()

    async def close(self) -> None:
        """End the calls and streams under way, and the connections."""
        self.is_closed = True
        self._closed.set()
        for reader in list(self.readers):
            reader.on_closed()
        await self._transport.close()

    async def _until_answered(
        self,
        call: Call,
        parse: Callable[[Any], T],
        now_ms: int,
        timeout_ms: int,
        ids: RequestIds | None,
        until_known: bool = False,
    ) -> T:
        """Send until it is answered, for ``timeout_ms`` from ``now_ms`` on."""
        deadline_ms = now_ms + timeout_ms
        failures: CallFailures | None = None
        forgotten = 0
        while (remaining_ms := deadline_ms - now_ms) > 0:
            attempt_ms = self.attempt_ms(timeout_ms, remaining_ms)
            has_failed = False
            try:
                return await self.attempt(call, parse, attempt_ms, ids, now_ms)
            except RequestForgottenError:
                forgotten += 1
                is_open = failures is not None and failures.unknown is not None
                if ids is None or is_open or forgotten > _RENEWALS_MAX:
                    raise
                ids.renew(self.index_seen)
            except (AuthFailedError, NoAuthError) as error:  # its rights may end after it was done
                if ids is None or failures is None or failures.unknown is None:
                    raise
                raise failures.unknown from error
            except (UnavailableError, OutcomeUnknownError) as error:
                if failures is None:
                    failures = CallFailures()
                failures.note(error)
                has_failed = True
            is_over = False
            if failures is not None and has_failed:
                is_over = not await self.pause(failures, deadline_ms, is_limited=not until_known)
            if is_over:
                break
            now_ms = self.clock.monotonic_ms()
        raise (failures or CallFailures()).verdict(is_write=ids is not None)

    async def _learn_floor(self, timeout_ms: int) -> None:
        """Ask once for a log index before the first write: the floor of the first client id."""
        try:
            # A third even of a short time: a silent member must leave some for the write itself.
            attempt_ms = min(self.attempt_ms(timeout_ms, timeout_ms), max(1, timeout_ms // 3))
            await self.attempt(
                Call("GET", "/v1/status", is_for_any=True), lambda body: None, attempt_ms
            )
        except CoordinatorError:
            pass  # the floor stays 0, which is true, and at worst forgotten sooner

    def note_index(self, headers: Mapping[str, str]) -> None:
        """Remember the log index that an answer carries."""
        index = headers.get(_INDEX)
        seen = number_of(index)
        self._index_said = index, seen
        if seen > self.index_seen:
            self.index_seen = seen
            self.endpoints.were_met = True
            self.zxid_seen = max(self.zxid_seen, number_of(headers.get(_ZXID)))


class Streaming:
    """``async with`` it for the stream; what fails in its body leaves the member.

    A class and no generator: a stream that is not closed is only forgotten when its loop ends.
    """

    def __init__(
        self,
        delivery: CallDelivery,
        endpoint: str,
        request: Request,
        timeout_ms: int,
    ) -> None:
        self._delivery = delivery
        self._sent_ms = delivery.clock.monotonic_ms()
        self._renewal = renewal = delivery.renewal(self._sent_ms) if request.share is None else None
        if renewal is not None:
            request = renewal.added_to(request)
        self._request = request
        self._endpoint = endpoint
        self._timeout_ms = timeout_ms
        self._opening = delivery.open_stream(endpoint, request, timeout_ms)

    async def __aenter__(self) -> ResponseStream:
        try:
            stream = await self._opening.__aenter__()
        except (UnavailableError, OutcomeUnknownError) as error:
            self._leave(error)
            raise
        try:
            delivery = self._delivery
            delivery.acceptance.note(self._request, stream.status, delivery.clock.monotonic_ms())
            delivery.note_index(stream.headers)
            if self._renewal is not None:
                self._renewal.on_answer(stream.headers)
            if stream.status < 400:
                return stream
            raise await self._problem(stream)
        except BaseException as error:
            if isinstance(error, AuthFailedError):
                self._delivery.on_auth_failed(error, self._request, self._sent_ms)
            await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(error)
        await self._opening.__aexit__(kind, error, traceback)

    def _leave(self, error: BaseException | None) -> None:
        if isinstance(error, UnavailableError | OutcomeUnknownError) and not isinstance(
            error, RequestForgottenError
        ):
            self._delivery.leave(self._endpoint)

    async def _problem(self, stream: ResponseStream) -> CoordinatorError:
        try:
            body = await self._delivery.rest(stream, self._timeout_ms)
        except TimeoutError:
            return ConnectionLostError(f"{self._endpoint}: no answer within {self._timeout_ms} ms")
        return problem_in(self._endpoint, Response(stream.status, stream.headers, body))


def _server_ms(timeout_ms: int) -> int:
    """Return the server's deadline: a little before ours, so that its answer still arrives."""
    allowance_ms = min(_ANSWER_ALLOWANCE_MS_MAX, timeout_ms // 10)
    return max(1, min(timeout_ms - allowance_ms, _SERVER_DEADLINE_MS_MAX))
