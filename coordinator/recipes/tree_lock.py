"""The same fair lock, made by the client alone from nothing but znodes (ZooKeeper, "Locks").

::

    with TreeLock(client, "daily-report", timeout=10) as grant:
        save(report, token=grant.fencing_token)

It is queued with the contenders that the server runs: the znodes are the same,
``/locks/<name>/lock-0000000042``, and so is the decision (``place_of``). Prefer ``Lock``:
it waits in one request. This one shows that the plain tree is enough.

1. Create an ephemeral sequential znode; its czxid is the fencing token.
2. List the siblings. The lowest number holds; every other one watches its predecessor only.
3. The watch begins at the listing's zxid, so a predecessor that went in between is noticed.
4. After waking, decide again. On every way out without a grant the own znode is deleted.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import quote

from coordinator.client import LAST_MS, TRY_MS, AsyncClient, Check, ClientT, Create, Result, Session
from coordinator.client.locks import Acquired, GrantReply, holder, place_of, sequence_of
from coordinator.errors import (
    BadArgumentsError,
    CompactedError,
    CoordinatorError,
    LockLostError,
    LockTimeoutError,
    NoAuthError,
    NoNodeError,
    OutcomeUnknownError,
    RequestError,
    SessionError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.names import name_of
from coordinator.recipes.locks.contender import LockContender
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.hold import Hold
from coordinator.recipes.locks.options import Options, WhenUnsure
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout

T = TypeVar("T")

_ROOT = "/locks"
_BY_HAND_ROOT = "/manual-locks"
_LEAVE_WAIT_S = LAST_MS / 1000
_AGAIN_S = 0.5
_KNOWN_S_MAX = 3_600.0
_NAME_CHARACTERS_MAX = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""How long one try looks for a member that can decide it, as ``Lock`` does."""


class TreePlace:
    """One place in the queue, a znode: created, waiting, deleted."""

    is_election = False

    def __init__(
        self,
        core: AsyncClient,
        directory: str,
        on_position: Callable[[int], object] | None,
        on_before_watch: Callable[[], Coroutine[Any, Any, None]] | None,
    ) -> None:
        self.path = ""
        self.czxid = 0
        self._core = core
        self._directory = directory
        self._on_position = on_position
        self._on_before_watch = on_before_watch
        self._session: Session | None = None
        self._creating: asyncio.Task[Result | None] | None = None
        self._may_be_deleted = False

    @property
    def grant_id(self) -> str:
        """The name of this acquisition, as the members make it."""
        return f"{sequence_of(self.path)}-{self.czxid}"

    async def enter_and_wait(self, session: Session, data: bytes, *, is_try: bool) -> None:
        """Return once this contender holds."""
        self._session = session
        create = Create(
            f"{self._directory}/lock-",
            data,
            mode="ephemeral_sequential",
            session_id=session.session_id,
            parents="container",
        )
        if is_try:  # a read first: without a leader nothing is begun, so nothing is unknown
            await self._core.exists(self._directory)
        # A task of its own: a caller that gives up must still learn what there is to delete. It is
        # asked for until it is known, under one request number, while the session lives.
        self._creating = self._core.background.start(
            session.while_alive(self._create(create, is_try=is_try)), f"enter {self._directory}"
        )
        created = await asyncio.shield(self._creating)
        if created is None:
            raise LockTimeoutError(f"{self._directory}: another contender holds it")
        while not (await self._holds_or_waits() and await self._is_not_held_by_hand(is_try)):
            pass

    async def leave(self) -> bool:
        """Delete the own znode, for at most a second here, then in the background.

        Returns whether it is certain that nothing is left.
        """
        if self._creating is None:
            return True
        task = self._core.background.start(self._leave_at_last(), f"leave {self._directory}")
        await asyncio.wait({task}, timeout=_LEAVE_WAIT_S)
        return task.done() and not task.cancelled() and task.result()

    @property
    def is_unheard(self) -> bool:
        """Whether the session is lost only because no member answered."""
        return self._session is not None and self._session.is_unheard

    def check_session(self) -> None:
        """Raise SessionExpiredError if the session, with which the znode goes, is lost."""
        if self._session is not None and not self.is_unheard:
            self._session.check()

    async def release(self, grant: GrantReply) -> bool:
        """Delete the znode; see ``LockQueue.release``."""
        try:
            await self._core.delete(self.path)
        except NoNodeError:
            return self._may_be_deleted  # perhaps by our own earlier try
        except OutcomeUnknownError:
            self._may_be_deleted = True
            raise
        return True

    async def is_current(self, grant: GrantReply) -> tuple[bool, int]:
        """Look at the queue again; see ``LockQueue.is_current``."""
        children = await self._core.children(self._directory)
        zxid = children.stat.pzxid if children.stat is not None else 0
        return holder(children.names) == _name_of(self.path), zxid

    async def note(self, grant: GrantReply, note: bytes) -> None:
        """Refuse: a note is the server's to keep."""
        raise BadArgumentsError(f"{self.path}: expected the grant of a Lock, found a TreeLock's")

    async def downgrade(self, grant: GrantReply) -> None:
        """Refuse: the znode's name says that it is exclusive."""
        raise BadArgumentsError(f"{self.path}: expected the grant of an RWLock, found a TreeLock's")

    async def extend(self, grant: GrantReply, *, by_ms: int = 0, to_ms: int = 0) -> int:
        """Refuse: a hold by znodes alone has no longest time."""
        raise BadArgumentsError(f"{self.path}: expected the grant of a Lock, found a TreeLock's")

    def clean_up(self, work: Coroutine[Any, Any, T], name: str, owner: str) -> asyncio.Task[T]:
        """Run ``work`` in the background; see ``LockQueue.clean_up``."""
        return self._core.background.start(work, name)

    async def pause(self, owner: str, pause_ms: int) -> None:
        """Wait before a clean-up tries again: nothing waits for it."""
        await asyncio.sleep(pause_ms / 1000)

    def begin_release(self, owner: str) -> None:
        """A contender of another try is another znode; see ``LockQueue.begin_release``."""

    def end_release(self, owner: str) -> None:
        """Do nothing: nothing waits for it."""

    async def _create(self, create: Create, *, is_try: bool) -> Result | None:
        if is_try:  # one command: enter only an empty queue, so there is nothing to clean up
            nobody = Check(self._directory, has_children=False)
            reply = await self._core.guarded([nobody], then=[create], timeout=_KNOWN_S_MAX)
            if reply.branch != "then":
                return None
        else:
            reply = await self._core.multi([create], timeout=_KNOWN_S_MAX)
        created = reply.results[0]
        assert created.stat is not None, "a created znode has a Stat"
        self.path, self.czxid = created.path, created.stat.czxid
        return created

    async def _is_not_held_by_hand(self, is_try: bool) -> bool:
        """Whether the lock is not held by hand (``ManualLock``); else wait for the end of that.

        While this contender is the first, no such hold can begin."""
        path = _BY_HAND_ROOT + self._directory.removeprefix(_ROOT)

        async def look() -> bool | None:
            return True if await self._core.exists(path) is None else None

        try:
            if await look():
                return True
            if is_try:
                raise LockTimeoutError(f"{self._directory}: it is held by hand")
            await until(self._core, path, "znode", look, None)
        except NoAuthError:  # a client that may not see such holds does not wait for them
            return True
        return False

    async def _holds_or_waits(self) -> bool:
        listing = await self._core.children(self._directory)
        place = place_of(listing.names, _name_of(self.path))
        if not place.is_queued:
            raise LockLostError(f"{self.path}: expected our place in the queue, found it gone")
        if place.predecessor is None:
            return True
        if self._on_position is not None:
            noting = self._on_position(place.position)
            if inspect.isawaitable(noting):
                await noting
        if self._on_before_watch is not None:
            await self._on_before_watch()
        predecessor = f"{self._directory}/{place.predecessor}"
        zxid = None if listing.stat is None else listing.stat.pzxid
        try:
            async with self._core.watch(predecessor, from_zxid=zxid, one_shot=True) as changes:
                async for _ in changes:
                    break
        except CompactedError:
            pass  # too much has happened since the listing: list again
        return False

    async def _leave_at_last(self) -> bool:
        assert self._creating is not None, "left a queue that was not entered"
        assert self._session is not None, "entered without a session"
        try:
            created = await self._creating
        except (RequestError, UnavailableError):
            return True  # certainly not created
        except SessionError:
            return not self._session.is_lost  # lost by our clock, it may live on at the server
        except OutcomeUnknownError:
            return False  # only the end of the session shows it
        while created is not None:
            try:
                await self._core.delete(self.path)
            except (RequestError, SessionError):
                break  # gone already
            except CoordinatorError:
                if self._session.is_lost:
                    return False  # it goes with its session, at the server's time
                await asyncio.sleep(_AGAIN_S)
            else:
                break
        return True


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


class TreeLock(LockContender[Grant[ClientT], ClientT]):
    """One contender for the lock ``name``, over the plain tree; otherwise like ``Lock``.

    ``on_before_watch`` is awaited between the listing and the watch; for tests of that gap.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        when_unsure: WhenUnsure = "stop",
        label: str = "",
        on_before_watch: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.name = name_of(name)
        self._directory = f"{_ROOT}/{segment_of(self.name)}"
        self._on_before_watch = on_before_watch
        options = Options.of(client, timeout=timeout, when_unsure=when_unsure, label=label)
        self._prepare(client, f"lock {self.name!r}", options)

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What this object holds, None when nothing."""
        return self._holding.held

    # --- the recipe

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        core = self.client.core
        limit_s = None if wait_ms is None else wait_ms / 1000
        if wait_ms == 0:
            limit_s = min(core.settings.timeout_ms, TRY_MS) / 1000
        contender = TreePlace(core, self._directory, self._on_position, self._on_before_watch)
        try:
            async with asyncio.timeout(limit_s) as scope:
                session = await core.session(limit_s)
                work = contender.enter_and_wait(session, self._data(), is_try=wait_ms == 0)
                await session.while_alive(work)
        except LockTimeoutError:
            await contender.leave()
            raise
        except TimeoutError:
            is_left = await contender.leave()
            if not scope.expired():
                raise
            raise self._not_in_time(contender, is_left) from None
        except SessionExpiredError:
            is_left = await contender.leave()
            if contender.is_unheard:  # lost only because no member answered: that is what is said
                raise self._not_in_time(contender, is_left) from None
            raise
        except UnavailableError as error:  # of a look at the queue, where the contender is queued
            if not await contender.leave():
                raise self._not_in_time(contender, is_left=False) from error
            raise
        except BaseException:
            await contender.leave()
            raise
        if session.remaining_safe_ms() == 0:
            await contender.leave()
            raise SessionExpiredError(f"lock {self.name!r}: granted too late, and released")
        reply = GrantReply(
            grant_id=contender.grant_id,
            lock=self.name,
            fencing_token=contender.czxid,
            session_id=session.session_id,
            path=contender.path,
            zxid=contender.czxid,
        )
        return Grant(self.client, Hold(Acquired(reply, session), contender), contender, reply)

    def _not_in_time(self, contender: TreePlace, is_left: bool) -> CoordinatorError:
        if not is_left:
            contender.check_session()
            return OutcomeUnknownError(
                f"lock {self.name!r}: not granted, and it is not known whether the contender is "
                f"gone; its removal continues in the background"
            )
        if not contender.path or contender.is_unheard:
            return UnavailableError(f"lock {self.name!r}: no member could be reached in time")
        return LockTimeoutError(f"lock {self.name!r}: not granted in time")

    def _data(self) -> bytes:
        request = self._options.request()
        shown = {"label": request.label, "host": request.host, "pid": request.pid, "trace_id": ""}
        return json.dumps(shown).encode("utf-8")


def segment_of(name: str) -> str:
    """Return the name of the znode of the lock ``name``, as the members call it.

    Raises:
        BadArgumentsError: the members would not take it for a name, so no other client could
            acquire this lock.
    """
    if not 1 <= len(name) <= _NAME_CHARACTERS_MAX or name in (".", "..") or _CONTROL.search(name):
        raise BadArgumentsError(
            f"expected the name of a lock to be 1 to {_NAME_CHARACTERS_MAX} characters without "
            f"control characters, and not a dot or two; found {name[:60]!a}"
        )
    return quote(name, safe="")
