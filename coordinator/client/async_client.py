"""The client core: every verb once, on asyncio. The sync client runs this one in its own loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from coordinator.client.calling.background import BackgroundTasks
from coordinator.client.calling.calls import Call
from coordinator.client.calling.deadline import limited, within
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.calling.transport import client_closed
from coordinator.client.locks.clean_ups import CleanUps
from coordinator.client.locks.lock_queue import LockQueue
from coordinator.client.locks.observing import ElectionStream
from coordinator.client.locks.verbs import LockVerbs
from coordinator.client.running.callables import expect_function
from coordinator.client.running.process import OwnLoop
from coordinator.client.sessions.current_session import CurrentSession
from coordinator.client.sessions.session import Session
from coordinator.client.sessions.settings import ClientSettings
from coordinator.client.verbs.access import AccessVerbs
from coordinator.client.verbs.conditions import Conditions
from coordinator.client.verbs.hints import missing_verb
from coordinator.client.verbs.operating import OperatorVerbs
from coordinator.client.verbs.updating import updated
from coordinator.client.verbs.znodes import EventWord as EventWord
from coordinator.client.verbs.znodes import Mode as Mode
from coordinator.client.verbs.znodes import WatchKind as WatchKind
from coordinator.client.verbs.znodes import ZnodeVerbs
from coordinator.client.watches.watching import ChangeStream
from coordinator.clock import Clock
from coordinator.model.events import WatchKind as EventKind
from coordinator.model.events import WatchSelector
from coordinator.model.history import GrantPage
from coordinator.model.sessions import SessionList
from coordinator.model.views import LockList
from coordinator.model.znodes import Written

T = TypeVar("T")
PageT = TypeVar("PageT", LockList, GrantPage, SessionList)

_CLOSE_MS_MAX = 2_000
_LAST_MS = 100
"""What each step of a close gets at least."""


class AsyncClient(ZnodeVerbs, LockVerbs, OperatorVerbs, AccessVerbs):
    """A client of the cluster in the running event loop; made by ``async with connect(...)``.

    Every verb has one overall deadline (``timeout``, in seconds, of ``connect``), is sent to
    another member when one fails, and each write happens exactly once however often it was sent.
    A verb raises what it lists, BadArgumentsError for arguments out of range, NoAuthError if the
    member does not serve under the endpoint's name, and ClientClosedError, an UnavailableError.
    """

    def __init__(self, delivery: CallDelivery, settings: ClientSettings | None = None) -> None:
        if settings is None:
            raise TypeError(f"AsyncClient: expected `await connect({delivery!r})`, which makes it")
        self.settings = settings
        self.last: AsyncGenerator[None, None] | None = None
        """What closes this client if the program does not."""
        self.background = BackgroundTasks()
        self.clean_ups = CleanUps()
        self._shared: dict[Callable[[], Any], Any] = {}
        self.own_loop = OwnLoop()
        self.loop = self.own_loop.loop
        self._delivery = delivery
        self._session = CurrentSession(delivery, settings, self.background)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<AsyncClient of {', '.join(sorted(self._delivery.endpoints.urls))}>"

    @property
    def core(self) -> AsyncClient:
        """The asyncio client that does the work: this one."""
        return self

    @property
    def clock(self) -> Clock:
        """The clock of this client: the machine's, or a test's."""
        return self._delivery.clock

    def call(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Return a recipe's coroutine, for the caller to await.

        ``undo`` is for a sync client: here nothing can come between a result and its caller.
        """
        return work

    # --- znodes: the other verbs are those of ZnodeVerbs

    async def update(
        self,
        path: str,
        change: Callable[[bytes], bytes],
        *,
        max_retries: int = 5,
        if_held: Conditions = None,
    ) -> Written:
        """Read, compute ``change(data)``, write if no other client has written; else start again.

        Raises:
            TooManyRetriesError: after ``max_retries`` conflicts; this call changed nothing.
            BadArgumentsError: ``change`` is no plain function, or returned a coroutine.
            NoNodeError, and all else that ``set`` raises but BadVersionError.
        """
        expect_function("update", change, may_wait=False)
        return await updated(self, self.wait, path, change, max_retries, if_held)

    def _in_time(self) -> AbstractContextManager[None]:
        return within(self.clock, self.settings.timeout_ms)

    def time_left_ms(self) -> int:
        """Return how long a call may take that begins now: what is left of the verb's time."""
        return limited(self.clock.monotonic_ms(), self.settings.timeout_ms)

    def retry_delay_ms(self, failures: int) -> int:
        """Return how long to wait after so many failures, as the policy of ``connect`` says."""
        return self._delivery.retry.delay_ms(failures, self._delivery.random)

    async def wait(self, delay_ms: int) -> None:
        """Wait for so long, or until the client is closed."""
        await self._delivery.wait(delay_ms)

    def shared(self, make: Callable[[], T]) -> T:
        """Return what ``make`` made when first asked for; one for each client, for recipes."""
        # In one step: several threads may ask.
        return self._shared.setdefault(make, make())  # type: ignore[no-any-return]

    # --- watches

    def watch(
        self,
        *paths: str,
        kind: WatchKind = "znode",
        from_zxid: int | None = None,
        one_shot: bool = False,
        values: bool = False,
        only: Sequence[EventWord] = (),
        prefix: str = "",
        bookmark_ms: int | None = None,
        contact_timeout: float | None = None,
    ) -> ChangeStream:
        """Watch paths, from now or from after ``from_zxid``; resumes at any member.

        It is watching after ``async with client.watch("/a") as changes``, or after
        ``changes = await client.watch("/a")``. ``values``: each event has the data after and
        before it, of what this client may read. ``only``: events of these types, ``prefix``: of
        paths that begin so. ``bookmark_ms`` (100 to 10,000): also a Change without events, so
        often, while there are no others.

        Raises:
            CompactedError: while iterating; the members do not know any more what was missed, or
                its values; or other rights count for this client. Read again.
            UnavailableError: no member for ``contact_timeout`` seconds (None: it keeps trying).
        """
        self._refuse_when_closed()
        return ChangeStream(
            self._delivery,
            [WatchSelector(path, cast(EventKind, kind)) for path in paths],
            from_zxid=from_zxid,
            is_one_shot=one_shot,
            has_values=values,
            only=only,
            prefix=prefix,
            bookmark_ms=bookmark_ms,
            contact_timeout_ms=_maybe_ms(contact_timeout),
        )

    # --- sessions, locks, the cluster

    async def session(self, timeout: float | None = None) -> Session:
        """Return this client's session; the first call, and one after a loss, opens one.

        Raises:
            UnavailableError: it could not be opened within ``timeout`` seconds.
            UnhealthyError: the health probe says that this program is not well.
            QuotaExceededError: there are as many sessions as there may be.
        """
        self._refuse_when_closed()
        return await self._session.get(timeout)

    def lock_queue(self, *names: str, is_election: bool = False) -> LockQueue:
        """Return the client of a lock's or an election's queue; the recipes are built on it.

        With several names (of locks) one contender is queued for all of them at once.

        Raises:
            BadArgumentsError: a name is no text that UTF-8 can carry.
        """
        self._refuse_when_closed()
        return LockQueue(
            self._delivery,
            self.background,
            self.clean_ups,
            self._session,
            names=names,
            is_election=is_election,
            timeout_ms=self.settings.timeout_ms,
        )

    def observe(self, name: str | int, *, contact_timeout: float | None = None) -> ElectionStream:
        """Return a stream of the elected, now and after each change; resumes as ``watch`` does.

        Raises:
            UnavailableError: no member for ``contact_timeout`` seconds (None: it keeps trying).
        """
        self._refuse_when_closed()
        return ElectionStream(self._delivery, name, _maybe_ms(contact_timeout))

    @property
    def delivery(self) -> CallDelivery:
        """The delivery of all calls of this client; for code that is built beside it."""
        return self._delivery

    # --- the end

    async def close(self) -> None:
        """Close the session, which releases all it owns, and the connections; in bounded time.

        In a forked child nothing is closed: all of it is the parent's.
        """
        if self._is_closed or not self.own_loop.process.is_ours:
            return
        self._is_closed = True
        ends_ms = self.clock.monotonic_ms() + min(self.settings.timeout_ms, _CLOSE_MS_MAX)

        def left_ms() -> int:
            return max(_LAST_MS, ends_ms - self.clock.monotonic_ms())

        try:
            await self._session.stop_opening()
            await self.background.drain(left_ms())
            await self.clean_ups.no_release(left_ms())
            await self._session.close(left_ms())
        finally:
            await self._delivery.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    def _read(self, call: Call, parse: Callable[[Any], T]) -> Coroutine[Any, Any, T]:
        self._refuse_when_closed()
        return self._delivery.read(call, parse, self.settings.timeout_ms)

    def _write(
        self, call: Call, parse: Callable[[Any], T], timeout: float | None = None
    ) -> Coroutine[Any, Any, T]:
        self._refuse_when_closed()
        self._delivery.writes_begun += 1
        timeout_ms = self.settings.timeout_ms if timeout is None else int(timeout * 1000)
        until_known = timeout is not None
        return self._delivery.write(call, parse, timeout_ms, until_known=until_known)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_verb("AsyncClient", self, name)

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise client_closed()


def _maybe_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
