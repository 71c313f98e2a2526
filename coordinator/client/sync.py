"""The sync client: the asyncio client in an event loop of its own, in a daemon thread.

1. ``call`` runs a coroutine over there and waits here. Nothing is written twice: each verb below
   is the core's verb, passed through ``_blocking``. ``loop_thread`` says what becomes of Ctrl-C,
   of a forked child and of calls that are under way when the client is closed.
2. Loop and thread begin with the first verb, or with ``with``. So a client that was made before a
   fork and not used yet belongs to whichever process uses it.
3. In a thread that runs an event loop no verb begins a client, because it would block that loop.
   To do so on purpose, use ``with`` or ``open()``.
4. What was not closed is closed when it is forgotten, or when the interpreter exits; that waits for
   a bounded time.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
)

from coordinator.client.async_client import AsyncClient, EventWord, WatchKind
from coordinator.client.calling.transport import client_closed
from coordinator.client.loop_thread import LoopThread, Undo
from coordinator.client.running.callables import expect_function
from coordinator.client.running.callbacks import CallbackThreads
from coordinator.client.running.process import OfOneProcess, Process
from coordinator.client.running.settling import called, run_here
from coordinator.client.verbs.conditions import Conditions
from coordinator.client.verbs.hints import missing_verb
from coordinator.client.verbs.updating import updated
from coordinator.client.watches.watching import ChangeStream
from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    UnavailableError,
)
from coordinator.model.events import Change
from coordinator.model.views import Elected
from coordinator.model.znodes import Written

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_CALLBACKS_S_MAX = 1.0
"""How long the end of a client waits for callbacks: some of them say that it is the end."""


def _blocking(
    verb: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return the core's ``verb`` as a method that waits for it."""

    @wraps(verb)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.call(verb(client.core, *args, **kwargs))

    return method


def _collected(
    verb: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Return the core's ``verb`` as a method that waits for all that it iterates over."""

    @wraps(verb)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        async def all_of_it() -> list[T]:
            return [each async for each in verb(client.core, *args, **kwargs)]

        return iter(client.call(all_of_it()))

    return method


class _Beginning:
    """The begin of one client in one process: one thread opens it, and others wait for that."""

    def __init__(self) -> None:
        self.process = Process()
        self.guard = threading.RLock()
        self.is_under_way = False
        """Seen within the guard only by a signal handler of the thread that has it."""


async def _closed(core: AsyncClient, callbacks: CallbackThreads) -> None:
    try:
        await core.close()
    finally:
        await callbacks.ended(_CALLBACKS_S_MAX)


class Client(OfOneProcess):
    """A client of the cluster for code without an event loop; made by ``with connect(...)``.

    The verbs are those of AsyncClient, and wait. Safe to share between threads.
    """

    def __init__(
        self, open_core: Callable[[], Awaitable[AsyncClient]], urls: Sequence[str] = ()
    ) -> None:
        if not callable(open_core):
            raise TypeError(f"Client: expected `connect({open_core!r})`, which makes it")
        self._open_core = open_core
        self._urls = tuple(urls)
        self._beginning = _Beginning()
        self._thread: LoopThread | None = None
        self._core: AsyncClient | None = None
        self._is_closed = False

    @property
    def core(self) -> AsyncClient:
        """The asyncio client that does the work."""
        if self._core is None:
            _refuse_to_block_a_loop()
            self.open()
        assert self._core is not None, "it was opened"
        return self._core

    def open(self) -> Client:
        """Begin now, and not with the first verb; nothing is sent by this. Idempotent.

        Raises:
            ClientClosedError: it was closed.
            BadArgumentsError: a signal handler has interrupted the thread that opens it.
        """
        _warn_in_a_loop()
        if not self._beginning.process.is_ours:
            self._beginning = _Beginning()  # another thread of the parent may hold its guard
        beginning = self._beginning
        with beginning.guard:
            if self._core is not None:
                return self
            if self._is_closed:
                raise client_closed()
            if beginning.is_under_way:
                raise BadArgumentsError(
                    "expected a client that is open, found a signal handler that has interrupted "
                    "the code that opens it; open() it before, or set an event in the handler"
                )
            thread = LoopThread()
            try:
                beginning.is_under_way = True
                self._begin(thread)
            except BaseException:
                thread.stop()
                raise
            finally:
                beginning.is_under_way = False
            return self

    def _begin(self, thread: LoopThread) -> None:
        thread.start()
        core = thread.run(_awaited(self._open_core))
        thread.last = partial(_closed, core, thread.callbacks)
        # If it is forgotten its session must not live on. The collector may run in any thread,
        # also in that of another client, so nothing waits there.
        weakref.finalize(self, thread.begin_to_stop).atexit = False
        self._thread, self._core = thread, core
        if self._is_closed:  # by another thread, which found nothing to close yet
            raise client_closed()

    @property
    def clock(self) -> Clock:
        """The clock of this client: the machine's, or a test's."""
        return self.core.clock

    def call(
        self,
        work: Coroutine[Any, Any, T],
        undo: Undo[T] | None = None,
    ) -> T:
        """Run a recipe's coroutine in the client's loop and wait for it.

        ``undo(result)`` is run if the wait was interrupted and the work was done anyway.
        """
        thread = self._thread
        if thread is None:
            try:
                self.core  # noqa: B018 - begins
            except BaseException:
                work.close()
                raise
            thread = self._thread
            assert thread is not None, "it was opened"
        return thread.run(work, undo)

    create = _blocking(AsyncClient.create)
    get = _blocking(AsyncClient.get)
    set = _blocking(AsyncClient.set)
    delete = _blocking(AsyncClient.delete)
    exists = _blocking(AsyncClient.exists)
    children = _blocking(AsyncClient.children)
    subtree = _blocking(AsyncClient.subtree)
    multi = _blocking(AsyncClient.multi)
    guarded = _blocking(AsyncClient.guarded)
    session = _blocking(AsyncClient.session)
    sessions = _blocking(AsyncClient.sessions)
    lock = _blocking(AsyncClient.lock)
    why = _blocking(AsyncClient.why)
    diagnosis = _blocking(AsyncClient.diagnosis)
    examination = _blocking(AsyncClient.examination)
    set_log_level = _blocking(AsyncClient.set_log_level)
    grant = _blocking(AsyncClient.grant)
    revoke = _blocking(AsyncClient.revoke)
    resize = _blocking(AsyncClient.resize)
    election = _blocking(AsyncClient.election)
    proclaim = _blocking(AsyncClient.proclaim)
    backup_piece = _blocking(AsyncClient.backup_piece)
    upgrade_status = _blocking(AsyncClient.upgrade_status)
    finish_upgrade = _blocking(AsyncClient.finish_upgrade)
    limits = _blocking(AsyncClient.limits)
    set_limits = _blocking(AsyncClient.set_limits)
    access = _blocking(AsyncClient.access)
    caller = _blocking(AsyncClient.caller)
    roles = _blocking(AsyncClient.roles)
    identities = _blocking(AsyncClient.identities)
    quota = _blocking(AsyncClient.quota)
    quotas = _blocking(AsyncClient.quotas)
    set_quota = _blocking(AsyncClient.set_quota)
    can = _blocking(AsyncClient.can)
    init_access = _blocking(AsyncClient.init_access)
    set_access = _blocking(AsyncClient.set_access)
    put_role = _blocking(AsyncClient.put_role)
    drop_role = _blocking(AsyncClient.drop_role)
    put_identity = _blocking(AsyncClient.put_identity)
    drop_identity = _blocking(AsyncClient.drop_identity)
    add_token = _blocking(AsyncClient.add_token)
    drop_token = _blocking(AsyncClient.drop_token)
    status = _blocking(AsyncClient.status)
    members = _blocking(AsyncClient.members)
    locks = _collected(AsyncClient.locks)
    grants = _collected(AsyncClient.grants)

    _wait = _blocking(AsyncClient.wait)

    def update(
        self,
        path: str,
        change: Callable[[bytes], bytes],
        *,
        max_retries: int = 5,
        if_held: Conditions = None,
    ) -> Written:
        """Read, compute ``change(data)`` in this thread, write if no other client has written.

        Raises:
            TooManyRetriesError, and all else that ``AsyncClient.update`` raises.
        """
        expect_function("update", change, may_wait=False)

        @wraps(change)
        def computed(data: bytes) -> bytes:
            return called(change, data)

        return run_here(updated(self, self._wait, path, computed, max_retries, if_held))

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
    ) -> BlockingStream[Change]:
        """Watch paths from this call on; iterate over the result, or ``with`` it.

        Raises:
            UnavailableError: no member watches for us within ``contact_timeout`` seconds, or else
                the client's ``timeout``.
            CompactedError: while iterating, as ``AsyncClient.watch``.
        """
        stream = self.core.watch(
            *paths,
            kind=kind,
            from_zxid=from_zxid,
            one_shot=one_shot,
            values=values,
            only=only,
            prefix=prefix,
            bookmark_ms=bookmark_ms,
            contact_timeout=contact_timeout,
        )
        limit_s = contact_timeout
        if limit_s is None:
            limit_s = self.core.settings.timeout_ms / 1000
        changes = BlockingStream(self, stream)
        self.call(_begun(stream, limit_s), _closing(stream))
        return changes

    def observe(
        self, name: str | int, *, contact_timeout: float | None = None
    ) -> BlockingStream[Elected]:
        """Return who is elected now, then each change; iterate over it, or ``with`` it.

        Raises:
            UnavailableError: while iterating, as ``AsyncClient.observe``.
        """
        return BlockingStream(self, self.core.observe(name, contact_timeout=contact_timeout))

    def close(self) -> None:
        """Close the session, releasing all it owns; bounded and idempotent.

        Also what other threads still work under: they find it lost before it is free."""
        self._is_closed = True
        if self._thread is not None:
            self._thread.stop()

    def __repr__(self) -> str:
        return f"<Client of {', '.join(self._urls)}>"

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(self, *_exception: object) -> Literal[None]:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_verb("Client", self, name)


class Stream(Protocol[T_co]):
    """The interface of the core's streams."""

    @property
    def zxid(self) -> int | None:
        """The zxid of the last item."""
        ...

    async def open(self) -> object:
        """Return once a member serves it."""
        ...

    async def close(self) -> None:
        """Stop listening."""
        ...

    async def __anext__(self) -> T_co: ...


def _warn_in_a_loop() -> None:
    """Say that a program blocks its event loop, where it meant the other client."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        warnings.warn(
            "a blocking client was opened in the thread of a running event loop, which stands still"
            " while the client waits; in an async def write"
            " `async with connect(...) as client:` and await its verbs",
            RuntimeWarning,
            stacklevel=3,
        )


class BlockingStream(Generic[T_co]):
    """The items of a stream of the core, one after the other; waits for the next.

    A call that is interrupted takes none: the next call gives it."""

    def __init__(self, client: Client, stream: Stream[T_co]) -> None:
        self._client = client
        self._stream = stream
        self._kept: deque[tuple[int | None, T_co]] = deque()
        """What was read for calls that were interrupted, each after the zxid of the one before."""

    @property
    def zxid(self) -> int | None:
        """Everything up to here has been delivered; a later watch may resume from it."""
        return self._kept[0][0] if self._kept else self._stream.zxid

    def close(self) -> None:
        """Stop listening."""
        self._client.call(self._stream.close())

    def __iter__(self) -> Iterator[T_co]:
        return self

    def __next__(self) -> T_co:
        read = self._client.call(self._read(), self._keep)
        if read is None:
            raise StopIteration
        return read[1]

    def __enter__(self) -> BlockingStream[T_co]:
        self._client.call(_open(self._stream), _closing(self._stream))
        return self

    def __exit__(self, *_exception: object) -> Literal[None]:
        with suppress(ClientClosedError):  # it has ended with its client
            self.close()

    async def _read(self) -> tuple[int | None, T_co] | None:
        if self._kept:
            return self._kept.popleft()
        zxid = self._stream.zxid
        try:
            return zxid, await self._stream.__anext__()
        except StopAsyncIteration:
            return None  # a task must not raise it

    async def _keep(self, read: tuple[int | None, T_co] | None) -> None:
        if read is not None:
            self._kept.appendleft(read)


async def _open(stream: Stream[Any]) -> None:
    await stream.open()


def _closing(stream: Stream[Any]) -> Undo[None]:
    """Return what closes a stream that was opened for a call that was interrupted."""

    async def close(_: None) -> None:
        await stream.close()

    return close


async def _begun(stream: ChangeStream, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await stream.open()
    except TimeoutError:
        await stream.close()
        raise UnavailableError(
            f"no member began to watch within {limit_s:g} s; a watch may be begun again"
        ) from None
    except BaseException:
        await stream.close()
        raise


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


def _refuse_to_block_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BadArgumentsError(
        "expected a client that is awaited, because an event loop runs in this thread, found one "
        "that waits and would block it: `async with connect(...) as client:`, or `client = await "
        "connect(...)`; to block the loop on purpose, `with connect(...) as client:`"
    )
