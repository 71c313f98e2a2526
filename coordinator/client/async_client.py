"""The client core: every verb once, on asyncio. The sync client runs this one in its own loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast

from coordinator.client.access import AccessVerbs
from coordinator.client.calls import (
    PACKED,
    Call,
    packed,
    read_mode,
    tree_target,
)
from coordinator.client.chores import Chores
from coordinator.client.conditions import Conditions, conditions_of
from coordinator.client.current_session import CurrentSession
from coordinator.client.delivery import CallDelivery
from coordinator.client.hints import CLIENT, answering, missing
from coordinator.client.home import Home
from coordinator.client.locks.leftovers import Leftovers
from coordinator.client.locks.lock_queue import LockQueue
from coordinator.client.locks.observing import ElectionStream
from coordinator.client.locks.verbs import LockVerbs
from coordinator.client.modes import EventWord as EventWord
from coordinator.client.modes import Mode as Mode
from coordinator.client.modes import WatchKind as WatchKind
from coordinator.client.operating import OperatorVerbs
from coordinator.client.session import Session
from coordinator.client.settings import ClientSettings
from coordinator.client.updating import update_steps
from coordinator.client.watching import ChangeStream
from coordinator.clock import Clock
from coordinator.errors import (
    BadVersionError,
    ClientClosedError,
    NoNodeError,
    SessionExpiredError,
)
from coordinator.model.events import WatchKind as EventKind
from coordinator.model.events import WatchSelector
from coordinator.model.fields import ANY_VERSION
from coordinator.model.history import GrantPage
from coordinator.model.operations import (
    Check,
    Create,
    Deleted,
    Guarded,
    Multi,
    MultiReply,
    Operation,
    SetData,
)
from coordinator.model.sessions import SessionList
from coordinator.model.views import LockList
from coordinator.model.znodes import Children, Stat, Subtree, Written, Znode
from coordinator.wire.codec import reader, to_body
from coordinator.wire.if_held import if_held_body, if_held_query

T = TypeVar("T")
PageT = TypeVar("PageT", LockList, GrantPage, SessionList)

_CLOSE_MS_MAX = 2_000


class AsyncClient(LockVerbs, OperatorVerbs, AccessVerbs):
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
        self.chores = Chores()
        self.leftovers = Leftovers()
        self._shared: dict[Callable[[], Any], Any] = {}
        self.home = Home()
        self.loop = self.home.loop
        self.by_threads: CallDelivery | None = None
        """What calls go by that begin in a thread, of the core of a sync client; see ``home``."""
        self._delivery = self._counted_by = delivery
        self._session = CurrentSession(delivery, settings, self.chores)
        self._is_closed = False

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

    begin = call
    """The same: a task is in its loop from the beginning."""

    # --- znodes

    @answering
    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        mode: Mode = "persistent",
        parents: Literal["persistent", "container"] | None = None,
        ttl_ms: int | None = None,
        if_held: Conditions = None,
    ) -> Written:
        """Create a znode; the reply has its full path (with its number if sequential) and Stat.

        An ephemeral znode belongs to this client's session, which is opened if need be. Missing
        ancestors are made as ``parents`` says; None refuses with NoNodeError. ``if_held``, here and
        in every other write: only while this grant holds.

        Raises:
            NodeExistsError: the path exists.
            NoNodeError: its parent does not.
            NoChildrenForEphemeralsError: its parent is ephemeral.
            DataTooLargeError, QuotaExceededError: beyond a limit of the cluster.
            SessionExpiredError: the session of an ephemeral ended meanwhile.
            LockLostError: a grant of ``if_held`` does not hold; nothing was changed.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        held = if_held_body(conditions_of(if_held))
        session = await self.session() if mode.startswith("ephemeral") else None
        session_id = None if session is None else session.session_id
        create = Create(path, data, mode, session_id, ttl_ms, parents)
        body = {**to_body(create, PACKED, given=("path",)), **held}
        call = packed("POST", tree_target(path), body)
        try:
            return await self._write(call, reader(Written))
        except SessionExpiredError as error:
            if session is not None:
                self._note_end(session, error)
            raise

    @answering
    async def get(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Znode:
        """Return data and Stat. The default sees every write acknowledged before, on any member.

        ``stale`` answers at once from whichever member is asked, maybe with the past;
        ``at_least_zxid`` waits until that member has seen so much.

        Raises:
            NoNodeError: the path does not exist.
            UnavailableError: no member answered in time.
        """
        query = read_mode(stale, at_least_zxid)
        call = packed("GET", tree_target(path, query), is_for_any=bool(query))
        return await self._read(call, reader(Znode))

    @answering
    async def set(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int = ANY_VERSION,
        if_held: Conditions = None,
    ) -> Written:
        """Replace the data, if its version is the expected one.

        Raises:
            NoNodeError, BadVersionError: the path does not exist, or has another version.
            DataTooLargeError: beyond a limit of the cluster.
            LockLostError: a grant of ``if_held`` does not hold; nothing was changed.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        body = to_body(SetData(path, data, expected_version), PACKED, given=("path",))
        if if_held is not None:
            body.update(if_held_body(conditions_of(if_held)))
        return await self._write(packed("PUT", tree_target(path), body), reader(Written))

    @answering
    async def delete(
        self,
        path: str,
        *,
        expected_version: int = ANY_VERSION,
        recursive: bool = False,
        if_held: Conditions = None,
    ) -> Deleted:
        """Delete a znode, with everything below it if ``recursive``.

        Raises:
            NoNodeError, BadVersionError: the path does not exist, or has another version.
            NotEmptyError: it has children.
            LockLostError: a grant of ``if_held`` does not hold; nothing was changed.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        query = [if_held_query(each) for each in conditions_of(if_held)]
        if recursive:
            query.append(("recursive", ""))
        if expected_version != ANY_VERSION:
            query.append(("expected_version", str(expected_version)))
        return await self._write(packed("DELETE", tree_target(path, query)), reader(Deleted))

    @answering
    async def exists(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Stat | None:
        """Return the Stat, None when there is no such znode.

        Raises:
            UnavailableError: no member answered in time.
        """
        try:
            return (await self.get(path, stale=stale, at_least_zxid=at_least_zxid)).stat
        except NoNodeError:
            return None

    @answering
    async def children(
        self,
        path: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_stat: bool = False,
        stale: bool = False,
    ) -> Children:
        """Return the names of the children in order, ``limit`` of them ``after`` a name.

        Raises:
            NoNodeError: the path does not exist.
            UnavailableError: no member answered in time.
        """
        query = [("children", ""), *read_mode(stale, None)]
        if after is not None:
            query.append(("after", after))
        if limit is not None:
            query.append(("limit", str(limit)))
        if with_stat:
            query.append(("stat", ""))
        call = packed("GET", tree_target(path, query), is_for_any=stale)
        return await self._read(call, reader(Children))

    @answering
    async def subtree(
        self, path: str, *, after: str | None = None, limit: int = 1_000, stale: bool = False
    ) -> Subtree:
        """Return a page of all znodes at and below ``path`` that this client may read and watch.

        ``limit`` 0 to 1000; a page may be shorter. Go on with ``after=page.next`` until it is None;
        each page has its own zxid. A path that does not exist has an empty page.

        Raises:
            NoAuthError: this client may read nothing there.
            UnavailableError: no member answered in time.
        """
        query = [("subtree", ""), ("limit", str(limit)), *read_mode(stale, None)]
        if after is not None:
            query.append(("after", after))
        call = packed("GET", tree_target(path, query), is_for_any=stale)
        return await self._read(call, reader(Subtree))

    async def multi(
        self,
        operations: Sequence[Operation],
        *,
        if_held: Conditions = None,
        timeout: float | None = None,
    ) -> MultiReply:
        """Do all of these, in order, under one zxid, or none of them.

        ``timeout``: for how many seconds to try, however few tries the policy allows.

        Raises:
            RequestError: what the first operation that fails would raise alone; nothing was done.
            LockLostError: a grant of ``if_held`` does not hold; nothing was done.
            UnavailableError, OutcomeUnknownError: nothing was done; it may have been.
        """
        held = if_held_body(conditions_of(if_held))
        body = {**to_body(Multi(tuple(operations)), PACKED), **held}
        return await self._write(packed("POST", "/v1/multi", body), reader(MultiReply), timeout)

    async def guarded(
        self,
        conditions: Sequence[Check],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        if_held: Conditions = None,
        timeout: float | None = None,
    ) -> MultiReply:
        """Do ``then`` if all conditions hold, else ``otherwise``; ``branch`` says which.

        Raises:
            RequestError, and all else that ``multi`` raises: an operation of that branch failed.
        """
        held = if_held_body(conditions_of(if_held))
        guarded = Guarded(tuple(conditions), tuple(then), tuple(otherwise))
        body = {**to_body(guarded, PACKED), **held}
        return await self._write(packed("POST", "/v1/multi", body), reader(MultiReply), timeout)

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
            NoNodeError, and all else that ``set`` raises but BadVersionError.
        """
        steps = update_steps(self, path, change, max_retries, if_held)
        answer: Any = None
        while True:
            try:
                answer = await steps.send(answer)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except BadVersionError as error:
                answer = error

    def retry_delay_ms(self, failures: int) -> int:
        """Return how long to wait after so many failures, as the policy of ``connect`` says."""
        return self._delivery.retry.delay_ms(failures, self._delivery.random)

    async def wait(self, delay_ms: int) -> None:
        """Wait for so long, or until the client is closed."""
        await self._delivery.wait(delay_ms)

    def shared(self, make: Callable[[], T]) -> T:
        """Return what ``make`` made when first asked for; one for each client, for recipes."""
        if make not in self._shared:
            self._shared[make] = make()
        return self._shared[make]  # type: ignore[no-any-return]

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
        """Watch paths, from now or from after ``from_zxid``; resumes by itself at any member.

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
            self.home,
            self._delivery,
            self.by_threads,
            self.chores,
            self.leftovers,
            self._session,
            names=names,
            is_election=is_election,
            timeout_ms=self.settings.timeout_ms,
        )

    def observe(self, name: str, *, contact_timeout: float | None = None) -> ElectionStream:
        """Return a stream of the elected, now and after each change; resumes as ``watch`` does.

        Raises:
            UnavailableError: no member for ``contact_timeout`` seconds (None: it keeps trying).
        """
        self._refuse_when_closed()
        return ElectionStream(self._delivery, name, _maybe_ms(contact_timeout))

    @property
    def delivery(self) -> CallDelivery:
        """What all calls of this client go through; for what is built beside it."""
        return self._delivery

    def _note_end(self, session: Session, error: SessionExpiredError) -> None:
        session.note_end(error)

    # --- the end

    async def close(self) -> None:
        """Close the session, which releases all it owns, and the connections; in bounded time."""
        if self._is_closed:
            return
        self._is_closed = True
        limit_ms = min(self.settings.timeout_ms, _CLOSE_MS_MAX)
        try:
            await self._session.stop_opening()
            await self.chores.drain(limit_ms)
            await self.leftovers.no_release(limit_ms)
            await self._session.close(limit_ms)
        finally:
            await self._delivery.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _read(self, call: Call, parse: Callable[[Any], T]) -> T:
        self._refuse_when_closed()
        return await self._delivery.read(call, parse, self.settings.timeout_ms)

    async def _write(
        self, call: Call, parse: Callable[[Any], T], timeout: float | None = None
    ) -> T:
        self._refuse_when_closed()
        self._counted_by.writes_begun += 1
        timeout_ms = self.settings.timeout_ms if timeout is None else int(timeout * 1000)
        until_known = timeout is not None
        return await self._delivery.write(call, parse, timeout_ms, until_known=until_known)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(self, name, CLIENT)

    @property
    def _takes_calls(self) -> bool:
        return not self._is_closed

    def _refuse_when_closed(self) -> None:
        if not self._takes_calls:
            raise ClientClosedError("this client is closed; connect() makes another one")


def _maybe_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
