"""An event loop in a thread of its own, which runs coroutines for the threads of a program.

1. Ctrl-C while waiting cancels the coroutine and waits, for a bounded time, for its clean-up. What
   it obtained in the same instant is given back (``undo``). What fails then is added to the
   KeyboardInterrupt as a note, and never raised in its place.
2. A forked child has no such thread: every call there raises ClientClosedError at once, and the
   end of the child does not touch what the parent's loop runs.
3. A call that is under way when the loop is stopped ends by itself within a bounded time, or is
   cancelled; its outcome is then unknown.
4. A signal handler may call while the call that it interrupted waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from coordinator.client.callbacks import call_in_threads
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
        call = _Call(work, context_of_caller())
        try:  # an interrupt may come at any moment from here on
            try:
                self._loop.call_soon_threadsafe(self._start, call)
            except RuntimeError:
                raise ClientClosedError("this client was closed in the meantime") from None
            while not call.wait(_LOOK_S):
                if not self._thread.is_alive() and not call.is_over:
                    raise _closed_under(call)
            if call.has_result:
                return call.result()
        except BaseException as error:
            self._interrupt(call, undo, error)
            raise
        try:
            if call.is_cancelled:
                raise _closed_under(call)
            return call.result()
        except CoordinatorError as error:
            raise error.with_traceback(None)  # noqa: B904 - the caller's lines, not the loop's
        finally:
            del call  # it has the error, whose frames hold it: no cycle is left for the collector

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

        last_steps = finish()
        try:
            asyncio.run_coroutine_threadsafe(last_steps, self._loop)
        except RuntimeError:  # the loop has ended already
            last_steps.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S_MAX + _CLEAN_UP_S_MAX)

    def _start(self, call: _Call[Any]) -> None:
        if call.task is None:
            task = call.task = self._loop.create_task(call.work, context=call.context)
            self._calls.add(task)
            task.add_done_callback(partial(self._ended, call))

    def _ended(self, call: _Call[T], task: asyncio.Task[T]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # it was seen: who called may have been interrupted
        call.end()

    def _cancel(self, call: _Call[Any], *, may_be_dropped: bool) -> None:
        """Cancel it; if it gives something back, not before its first step, which begins that."""
        if not may_be_dropped:
            self._start(call)  # it may not have been handed over before the interrupt came
            assert call.task is not None, "it was started"
            self._loop.call_soon(call.task.cancel)
        elif call.task is not None:
            call.task.cancel()
        else:  # nor will it be started: that would have come before this
            call.work.close()
            call.end()

    def _interrupt(self, call: _Call[T], undo: Undo[T] | None, error: BaseException) -> None:
        cancel = partial(self._cancel, call, may_be_dropped=undo is not None)
        try:
            self._loop.call_soon_threadsafe(cancel)
        except RuntimeError:  # the loop is closed, and has cancelled everything
            if call.task is None:
                call.work.close()
            return
        if not call.wait(_CLEAN_UP_S_MAX) or undo is None or not call.has_result:
            return
        try:
            self.run(undo(call.result()))
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


class _Call(Generic[T]):
    """One call: its thread waits, and all else is done in the loop."""

    __slots__ = ("_bell", "context", "is_over", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, T], context: Context) -> None:
        self.work = work
        self.context = context
        self.task: asyncio.Task[T] | None = None
        """What runs it, once it has been started."""
        self.is_over = False
        # No Event: a signal handler may come while its wait holds the lock that its setting needs.
        # If that handler uses the client, too, the loop must not stand still.
        self._bell = threading.Lock()
        """Open when it is over."""
        self._bell.acquire()

    def end(self) -> None:
        """Wake who waits for it."""
        if not self.is_over:
            self.is_over = True
            self._bell.release()

    def wait(self, limit_s: float) -> bool:
        """Return whether it was over within ``limit_s``."""
        return self.is_over or self._bell.acquire(timeout=limit_s)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was, where it waited."""
        return self.task is not None and self.task.cancelled()

    @property
    def has_result(self) -> bool:
        """Whether it has come to one, which is no error."""
        task = self.task
        return task is not None and not task.cancelled() and task.exception() is None

    def result(self) -> T:
        """Return, or raise, what it came to."""
        assert self.task is not None, "it was started"
        return self.task.result()


def _closed_under(call: _Call[Any]) -> CoordinatorError:
    """Return what is known of a call whose loop ended before the call did."""
    if call.task is None:
        return ClientClosedError("this client was closed before the call began")
    return OutcomeUnknownError(
        "this client was closed while the call was under way; whether it took effect is not known"
    )
