"""An event loop in a thread of its own, which runs coroutines for the threads of a program.

1. Ctrl-C while waiting cancels the coroutine and waits, for a bounded time, for its clean-up. What
   it obtained in the same instant is given back (``undo``). What fails then is added to the
   KeyboardInterrupt as a note, and never raised in its place.
2. A forked child has no such thread: every call there raises ClientClosedError at once, and the
   end of the child does not touch what the parent's loop runs.
3. A call that is under way when the loop is stopped ends by itself within a bounded time, or is
   cancelled; its outcome is then unknown.
4. ``begin_here`` runs in the thread that calls what needs no loop (see ``home``); for the main
   thread, where Ctrl-C comes between any two steps, a ``Deputy`` does it.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeAlias, TypeVar

from coordinator.client.callbacks import call_in_threads
from coordinator.client.deputy import Deputy, DeputyCall, is_in_main_thread
from coordinator.client.light_event import LightEvent
from coordinator.client.locks.owner import context_of_caller
from coordinator.client.process import Process
from coordinator.client.transport import client_closed
from coordinator.clock import loop_seconds
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    OutcomeUnknownError,
)

T = TypeVar("T")
Undo: TypeAlias = Callable[[T], Coroutine[Any, Any, object]]
"""Gives back what a call obtained, if its caller was interrupted meanwhile."""

_CLEAN_UP_S_MAX = 5.0
_CLOSE_S_MAX = 10.0
_CALLS_S_MAX = 1.0
"""How long the calls under way have to end by themselves when their client is closed."""
_LOOK_S = 0.5
"""How often a waiting caller looks whether the loop it waits for is still there."""


class LoopThread:
    """The loop and its daemon thread."""

    def __init__(self) -> None:
        self._process = Process()
        self._loop = asyncio.new_event_loop()
        with suppress(AttributeError):  # of a loop in C, which asks the system itself
            self._loop.time = loop_seconds  # type: ignore[method-assign]
        self.callbacks = call_in_threads(self._loop)
        self._is_stopped = False
        self._calls: set[asyncio.Task[Any]] = set()
        self._inbox: deque[Callable[[], object]] = deque()
        """What threads want to be called in the loop, in their order."""
        self._is_woken = False
        """Whether the loop is about to look into it: one wake-up serves many threads."""
        self._deputy = Deputy(self._run_for_deputy)
        self._thread = threading.Thread(target=self._main, name="coordinator client", daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether the thread runs in this process."""
        return self._process.is_ours

    def run(
        self,
        work: Coroutine[Any, Any, T],
        undo: Undo[T] | None = None,
    ) -> T:
        """Run ``work`` to its end and return what it returns; see invariant 1 for Ctrl-C."""
        self.refuse(work)
        return self._run(work, undo, context_of_caller())

    def begin_here(
        self,
        work: Coroutine[Any, Any, T],
        undo: Undo[T] | None = None,
    ) -> T:
        """Run ``work`` in this thread, and from its ``await home.enter()`` on in the loop."""
        self.refuse(work)
        if is_in_main_thread():
            if self._deputy.is_busy:
                return self._run(work, undo, context_of_caller())
            return self._by_deputy(work, undo)
        return self._begun(work, undo, context_of_caller())

    def _begun(
        self,
        work: Coroutine[Any, Any, T],
        undo: Undo[T] | None,
        context: Context,
        deputised: DeputyCall | None = None,
    ) -> T:
        try:
            context.run(work.send, None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except CoordinatorError as error:
            raise error.with_traceback(None)  # noqa: B904 - the caller's lines, not ours
        rest = _rest_of(work)
        try:
            return self._run(rest, undo, context, deputised)
        except ClientClosedError:
            if inspect.getcoroutinestate(work) == inspect.CORO_SUSPENDED:
                return _ended_without_loop(work)
            raise

    def _run(
        self,
        work: Coroutine[Any, Any, T],
        undo: Undo[T] | None,
        context: Context,
        deputised: DeputyCall | None = None,
    ) -> T:
        done = LightEvent()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self._loop.create_task(work, context=context)
            started.append(task)
            self._calls.add(task)
            task.add_done_callback(ended)
            if deputised is not None and not deputised.is_told:
                may_be_dropped = deputised.may_be_dropped
                deputised.on_cancel = lambda: self._soon(lambda: self._cancel(task, may_be_dropped))
                if deputised.is_cancelled:
                    self._cancel(task, may_be_dropped)

        def ended(task: asyncio.Task[T]) -> None:
            self._calls.discard(task)
            done.set()

        try:  # an interrupt may come at any moment from here on
            try:
                self._soon(start)
            except RuntimeError:
                work.close()
                raise ClientClosedError("this client was closed in the meantime") from None
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
        try:
            return started[0].result()
        except CoordinatorError as error:
            raise error.with_traceback(None)  # noqa: B904 - the caller's lines, not the loop's

    def _by_deputy(
        self,
        work: Coroutine[Any, Any, T],
        undo: Undo[T] | None,
    ) -> T:
        call = DeputyCall(work, context_of_caller(), may_be_dropped=undo is not None)
        try:  # an interrupt may come at any moment from here on
            self._deputy.begin(call)
            while not call.done.wait(_LOOK_S):
                pass
            if call.error is None:
                return call.result  # type: ignore[no-any-return]
        except BaseException as error:
            self._interrupt_deputy(call, undo, error)
            raise
        failure, call.error = call.error, None  # the deputy keeps the call, and an error its caller
        try:
            raise failure.with_traceback(None) if isinstance(failure, CoordinatorError) else failure
        finally:
            del failure  # its frames hold it: no cycle is left for the collector

    def _run_for_deputy(self, call: DeputyCall) -> Any:
        if call.is_cancelled and call.may_be_dropped:
            call.work.close()
            raise asyncio.CancelledError
        return self._begun(call.work, None, call.context, call)

    def _interrupt_deputy(
        self,
        call: DeputyCall,
        undo: Callable[[Any], Coroutine[Any, Any, object]] | None,
        error: BaseException,
    ) -> None:
        call.cancel()
        self._deputy.begin(call)  # it may not have been given, or not woken; it runs each once
        if not call.done.wait(_CLEAN_UP_S_MAX) or undo is None or call.error is not None:
            return
        try:
            self.run(undo(call.result))
        except Exception as failure:
            error.add_note(f"and what the call had acquired is not released yet: {failure}")

    def stop(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Run ``last``, for a bounded time, then end the loop and its thread; idempotent."""
        if self._is_stopped or not self.is_ours:
            return
        self._is_stopped = True
        self._deputy.stop()

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

    def _soon(self, callback: Callable[[], object]) -> None:
        """Have ``callback`` called in the loop; raises RuntimeError if it is closed.

        If this is interrupted before the loop was woken, ``_interrupt`` wakes it for all."""
        self._inbox.append(callback)
        if not self._is_woken or self._loop.is_closed():
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._look)

    def _cancel(self, task: asyncio.Task[Any], may_be_dropped: bool) -> None:
        """Cancel it; if it gives something back, not before its first step, which begins that."""
        if may_be_dropped:
            task.cancel()
        else:
            self._loop.call_soon(task.cancel)

    def _look(self) -> None:
        self._is_woken = False  # before looking: what comes from now on wakes it again
        while self._inbox:
            self._inbox.popleft()()

    def _interrupt(
        self,
        started: list[asyncio.Task[T]],
        done: LightEvent,
        undo: Undo[T] | None,
        error: BaseException,
    ) -> None:
        def cancel() -> None:
            for task in started:
                self._cancel(task, undo is not None)
            if not started:  # nor will it be: it would have come before this
                done.set()

        try:
            self._inbox.append(cancel)
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:
            return  # the loop is closed, and has cancelled everything
        if not done.wait(_CLEAN_UP_S_MAX) or undo is None or not started:
            return
        task = started[0]
        if not task.cancelled() and task.exception() is None:
            try:
                self.run(undo(task.result()))
            except Exception as failure:
                error.add_note(f"and what the call had acquired is not released yet: {failure}")

    def refuse(self, work: Coroutine[Any, Any, object]) -> None:
        """Raise what ``refuse_where_it_cannot_run`` does; ``work`` is closed then."""
        try:
            self.refuse_where_it_cannot_run()
        except BaseException:
            work.close()
            raise

    def refuse_where_it_cannot_run(self) -> None:
        """Raise what a call gets in a forked child, after the end, or in the loop's own thread.

        Raises:
            ClientClosedError, BadArgumentsError: see above.
        """
        self._process.check()
        if self._is_stopped:
            raise client_closed()
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


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Go on with a coroutine that has begun, which ``await`` alone would refuse."""
    return (yield from work)  # type: ignore[no-any-return]


async def _rest_of(work: Coroutine[Any, Any, T]) -> T:
    return await _resumed(work)


def _ended_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """End a coroutine that cannot go on; each time it asks for the loop it gets the same answer."""
    closed = ClientClosedError("this client was closed while the call was under way")
    while True:
        try:
            work.throw(closed)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def _closed_under(started: Sequence[object]) -> CoordinatorError:
    """Return what is known of a call whose loop ended before the call did."""
    if not started:
        return ClientClosedError("this client was closed before the call began")
    return OutcomeUnknownError(
        "this client was closed while the call was under way; whether it took effect is not known"
    )
