"""The client core: every verb once, on asyncio. The sync client runs this one in its own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from coordinator.client.calls import (
    PACKED,
    Call,
    packed,
    queried,
    read_mode,
    target_of,
    tree_target,
)
from coordinator.client.chores import Chores
from coordinator.client.conditions import Conditions, conditions_of
from coordinator.client.current_session import CurrentSession
from coordinator.client.delivery import Delivery
from coordinator.client.hints import CLIENT, LockQuestion, answering, missing
from coordinator.client.locks.leftovers import Leftovers
from coordinator.client.locks.lock_queue import LockQueue
from coordinator.client.locks.observing import ElectionStream
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
from coordinator.model.sessions import SessionInfo, SessionList
from coordinator.wire.codec import reader
from coordinator.wire.encoding import Encoding
from coordinator.wire.messages.elections import ElectionView, proclaim_body
from coordinator.wire.messages.history import GrantPage, GrantRecord, GrantStory
from coordinator.wire.messages.holding import Resize, Revoke, RevokeReply, SizeReply
from coordinator.wire.messages.if_held import if_held_body
from coordinator.wire.messages.locks import LockList, LockSummary, LockView
from coordinator.wire.messages.operations import (
    ANY_VERSION,
    Check,
    Create,
    Guarded,
    Multi,
    MultiReply,
    Operation,
    SetData,
)
from coordinator.wire.messages.watches import WatchSelector
from coordinator.wire.messages.znodes import Children, Deleted, Stat, Written, Znode

T = TypeVar("T")
PageT = TypeVar("PageT", LockList, GrantPage, SessionList)

_CLOSE_MS_MAX = 2_000


class AsyncClient(OperatorVerbs):
    """A client of the cluster in the running event loop; made by ``async with connect(...)``.

    Every verb has one overall deadline (``timeout``, in seconds, of ``connect``), is sent to
    another member when one fails, and each write happens exactly once however often it was sent.
    All of them raise the errors of ``coordinator.errors`` and nothing else.
    """

    def __init__(self, delivery: Delivery, settings: ClientSettings | None = None) -> None:
        if settings is None:
            raise TypeError(f"AsyncClient: expected `await connect({delivery!r})`, which makes it")
        self.settings = settings
        self.last: AsyncGenerator[None, None] | None = None
        """What closes this client when nobody else does."""
        self.chores = Chores()
        self.leftovers = Leftovers()
        self._shared: dict[Callable[[], Any], Any] = {}
        self.loop = asyncio.get_running_loop()
        self._delivery = delivery
        self._session = CurrentSession(delivery, settings, self.chores)
        self._is_closed = False

    @property
    def core(self) -> AsyncClient:
        """The asyncio client behind either face: itself."""
        return self

    @property
    def clock(self) -> Clock:
        return self._delivery.clock

    def call(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Run a recipe's coroutine the way this face does: the caller awaits it.

        ``undo`` is for the other face: here nothing can come between a result and its caller.
        """
        return work

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
        in every other write: only while this grant holds, else LockLostError and nothing changes.
        """
        held = if_held_body(conditions_of(if_held))
        session = await self.session() if mode.startswith("ephemeral") else None
        session_id = None if session is None else session.session_id
        create = Create(path, data, mode, session_id, ttl_ms, parents)
        call = packed("POST", tree_target(path), {**create.to_body(PACKED), **held})
        try:
            return await self._write(call, Written.from_body)
        except SessionExpiredError as error:
            if session is not None:
                session.heed(error)
            raise

    @answering
    async def get(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Znode:
        """Return data and Stat. The default sees every write acknowledged before, on any member.

        ``stale`` answers at once from whichever member is asked, maybe with the past;
        ``at_least_zxid`` waits until that member has seen so much.
        """
        query = read_mode(stale, at_least_zxid)
        return await self._read(packed("GET", tree_target(path, query)), Znode.from_body)

    @answering
    async def set(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int = ANY_VERSION,
        if_held: Conditions = None,
    ) -> Written:
        """Replace the data, if its version is the expected one."""
        held = if_held_body(conditions_of(if_held))
        body = {**SetData(path, data, expected_version).to_body(PACKED), **held}
        return await self._write(packed("PUT", tree_target(path), body), Written.from_body)

    @answering
    async def delete(
        self,
        path: str,
        *,
        expected_version: int = ANY_VERSION,
        recursive: bool = False,
        if_held: Conditions = None,
    ) -> Deleted:
        """Delete a znode, with everything below it if ``recursive``."""
        query = [each.to_query() for each in conditions_of(if_held)]
        if recursive:
            query.append(("recursive", ""))
        if expected_version != ANY_VERSION:
            query.append(("expected_version", str(expected_version)))
        return await self._write(packed("DELETE", tree_target(path, query)), Deleted.from_body)

    @answering
    async def exists(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Stat | None:
        """Return the Stat, None when there is no such znode."""
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
        """Return the names of the children in order, ``limit`` of them ``after`` a name."""
        query = [("children", ""), *read_mode(stale, None)]
        if after is not None:
            query.append(("after", after))
        if limit is not None:
            query.append(("limit", str(limit)))
        if with_stat:
            query.append(("stat", ""))
        return await self._read(packed("GET", tree_target(path, query)), Children.from_body)

    async def multi(
        self,
        operations: Sequence[Operation],
        *,
        if_held: Conditions = None,
        timeout: float | None = None,
    ) -> MultiReply:
        """Do all of these, in order, under one zxid, or none of them."""
        held = if_held_body(conditions_of(if_held))
        body = {**Multi(tuple(operations)).to_body(PACKED), **held}
        return await self._write(packed("POST", "/v1/multi", body), MultiReply.from_body, timeout)

    async def guarded(
        self,
        conditions: Sequence[Check],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        if_held: Conditions = None,
        timeout: float | None = None,
    ) -> MultiReply:
        """Do ``then`` if all conditions hold, else ``otherwise``; ``branch`` says which."""
        held = if_held_body(conditions_of(if_held))
        guarded = Guarded(tuple(conditions), tuple(then), tuple(otherwise))
        body = {**guarded.to_body(PACKED), **held}
        return await self._write(packed("POST", "/v1/multi", body), MultiReply.from_body, timeout)

    async def update(
        self,
        path: str,
        change: Callable[[bytes], bytes],
        *,
        max_retries: int = 5,
        if_held: Conditions = None,
    ) -> Written:
        """Read, compute ``change(data)``, write if nobody wrote meanwhile; else begin again.

        Raises:
            TooManyRetriesError: after ``max_retries`` conflicts; this call changed nothing.
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
        contact_timeout: float | None = None,
    ) -> ChangeStream:
        """Watch paths, from now or from after ``from_zxid``; resumes by itself at any member.

        It is watching after ``async with client.watch("/a") as changes``, or after
        ``changes = await client.watch("/a")``. Raises CompactedError rather than leave a gap, and
        UnavailableError after ``contact_timeout`` seconds without any member (None: it keeps
        trying).
        """
        self._refuse_when_closed()
        return ChangeStream(
            self._delivery,
            [WatchSelector(path, kind) for path in paths],
            from_zxid=from_zxid,
            is_one_shot=one_shot,
            contact_timeout_ms=_maybe_ms(contact_timeout),
        )

    # --- sessions, locks, the cluster

    async def session(self, timeout: float | None = None) -> Session:
        """Return this client's session; opened at the first need, anew when the last was lost."""
        self._refuse_when_closed()
        return await self._session.get(timeout)

    def lock_queue(self, *names: str, is_election: bool = False) -> LockQueue:
        """Return the client of a lock's or an election's queue; the recipes are built on it.

        With several names (of locks) one contender stands in all their queues at once.
        """
        self._refuse_when_closed()
        return LockQueue(
            self._delivery,
            self.chores,
            self.leftovers,
            lambda limit_ms: self.session(limit_ms / 1000),
            names=names,
            is_election=is_election,
            timeout_ms=self.settings.timeout_ms,
        )

    @answering
    def lock(self, name: str, *, fencing_token: int | None = None) -> LockQuestion:
        """Return who holds a lock and who waits; with a token also whether it is current."""
        query = "" if fencing_token is None else f"?fencing_token={fencing_token}"
        call = Call("GET", target_of("locks", name) + query)
        return LockQuestion(self._read(call, LockView.from_body))

    async def locks(self, *, held_ms_min: int = 0) -> AsyncGenerator[LockSummary, None]:
        """Iterate over the locks held for at least ``held_ms_min``, page by page."""
        query = [("held_ms_min", str(held_ms_min))]
        async for page in self._pages("/v1/locks", query, LockList.from_body):
            for each in page.locks:
                yield each

    async def grants(
        self,
        lock: str | None = None,
        *,
        session_id: str | None = None,
        fencing_token: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        how: str | None = None,
        is_election: bool = False,
    ) -> AsyncGenerator[GrantRecord, None]:
        """Iterate over the grants that the history still knows, the oldest first, page by page.

        Args:
            lock, session_id, fencing_token: only those of this lock, this holder, this token.
            since_ms, until_ms: only those that held at some time in between (wall time, in ms
                since 1970).
            how: only those that ended so: one of ``released``, ``closed``, ``expired``,
                ``abandoned``, ``deleted``, ``forced``, ``max_hold``; "" for those held now.
            is_election: ``lock`` is the name of an election. Without a name both are told.
        """
        wanted = {
            "election" if is_election else "lock": lock,
            "session_id": session_id,
            "fencing_token": fencing_token,
            "since_ms": since_ms,
            "until_ms": until_ms,
            "how": how,
        }
        query = [(name, str(value)) for name, value in wanted.items() if value is not None]
        async for page in self._pages("/v1/grants", query, GrantPage.from_body):
            for each in page.grants:
                yield each

    async def grant(self, lock: str, grant_id: str, *, is_election: bool = False) -> GrantStory:
        """Return what became of a grant, and who was granted next.

        Raises:
            NoNodeError: the history knows no such grant (any more).
        """
        query = "?election" if is_election else ""
        call = Call("GET", target_of("grants", lock, grant_id) + query)
        return await self._read(call, GrantStory.from_body)

    async def revoke(
        self, lock: str, *, by: str, reason: str, grant_id: str | None = None
    ) -> RevokeReply:
        """End a grant against its holder's will; ``by`` and ``reason`` go into the history.

        The holder is not stopped by this, and may not know: raise every guard to the
        ``fencing_token_min`` of the reply, so that what it still writes is refused.

        Args:
            grant_id: which grant; may be left out when exactly one holds.

        Raises:
            NotOwnerError: this grant does not hold (any more); nothing was ended.
        """
        body = Revoke(by, reason, grant_id).to_body()
        call = Call("POST", target_of("locks", lock, "revoke"), body)
        return await self._write(call, RevokeReply.from_body)

    async def resize(self, semaphore: str, size: int) -> SizeReply:
        """Let ``size`` contenders (1 to 10,000) hold a semaphore at once.

        More are granted at once; with fewer nobody's slot is taken, the next ones wait longer.
        """
        call = Call("PUT", target_of("locks", semaphore, "size"), Resize(size).to_body())
        return await self._write(call, SizeReply.from_body)

    async def election(self, name: str) -> ElectionView:
        """Return who is elected, with which value and epoch, and who stands by."""
        call = Call("GET", target_of("elections", name))
        return await self._read(call, ElectionView.from_body)

    def observe(self, name: str, *, contact_timeout: float | None = None) -> ElectionStream:
        """Tell who is elected now, then each change; survives its members as ``watch`` does."""
        self._refuse_when_closed()
        return ElectionStream(self._delivery, name, _maybe_ms(contact_timeout))

    async def proclaim(
        self, name: str, grant_id: str, value: bytes, *, if_held: Conditions = None
    ) -> None:
        """Publish the value of the elected; NotOwnerError unless this grant is elected."""
        held = if_held_body(conditions_of(if_held))
        target = target_of("elections", name, "grants", grant_id)
        call = Call("PUT", target, {**proclaim_body(value, Encoding.JSON), **held})
        await self._write(call, lambda body: None)

    async def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all open sessions."""
        pages = self._pages("/v1/sessions", (), reader(SessionList))
        return tuple([each async for page in pages for each in page.sessions])

    # --- the end

    async def close(self) -> None:
        """Close the session, releasing all it owns, and let go of the connections; bounded."""
        if self._is_closed:
            return
        self._is_closed = True
        limit_ms = min(self.settings.timeout_ms, _CLOSE_MS_MAX)
        try:
            await self._session.stop_opening()
            await self.chores.drain(limit_ms)
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

    async def _pages(
        self, target: str, query: Sequence[tuple[str, str]], parse: Callable[[Any], PageT]
    ) -> AsyncGenerator[PageT, None]:
        after: list[tuple[str, str]] = []
        while True:
            page = await self._read(Call("GET", target + queried([*query, *after])), parse)
            yield page
            if page.next is None:
                return
            after = [("after", str(page.next))]

    async def _write(
        self, call: Call, parse: Callable[[Any], T], timeout: float | None = None
    ) -> T:
        self._refuse_when_closed()
        self._delivery.writes_begun += 1
        timeout_ms = self.settings.timeout_ms if timeout is None else int(timeout * 1000)
        return await self._delivery.write(call, parse, timeout_ms)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(self, name, CLIENT)

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise ClientClosedError("this client is closed; connect() makes another one")


def _maybe_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
