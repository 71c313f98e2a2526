"""The sync face: the asyncio client in an event loop of its own, in a daemon thread.

1. ``call`` runs a coroutine over there and waits here. Nothing is written twice: each verb below
   is the core's verb, passed through ``_blocking``.
2. Ctrl-C while waiting cancels the coroutine and waits, for a bounded time, for its clean-up; what
   it had obtained in the same instant is given back (``undo``). Whatever fails then is a note of
   the KeyboardInterrupt, and never raised in its place.
3. A forked child has no such thread: every call there raises ClientClosedError at once, and the
   end of the child does not touch the parent's session.
4. What was not closed is closed when the interpreter exits, within a bounded time.
5. A call that is under way when its client is closed ends as on the asyncio face, with what is
   known of it; if it does not end in time it is cancelled, and what came of it is unknown.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar

from coordinator.client.async_client import AsyncClient, WatchKind
from coordinator.client.conditions import Conditions
from coordinator.client.owner import context_of_caller
from coordinator.client.updating import update_steps
from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    BadVersionError,
    ClientClosedError,
    CoordinatorError,
    OutcomeUnknownError,
)
from coordinator.wire.messages.elections import Elected
from coordinator.wire.messages.history import GrantRecord
from coordinator.wire.messages.locks import LockSummary
from coordinator.wire.messages.watches import Change
from coordinator.wire.messages.znodes import Written

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_CLEAN_UP_S_MAX = 5.0
_CLOSE_S_MAX = 10.0
_CALLS_S_MAX = 1.0
"""How long the calls under way have to end by themselves when their client is closed."""
_LOOK_S = 0.5
"""How often a waiting caller looks whether the loop it waits for is still there."""


class LoopThread:
    """An event loop in a daemon thread; runs coroutines for other threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._is_stopped = False
        self._calls: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._main, name="coordinator client", daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether the thread runs in this process."""
        return os.getpid() == self._pid

    def run(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run ``work`` to its end and return what it returns; see invariant 2 for Ctrl-C."""
        try:
            self._refuse_where_it_cannot_run()
        except BaseException:
            work.close()
            raise
        done = threading.Event()
        started: list[asyncio.Task[T]] = []
        context = context_of_caller()

        def start() -> None:
            task = self._loop.create_task(work, context=context)
            started.append(task)
            self._calls.add(task)
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[T]) -> None:
            self._calls.discard(task)
            done.set()

        try:  # an interrupt may come at any moment from here on
            try:
                self._loop.call_soon_threadsafe(start)
            except RuntimeError:
                work.close()
                raise ClientClosedError("this client was closed meanwhile") from None
            while not done.wait(_LOOK_S):
                if not self._thread.is_alive() and not done.is_set():
                    if not started:
                        work.close()
                    raise _closed_under(started)
        except BaseException as error:
            self._interrupt(started, done, undo, error)
            if done.is_set() and not started:
                work.close()
            raise
        if started[0].cancelled():
            raise _closed_under(started)
        return started[0].result()

    def stop(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Run ``last``, for a bounded time, then end the loop and its thread; idempotent."""
        if self._is_stopped or not self.is_ours:
            return
        self._is_stopped = True

        async def finish() -> None:
            try:
                if last is not None:
                    await asyncio.wait_for(last(), _CLOSE_S_MAX)
                if self._calls:
                    await asyncio.wait(list(self._calls), timeout=_CALLS_S_MAX)
            finally:
                self._loop.stop()

        asyncio.run_coroutine_threadsafe(finish(), self._loop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S_MAX + _CLEAN_UP_S_MAX)

    def _interrupt(
        self,
        started: list[asyncio.Task[T]],
        done: threading.Event,
        undo: Callable[[T], Coroutine[Any, Any, object]] | None,
        error: BaseException,
    ) -> None:
        def cancel() -> None:
            for task in started:
                task.cancel()
            if not started:  # nor will it be: it would have come before this
                done.set()

        try:
            self._loop.call_soon_threadsafe(cancel)
        except RuntimeError:
            return  # the loop is closed, and has cancelled everything
        if not done.wait(_CLEAN_UP_S_MAX) or undo is None or not started:
            return
        task = started[0]
        if not task.cancelled() and task.exception() is None:
            try:
                self.run(undo(task.result()))
            except Exception as failure:
                error.add_note(f"and what the call had obtained is not given back yet: {failure}")

    def _refuse_where_it_cannot_run(self) -> None:
        if not self.is_ours:
            raise ClientClosedError(
                f"this client belongs to process {self._pid}, found process {os.getpid()}; "
                f"after a fork the child connects anew"
            )
        if self._is_stopped:
            raise ClientClosedError("this client is closed")
        if threading.current_thread() is self._thread:
            raise BadArgumentsError(
                "expected a call from another thread than the client's own, found one from a "
                "callback of the client; a callback must not wait for the client"
            )

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            rest = asyncio.all_tasks(self._loop)
            for task in rest:
                task.cancel()
            if rest:
                self._loop.run_until_complete(asyncio.wait(rest, timeout=_CLEAN_UP_S_MAX))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def _closed_under(started: Sequence[object]) -> CoordinatorError:
    """Return what is known of a call whose loop ended before the call did."""
    if not started:
        return ClientClosedError("this client was closed before the call began")
    return OutcomeUnknownError(
        "this client was closed while the call was under way; whether it took effect is not known"
    )


def _blocking(
    verb: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return the core's ``verb`` as a method that waits for it."""

    @wraps(verb)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.call(verb(client.core, *args, **kwargs))

    return method


class Client:
    """A client of the cluster for code without an event loop; made by ``with connect(...)``.

    The verbs are those of AsyncClient, and wait. Safe to share between threads.
    """

    def __init__(self, open_core: Callable[[], Awaitable[AsyncClient]]) -> None:
        self._thread = LoopThread()
        try:
            self._core = self._thread.run(_awaited(open_core))
        except BaseException:
            self._thread.stop()
            raise
        # Also when it is forgotten, or the interpreter exits: a session must not live on unowned.
        self._finalizer = weakref.finalize(self, self._thread.stop, self._core.close)

    @property
    def core(self) -> AsyncClient:
        """The asyncio client behind this face."""
        return self._core

    @property
    def clock(self) -> Clock:
        return self._core.clock

    def call(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run a recipe's coroutine in the client's loop and wait for it.

        ``undo(result)`` is run if the wait was interrupted and the work was done anyway.
        """
        return self._thread.run(work, undo)

    create = _blocking(AsyncClient.create)
    get = _blocking(AsyncClient.get)
    set = _blocking(AsyncClient.set)
    delete = _blocking(AsyncClient.delete)
    exists = _blocking(AsyncClient.exists)
    children = _blocking(AsyncClient.children)
    multi = _blocking(AsyncClient.multi)
    guarded = _blocking(AsyncClient.guarded)
    session = _blocking(AsyncClient.session)
    sessions = _blocking(AsyncClient.sessions)
    lock = _blocking(AsyncClient.lock)
    grant = _blocking(AsyncClient.grant)
    revoke = _blocking(AsyncClient.revoke)
    resize = _blocking(AsyncClient.resize)
    election = _blocking(AsyncClient.election)
    proclaim = _blocking(AsyncClient.proclaim)
    status = _blocking(AsyncClient.status)

    def update(
        self,
        path: str,
        change: Callable[[bytes], bytes],
        *,
        max_retries: int = 5,
        if_held: Conditions = None,
    ) -> Written:
        """Read, compute ``change(data)`` in this thread, write if nobody wrote meanwhile."""
        steps = update_steps(self._core, path, change, max_retries, if_held)
        answer: Any = None
        while True:
            try:
                answer = self.call(steps.send(answer))
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except BadVersionError as error:
                answer = error

    def locks(self, *, held_ms_min: int = 0) -> Iterator[LockSummary]:
        """Iterate over the locks held for at least ``held_ms_min``."""

        async def collected() -> list[LockSummary]:
            return [each async for each in self._core.locks(held_ms_min=held_ms_min)]

        return iter(self.call(collected()))

    def grants(
        self,
        lock: str | None = None,
        *,
        session_id: str | None = None,
        fencing_token: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        how: str | None = None,
        is_election: bool = False,
    ) -> Iterator[GrantRecord]:
        """Iterate over the grants that the history still knows; see AsyncClient.grants."""

        async def collected() -> list[GrantRecord]:
            found = self._core.grants(
                lock,
                session_id=session_id,
                fencing_token=fencing_token,
                since_ms=since_ms,
                until_ms=until_ms,
                how=how,
                is_election=is_election,
            )
            return [each async for each in found]

        return iter(self.call(collected()))

    def watch(
        self,
        *paths: str,
        kind: WatchKind = "znode",
        from_zxid: int | None = None,
        one_shot: bool = False,
        contact_timeout: float | None = None,
    ) -> BlockingStream[Change]:
        """Watch paths; iterate over the result, or ``with`` it. See AsyncClient.watch."""
        stream = self._core.watch(
            *paths,
            kind=kind,
            from_zxid=from_zxid,
            one_shot=one_shot,
            contact_timeout=contact_timeout,
        )
        return BlockingStream(self, stream)

    def observe(
        self, name: str, *, contact_timeout: float | None = None
    ) -> BlockingStream[Elected]:
        """Tell who is elected now, then each change; iterate over the result, or ``with`` it."""
        return BlockingStream(self, self._core.observe(name, contact_timeout=contact_timeout))

    def close(self) -> None:
        """Close the session, releasing all it owns; bounded and idempotent."""
        self._finalizer()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        self.close()


class Stream(Protocol[T_co]):
    """What the core's streams have in common."""

    @property
    def zxid(self) -> int | None: ...

    async def open(self) -> object: ...

    async def close(self) -> None: ...

    async def __anext__(self) -> T_co: ...


class BlockingStream(Generic[T_co]):
    """What a stream of the core tells, one after the other; waits for the next."""

    def __init__(self, client: Client, stream: Stream[T_co]) -> None:
        self._client = client
        self._stream = stream

    @property
    def zxid(self) -> int | None:
        """Everything up to here has been told; a later watch may resume from it."""
        return self._stream.zxid

    def close(self) -> None:
        """Stop listening."""
        self._client.call(self._stream.close())

    def __iter__(self) -> Iterator[T_co]:
        return self

    def __next__(self) -> T_co:
        item = self._client.call(_next(self._stream))
        if item is None:
            raise StopIteration
        return item

    def __enter__(self) -> BlockingStream[T_co]:
        self._client.call(_open(self._stream))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        self.close()


async def _next(stream: Stream[T]) -> T | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None  # a task must not raise it


async def _open(stream: Stream[Any]) -> None:
    await stream.open()


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
