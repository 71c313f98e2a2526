"""A thread that begins the calls of the main thread, out of the reach of its signals.

Ctrl-C is raised in the main thread between any two steps. So what a call there has begun is run by
this thread (as ``LoopThread.begin_here`` runs it for any other), and the main thread only waits.

1. An interrupted wait cancels the call where it waits for its turn or for another try, not within a
   request that has been sent: that is answered in time, or its outcome is unknown.
2. It waits for a bounded time for the clean-up; what the call had acquired is then undone.
3. While the call of an interrupted wait is still under way the next one goes by the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from coordinator.client.light_event import LightEvent

_LOOK_S = 0.5
_here = threading.local()


def is_in_main_thread() -> bool:
    """Whether this is the thread in which Python runs signal handlers."""
    return threading.get_ident() == threading.main_thread().ident


class DeputyCall:
    """One call: what runs it puts there what came of it."""

    def __init__(
        self, work: Coroutine[Any, Any, Any], context: Context, *, may_be_dropped: bool
    ) -> None:
        self.work = work
        self.context = context
        self.may_be_dropped = may_be_dropped
        """Whether nothing is to be done if it is cancelled before it has begun; not so if it gives
        something back."""
        self.is_cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_told = False
        """Whether it was cancelled where it waited: what follows is its clean-up."""
        self.on_cancel: Callable[[], object] | None = None
        """Wakes what the call waits for, or cancels its task, if it may be cancelled there."""
        self.done = LightEvent()

    def cancel(self) -> None:
        """Have it end where it waits."""
        self.is_cancelled = True
        wake = self.on_cancel
        if wake is not None:
            wake()

    def end(self) -> None:
        """Wake who waits for it."""
        self.on_cancel = None  # it knows the task, and that the error, and that its caller
        self.done.set()


class Deputy:
    """The thread, which begins with the first call; ``run`` is how it runs one."""

    def __init__(self, run: Callable[[DeputyCall], Any]) -> None:
        self._run = run
        self._call: DeputyCall | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._bell = threading.Lock()
        """Open when there is a call."""
        self._bell.acquire()

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._call is not None and not self._call.done.is_set()

    def begin(self, call: DeputyCall) -> None:
        """Let the thread run ``call``."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._main, name="coordinator client for the main thread", daemon=True
            )
        if self._thread.ident is None:  # nor was it started before an interrupt came
            with suppress(RuntimeError):  # it has just been
                self._thread.start()
        self._call = call
        self.ring()

    def stop(self) -> None:
        """End the thread when its call has ended."""
        self._is_stopped = True
        self.ring()

    def ring(self) -> None:
        """Have the thread look what there is to do."""
        try:
            self._bell.release()
        except RuntimeError:
            pass  # it is open already

    def _main(self) -> None:
        while not self._is_stopped:
            self._bell.acquire()
            call = self._call
            if call is None or call.done.is_set():
                continue
            _here.call = call
            try:
                call.result = self._run(call)
            except BaseException as error:
                call.error = error
            _here.call = None
            call.end()


def wait_cancellably(wait: Callable[[float], object], wake: Callable[[], object], s: float) -> None:
    """``wait(s)`` in this thread; if it is a deputy, its call may be cancelled: ``wake`` wakes it.

    Raises:
        asyncio.CancelledError: the main thread was interrupted.
    """
    call: DeputyCall | None = getattr(_here, "call", None)
    if call is None:
        wait(s)
        return
    call.on_cancel = wake
    try:
        if not call.is_cancelled or call.is_told:
            wait(s)
    finally:
        call.on_cancel = None
    if call.is_cancelled and not call.is_told:
        call.is_told = True
        raise asyncio.CancelledError
