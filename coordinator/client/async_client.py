"""The client core: every verb once, on asyncio. The sync client runs this one in its own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from coordinator.client.calls import PACKED, Call, packed, read_mode, target_of, tree_target
from coordinator.client.chores import Chores
from coordinator.client.contest import Contest
from coordinator.client.delivery import Delivery
from coordinator.client.observing import ElectionStream
from coordinator.client.session import Session, open_session
from coordinator.client.watching import ChangeStream
from coordinator.clock import Clock
from coordinator.errors import (
    BadVersionError,
    ClientClosedError,
    NoNodeError,
    TooManyRetriesError,
    UnavailableError,
)
from coordinator.wire.encoding import Encoding
from coordinator.wire.messages.elections import ElectionView, proclaim_body
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
from coordinator.wire.messages.sessions import SessionInfo, SessionList
from coordinator.wire.messages.status import Status
from coordinator.wire.messages.watches import WatchSelector
from coordinator.wire.messages.znodes import Children, Deleted, Stat, Written, Znode

T = TypeVar("T")

WatchKind = Literal["znode", "children", "subtree"]
Mode = Literal[
    "persistent",
    "persistent_sequential",
    "ephemeral",
    "ephemeral_sequential",
    "container",
    "ttl",
    "ttl_sequential",
]

_CLOSE_MS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What ``connect`` was told, in milliseconds."""

    timeout_ms: int
    session_timeout_ms: int
    label: str
    lease_margin_ratio: float


class AsyncClient:
    """A client of the cluster in the running event loop; made by ``async with connect(...)``.

    Every verb has one overall deadline (``timeout``, in seconds, of ``connect``), is sent to
    another member when one fails, and each write happens exactly once however often it was sent.
    All of them raise the errors of ``coordinator.errors`` and nothing else.
    """

    def __init__(self, delivery: Delivery, settings: ClientSettings) -> None:
        self.settings = settings
        self.chores = Chores()
        self.loop = asyncio.get_running_loop()
        self._delivery = delivery
        self._session: asyncio.Task[Session] | None = None
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
        undo: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Run a recipe's coroutine the way this face does: the caller awaits it.

        ``undo`` is for the other face: here nothing can come between a result and its caller.
        """
        return work

    # --- znodes

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        mode: Mode = "persistent",
        parents: Literal["persistent", "container"] | None = None,
        ttl_ms: int | None = None,
    ) -> Written:
        """Create a znode; the reply has its full path (with its number if sequential) and Stat.

        An ephemeral znode belongs to this client's session, which is opened if need be. Missing
        ancestors are made as ``parents`` says; None refuses with NoNodeError.
        """
        session_id = (await self.session()).session_id if mode.startswith("ephemeral") else None
        create = Create(path, data, mode, session_id, ttl_ms, parents)
        call = packed("POST", tree_target(path), create.to_body(PACKED))
        return await self._write(call, Written.from_body)

    async def get(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Znode:
        """Return data and Stat. The default sees every write acknowledged before, on any member.

        ``stale`` answers at once from whichever member is asked, maybe with the past;
        ``at_least_zxid`` waits until that member has seen so much.
        """
        query = read_mode(stale, at_least_zxid)
        return await self._read(packed("GET", tree_target(path, query)), Znode.from_body)

    async def set(self, path: str, data: bytes, *, expected_version: int = ANY_VERSION) -> Written:
        """Replace the data, if its version is the expected one."""
        body = SetData(path, data, expected_version).to_body(PACKED)
        return await self._write(packed("PUT", tree_target(path), body), Written.from_body)

    async def delete(
        self, path: str, *, expected_version: int = ANY_VERSION, recursive: bool = False
    ) -> Deleted:
        """Delete a znode, with everything below it if ``recursive``."""
        query: list[tuple[str, str]] = [("recursive", "")] if recursive else []
        if expected_version != ANY_VERSION:
            query.append(("expected_version", str(expected_version)))
        return await self._write(packed("DELETE", tree_target(path, query)), Deleted.from_body)

    async def exists(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Stat | None:
        """Return the Stat, None when there is no such znode."""
        try:
            return (await self.get(path, stale=stale, at_least_zxid=at_least_zxid)).stat
        except NoNodeError:
            return None

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
        self, operations: Sequence[Operation], *, timeout: float | None = None
    ) -> MultiReply:
        """Do all of these, in order, under one zxid, or none of them."""
        body = Multi(tuple(operations)).to_body(PACKED)
        return await self._write(packed("POST", "/v1/multi", body), MultiReply.from_body, timeout)

    async def guarded(
        self,
        conditions: Sequence[Check],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = None,
    ) -> MultiReply:
        """Do ``then`` if all conditions hold, else ``otherwise``; ``branch`` says which."""
        body = Guarded(tuple(conditions), tuple(then), tuple(otherwise)).to_body(PACKED)
        return await self._write(packed("POST", "/v1/multi", body), MultiReply.from_body, timeout)

    async def update(
        self, path: str, change: Callable[[bytes], bytes], *, max_retries: int = 5
    ) -> Written:
        """Read, compute ``change(data)``, write if nobody wrote meanwhile; else begin again.

        Raises:
            TooManyRetriesError: after ``max_retries`` conflicts; this call changed nothing.
        """
        steps = self.update_steps(path, change, max_retries)
        answer: Any = None
        while True:
            try:
                answer = await steps.send(answer)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except BadVersionError as error:
                answer = error

    def update_steps(
        self, path: str, change: Callable[[bytes], bytes], max_retries: int
    ) -> Generator[Coroutine[Any, Any, Any], Any, Written]:
        """Yield what to run next and take its answer, so that each face runs ``change`` itself."""
        failures = 0
        while True:
            znode: Znode = yield self.get(path)
            version = znode.stat.version
            answer = yield self.set(path, change(znode.data), expected_version=version)
            if isinstance(answer, Written):
                return answer
            failures += 1
            if failures >= max_retries:
                raise TooManyRetriesError(
                    f"{path}: expected no other writer, found one in each of {failures} tries",
                    path=path,
                    tries=failures,
                ) from answer
            delay_ms = self._delivery.retry.delay_ms(failures, self._delivery.random)
            yield asyncio.sleep(delay_ms / 1000)

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

        ``async with client.watch("/a") as changes`` is watching when the body begins. Raises
        CompactedError rather than leave a gap, and UnavailableError after ``contact_timeout``
        seconds without any member (None: it keeps trying).
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
        opening = self._session
        is_over = (
            opening is not None
            and opening.done()
            and (opening.cancelled() or opening.exception() is not None or opening.result().is_lost)
        )
        if opening is None or is_over:
            work = open_session(
                self._delivery,
                self.settings.session_timeout_ms,
                label=self.settings.label,
                timeout_ms=self.settings.timeout_ms,
                margin_ratio=self.settings.lease_margin_ratio,
            )
            # A task of its own: all who wait share it, and one who gives up leaves it alone.
            opening = self._session = self.chores.start(work, "open a session")
        if not opening.done():
            await asyncio.wait({opening}, timeout=timeout)
        if not opening.done():
            raise UnavailableError(f"no session could be opened within {timeout} s")
        return opening.result()

    def contest(self, room: Literal["locks", "elections"], name: str) -> Contest:
        """Return the queue of a lock or an election; the recipes are built on it."""
        self._refuse_when_closed()
        return Contest(
            self._delivery,
            self.chores,
            lambda limit_ms: self.session(limit_ms / 1000),
            room=room,
            name=name,
            timeout_ms=self.settings.timeout_ms,
        )

    async def lock(self, name: str, *, fencing_token: int | None = None) -> LockView:
        """Return who holds a lock and who waits; with a token also whether it is current."""
        query = "" if fencing_token is None else f"?fencing_token={fencing_token}"
        call = Call("GET", target_of("locks", name) + query)
        return await self._read(call, LockView.from_body)

    async def locks(self, *, held_ms_min: int = 0) -> AsyncGenerator[LockSummary, None]:
        """Iterate over the locks held for at least ``held_ms_min``, page by page."""
        after: str | None = None
        while True:
            query = {"held_ms_min": str(held_ms_min)} | ({} if after is None else {"after": after})
            call = Call("GET", f"/v1/locks?{urlencode(query)}")
            page = await self._read(call, LockList.from_body)
            for each in page.locks:
                yield each
            if page.next is None:
                return
            after = page.next

    async def election(self, name: str) -> ElectionView:
        """Return who is elected, with which value and epoch, and who stands by."""
        call = Call("GET", target_of("elections", name))
        return await self._read(call, ElectionView.from_body)

    def observe(self, name: str, *, contact_timeout: float | None = None) -> ElectionStream:
        """Tell who is elected now, then each change; survives its members as ``watch`` does."""
        self._refuse_when_closed()
        return ElectionStream(self._delivery, name, _maybe_ms(contact_timeout))

    async def proclaim(self, name: str, grant_id: str, value: bytes) -> None:
        """Publish the value of the elected; NotOwnerError unless this grant is elected."""
        target = target_of("elections", name, "grants", grant_id)
        call = Call("PUT", target, proclaim_body(value, Encoding.JSON))
        await self._write(call, lambda body: None)

    async def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all open sessions."""
        return (await self._read(Call("GET", "/v1/sessions"), SessionList.from_body)).sessions

    async def status(self) -> Status:
        """Return what one member says of itself and the others."""
        return await self._read(Call("GET", "/v1/status"), Status.from_body)

    # --- the end

    async def close(self) -> None:
        """Close the session, releasing all it owns, and let go of the connections; bounded."""
        if self._is_closed:
            return
        self._is_closed = True
        limit_ms = min(self.settings.timeout_ms, _CLOSE_MS_MAX)
        try:
            await self.chores.drain(limit_ms)
            if self._session is not None and self._session.done() and _succeeded(self._session):
                await self._session.result().close(limit_ms)
        finally:
            await self._delivery.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _read(self, call: Call, parse: Callable[[Any], T]) -> T:
        self._refuse_when_closed()
        return await self._delivery.read(call, parse, self.settings.timeout_ms)

    async def _write(
        self, call: Call, parse: Callable[[Any], T], timeout: float | None = None
    ) -> T:
        self._refuse_when_closed()
        timeout_ms = self.settings.timeout_ms if timeout is None else int(timeout * 1000)
        return await self._delivery.write(call, parse, timeout_ms)

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise ClientClosedError("this client is closed")


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is None


def _maybe_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
