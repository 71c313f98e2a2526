"""An event loop in a thread of its own, which runs coroutines for the threads of a program.

1. The loop owns every call. A thread that is interrupted while it waits (Ctrl-C) gives its call up:
   the loop cancels it, and ``undo`` gives back what it obtained all the same. The thread waits for
   that for a bounded time; whatever interrupts it again, the loop does not stop halfway. What fails
   then is added to the KeyboardInterrupt as a note, and never raised in its place.
2. What has no ``undo``, such as a release, is begun even if its thread was interrupted before the
   loop knew of it: its first step begins what goes on in the background.
3. A forked child has no such thread: every call there raises ClientClosedError at once, and the
   end of the child does not touch what the parent's loop runs.
4. A call that is under way when the loop is stopped has a bounded time to end, and is cancelled
   then; its outcome is unknown.
5. A signal handler may call while the call that it interrupted waits.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from coordinator.client.calling.transport import client_closed
from coordinator.client.running.callbacks import call_in_threads
from coordinator.client.running.owner import context_of_caller
from coordinator.client.running.process import Process
from coordinator.clock import loop_seconds
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    OutcomeUnknownError,
)

T = TypeVar("T")
Undo: TypeAlias = Callable[[T], Coroutine[Any, Any, object]]
"""Gives back what a call obtained, if its caller was interrupted."""

_CLEAN_UP_S_MAX = 5.0
_CLOSE_S_MAX = 10.0
_CALLS_S_MAX = 1.0
"""How long the calls under way have to end when their client is closed."""
_LOOK_S = 0.5
"""How often a waiting caller looks whether the loop it waits for is still there."""

_started: weakref.WeakSet[LoopThread] = weakref.WeakSet()
"""The loops that the end of the interpreter has to stop."""


class LoopThread:
    """The loop and its daemon thread, which ``start`` starts."""

    def __init__(self) -> None:
        self.last: Callable[[], Coroutine[Any, Any, object]] | None = None
        """What the loop runs last, for a bounded time."""
        self._process = Process()
        self._loop = asyncio.new_event_loop()
        with suppress(AttributeError):  # of a loop in C, which asks the system itself
            self._loop.time = loop_seconds  # type: ignore[method-assign]
        self.callbacks = call_in_threads(self._loop)
        self._is_stopped = False
        self._ending: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._main, name="coordinator client", daemon=True)

    def start(self) -> None:
        """Begin; once."""
        _started.add(self)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], undo: Undo[T] | None = None) -> T:
        """Run ``work`` to its end and return what it returns; see invariants 1 and 2 for Ctrl-C.

        Raises:
            ClientClosedError, BadArgumentsError: it cannot run here; ``work`` is closed.
            OutcomeUnknownError: the loop was stopped before the work ended.
            What ``work`` raises.
        """
        call: _Call[T] | None = None
        try:  # an interrupt may come at any moment from here on
            refusal = self._refusal()
            if refusal is None:
                call = _Call(work, undo, context_of_caller())
                refusal = self._waited_for(call)
            if refusal is None and call is not None and call.has_result:
                return call.result()
        except BaseException as error:
            if call is None:
                call = _Call(work, undo, context_of_caller())
            call.is_given_up = True  # even if the loop is not notified, it sees this in the end
            self._give_up(call, error)
            raise
        try:
            if refusal is not None:
                raise refusal
            assert call is not None, "it was not refused"
            return call.result()
        except CoordinatorError as error:
            raise error.with_traceback(None)  # noqa: B904 - the caller's lines, not the loop's
        finally:
            if call is None or call.task is None:
                work.close()
            del call, refusal  # frames of the error hold them: no cycle is left for the collector

    def begin_to_stop(self) -> None:
        """Let the loop run ``last`` and end; returns at once, in any thread. Idempotent."""
        self._is_stopped = True
        if self.is_ours:
            self._post(self._begin_to_end)

    def stop(self) -> None:
        """Let the loop run ``last`` and end, and wait for that for a bounded time; idempotent."""
        try:
            self.begin_to_stop()
        except BaseException:  # an interrupt, maybe before the loop was notified
            self.begin_to_stop()
            raise
        is_waited_for = self.is_ours and threading.current_thread() is not self._thread
        if is_waited_for and self._thread.is_alive():
            self._thread.join(_CLOSE_S_MAX + _CLEAN_UP_S_MAX)

    @property
    def is_ours(self) -> bool:
        """Whether the thread runs in this process."""
        return self._process.is_ours

    # --- in the thread that calls

    def _refusal(self) -> CoordinatorError | None:
        """Return why no call can run: in a forked child, after the end, in the loop's thread."""
        if not self.is_ours:
            return ClientClosedError(self._process.reason)
        if self._is_stopped:
            return client_closed()
        if threading.current_thread() is self._thread:
            return BadArgumentsError(
                "expected a call from another thread than the client's own, found one from a "
                "callback of the client; a callback must not wait for the client"
            )
        return None

    def _waited_for(self, call: _Call[Any]) -> CoordinatorError | None:
        """Have ``call`` started and wait until it is over; return why no more is known of it."""
        if not self._post(self._start, call):
            return ClientClosedError("this client was closed in the meantime")
        while not call.over.wait(_LOOK_S):
            if not self._thread.is_alive() and not call.over.is_set:
                return _closed_under(call)
        return _closed_under(call) if call.is_cancelled else None

    def _post(self, step: Callable[..., object], *arguments: object) -> bool:
        """Have the loop take this step soon; return False if it has ended."""
        try:
            self._loop.call_soon_threadsafe(step, *arguments)
        except RuntimeError:
            return False
        return True

    def _give_up(self, call: _Call[Any], error: BaseException) -> None:
        """Have the loop end and undo ``call``, and wait for that for a bounded time."""
        try:
            if not self._post(self._end_given_up, call):
                if call.task is None:  # the loop has cancelled all that it had started
                    call.work.close()
            elif not call.settled.wait(_CLEAN_UP_S_MAX):
                error.add_note("and the call has not ended yet; the client goes on to end it")
        except BaseException:  # interrupted again, maybe before the loop was notified
            self._post(self._end_given_up, call)
            raise
        if call.failure is not None:
            error.add_note(f"and what the call had acquired is not released yet: {call.failure}")

    # --- in the loop

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

    def _begin_to_end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        try:
            with suppress(Exception):  # its loop ends in any case, and with it all that it holds
                if self.last is not None:
                    await asyncio.wait_for(self.last(), _CLOSE_S_MAX)
            if self._calls:
                await asyncio.wait(list(self._calls), timeout=_CALLS_S_MAX)
        finally:
            self._loop.stop()

    def _start(self, call: _Call[Any]) -> None:
        if call.task is None:
            call.task = self._run(call, call.work, self._ended)

    def _run(
        self,
        call: _Call[Any],
        work: Coroutine[Any, Any, Any],
        ended: Callable[[_Call[Any], asyncio.Task[Any]], object],
    ) -> asyncio.Task[Any]:
        task = self._loop.create_task(work, context=call.context)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(partial(ended, call))
        return task

    def _ended(self, call: _Call[Any], task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # it was seen: who called may have been interrupted
        call.over.set()
        if call.is_given_up:
            self._settle(call)

    def _end_given_up(self, call: _Call[Any]) -> None:
        """End a call that its thread has given up; the first time."""
        if call.is_ending:
            return
        call.is_ending = True
        if call.undo is None:
            self._start(call)
        if call.task is None:  # nor will it be started: that would have come before this
            call.work.close()
            call.settled.set()
        elif call.task.done():
            self._settle(call)
        else:
            self._loop.call_soon(call.task.cancel)  # after its first step

    def _settle(self, call: _Call[Any]) -> None:
        """Give back what a call has obtained that its thread has given up; the first time."""
        if call.is_settling:
            return
        call.is_settling = True
        is_ending = self._ending is not None and self._ending.done()
        if call.undo is None or not call.has_result or is_ending:
            call.settled.set()
        else:
            self._run(call, call.undo(call.result()), self._settled)

    def _settled(self, call: _Call[Any], task: asyncio.Task[Any]) -> None:
        call.failure = None if task.cancelled() else task.exception()
        call.settled.set()


class _Signal:
    """Set once in the loop, and waited for by one thread.

    No Event: a signal handler may come while its wait holds the lock that its setting needs. If
    that handler uses the client, too, the loop must not stand still.
    """

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits for it."""
        if not self.is_set:
            self.is_set = True
            self._lock.release()

    def wait(self, limit_s: float) -> bool:
        """Return whether it was set within ``limit_s``."""
        return self.is_set or self._lock.acquire(timeout=limit_s)


class _Call(Generic[T]):
    """One call: its thread waits, and all else is done in the loop."""

    __slots__ = (
        "context",
        "failure",
        "is_ending",
        "is_given_up",
        "is_settling",
        "over",
        "settled",
        "task",
        "undo",
        "work",
    )

    def __init__(
        self, work: Coroutine[Any, Any, T], undo: Undo[T] | None, context: Context
    ) -> None:
        self.work = work
        self.undo = undo
        self.context = context
        self.task: asyncio.Task[T] | None = None
        """What runs it, once it has been started."""
        self.over = _Signal()
        self.is_given_up = False
        """Its thread was interrupted, and does not take what comes of it."""
        self.is_ending = False
        self.is_settling = False
        self.settled = _Signal()
        """Nothing of a call that was given up is left to do."""
        self.failure: BaseException | None = None
        """Why ``undo`` failed."""

    @property
    def is_cancelled(self) -> bool:
        """Whether it was, where it waited."""
        return self.task is not None and self.task.cancelled()

    @property
    def has_result(self) -> bool:
        """Whether it has ended with a result, which is no error."""
        task = self.task
        return task is not None and task.done() and not (task.cancelled() or task.exception())

    def result(self) -> T:
        """Return its result, or raise its error."""
        assert self.task is not None, "it was started"
        return self.task.result()


def _closed_under(call: _Call[Any]) -> CoordinatorError:
    """Return what is known of a call whose loop ended before the call did."""
    if call.task is None:
        return ClientClosedError("this client was closed before the call began")
    return OutcomeUnknownError(
        "this client was closed while the call was under way; whether it took effect is not known"
    )


@atexit.register
def _stop_all() -> None:
    """Stop what the program has not closed, all at once: no session lives on without its client."""
    left_open = list(_started)
    for each in left_open:
        each.begin_to_stop()
    for each in left_open:
        each.stop()
