"""The calls of a program's own functions, made where nothing of the client waits for them.

1. Of a sync client they run in threads of their own, at most ``THREADS_MAX`` at once; more wait for
   these. So one that blocks costs neither the heartbeats nor the callbacks of other locks, and it
   may use the client.
2. Of an asyncio client they run in its loop, soon after what they report. There a coroutine
   function may take its time; a function that blocks stops the program's loop, and all in it.
3. The calls of one ``Callback`` come one after the other, in order. If more than ``WAITING_MAX``
   wait the oldest are dropped.
4. What a callback raises is reported to the loop's exception handler, and stops no other callback.
5. In a forked child, and once the loop is closed, a callback is called at once, in the thread that
   says so.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from coordinator.client.running.callables import expect_function, expect_result
from coordinator.client.running.process import OwnLoop
from coordinator.client.running.settling import settled

THREADS_MAX = 16
WAITING_MAX = 1_000


class CallbackThreads:
    """The threads that call for one sync client; they begin when needed, and end when idle."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._running = 0
        self._on_idle: Callable[[], object] = lambda: None

    def run(self, job: Callable[[], object]) -> None:
        """Run ``job``, which raises nothing, in one of the threads; in any thread."""
        with self._guard:
            self._waiting.append(job)
            if self._running == THREADS_MAX:
                return
            self._running += 1
        try:
            threading.Thread(target=self._work, name="coordinator callback", daemon=True).start()
        except RuntimeError:  # the interpreter ends, or there are too many threads
            self._work()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._running -= 1
                    if not self._running:
                        self._on_idle()
                    return
                job = self._waiting.popleft()
            job()

    async def ended(self, limit_s: float) -> None:
        """Wait until all have returned, for so long at most; in the loop."""
        is_idle, own_loop = asyncio.Event(), OwnLoop()
        with self._guard:
            if not self._running:
                return
            self._on_idle = partial(own_loop.soon, is_idle.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await is_idle.wait()


_threads_of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, CallbackThreads] = (
    weakref.WeakKeyDictionary()
)
"""The loops in which no code of the program runs: those of sync clients."""

_tasks: set[asyncio.Task[None]] = set()
"""The coroutines of callbacks under way; a loop remembers its tasks weakly."""


def call_in_threads(loop: asyncio.AbstractEventLoop) -> CallbackThreads:
    """Let threads call what is registered in ``loop``, which is the client's own."""
    return _threads_of.setdefault(loop, CallbackThreads())


def calls_in_threads(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether no code of the program runs in ``loop``: it is that of a sync client."""
    return loop in _threads_of


class Callback:
    """One registered ``function``; ``what`` names it in errors. It is called from any thread."""

    def __init__(self, own_loop: OwnLoop, what: str, function: Callable[..., object]) -> None:
        self._threads = _threads_of.get(own_loop.loop)
        expect_function(what, function, may_wait=self._threads is None)
        self._own_loop = own_loop
        self._what = what
        self._function = function
        self._guard = threading.Lock()
        self._waiting: deque[tuple[Any, ...]] = deque(maxlen=WAITING_MAX)
        self._is_under_way = False

    def __call__(self, *args: object) -> None:
        """Have the function called with ``args``, soon."""
        own_loop = self._own_loop
        if not own_loop.process.is_ours or own_loop.loop.is_closed():
            self._call(args)
            return
        with self._guard:
            self._waiting.append(args)
            if self._is_under_way:
                return
            self._is_under_way = True
        if self._threads is None:
            own_loop.soon(self._call_in_loop)
        else:
            self._threads.run(self._call_all)

    def stop(self) -> None:
        """Forget the calls that have not begun."""
        # No guard: a signal handler may come in between that waits for the loop, which takes it.
        self._waiting.clear()

    def _next(self) -> tuple[Any, ...] | None:
        with self._guard:
            try:
                return self._waiting.popleft()
            except IndexError:
                self._is_under_way = False
                return None

    def _call_all(self) -> None:
        while (args := self._next()) is not None:
            self._call(args)

    def _call(self, args: tuple[Any, ...]) -> None:
        try:
            expect_result(self._function, self._function(*args))
        except BaseException as error:  # the root of this thread; it goes on with the next
            self._report(contained(error))

    def _call_in_loop(self) -> None:
        while (args := self._next()) is not None:
            try:
                given = self._function(*args)
                if inspect.isawaitable(given):
                    task = self._own_loop.loop.create_task(self._await(given), name=self._what)
                    _tasks.add(task)
                    task.add_done_callback(_tasks.discard)
                    return  # it goes on with the next
                expect_result(self._function, given)
            except (Exception, asyncio.CancelledError) as error:
                self._report(error)

    async def _await(self, given: Awaitable[object]) -> None:
        task = asyncio.current_task()
        try:
            expect_result(self._function, await given)
        except (Exception, asyncio.CancelledError) as error:
            if task is not None and task.cancelling():  # the program's loop ends
                raise
            self._report(error)
        self._call_in_loop()

    def _report(self, error: BaseException) -> None:
        own_loop = self._own_loop
        context = {"message": f"a callback failed: {self._what}", "exception": error}
        report = partial(own_loop.loop.call_exception_handler, context)
        if not own_loop.process.is_ours or own_loop.loop.is_closed():
            report()
        else:
            own_loop.soon(report)


def contained(failure: BaseException) -> Exception:
    """Return ``failure`` of a program's function as what futures and loops let through.

    SystemExit would end the client's loop, StopIteration no future takes."""
    if isinstance(failure, Exception) and not isinstance(failure, StopIteration):
        return failure
    error = RuntimeError(f"a function of the program ended by {failure!r}")
    error.__cause__ = failure
    return error


async def answered(own_loop: OwnLoop, function: Callable[..., Any], *args: object) -> Any:
    """Return the result of a program's function, for a step of the client that depends on it.

    For a sync client it runs in a thread of its own: those for callbacks may all be waiting for it.

    Raises:
        BadArgumentsError: what it returned would still have to run.
        What it raises.
    """
    if calls_in_threads(own_loop.loop):
        result = await _in_thread(own_loop, partial(function, *args))
    else:
        result = await settled(function(*args))
    expect_result(function, result)
    return result


def _in_thread(own_loop: OwnLoop, function: Callable[[], Any]) -> asyncio.Future[Any]:
    answer: asyncio.Future[Any] = own_loop.loop.create_future()

    def settle(result: object, error: Exception | None) -> None:
        if answer.done():
            return  # it is not waited for any more
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def run() -> None:
        result: object = None
        failure: Exception | None = None
        try:
            result = function()
        except BaseException as error:  # the root of this thread
            failure = contained(error)
        own_loop.soon(partial(settle, result, failure))

    threading.Thread(target=run, name="coordinator answer", daemon=True).start()
    return answer
