"""The runners of blocking calls: threads for real members, in place in simulations."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from coordinator.errors import DiskFullError, StorageError

Result = TypeVar("Result")

_ONE = (1).to_bytes(8, sys.byteorder)
"""What raises a counter of the kernel by one."""


class RunBlocking(Protocol):
    """Runs a call that may block, and returns what it returned."""

    def __call__(self, call: Callable[[], Result], /) -> Awaitable[Result]: ...


class Started(Protocol):
    """A call that was started."""

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; return whether it is done, or raise what it raised."""
        ...

    async def done(self) -> None:
        """Return when it is done, or raise what it raised; after ``wait`` returned False."""
        ...


def noting_failures(run: RunBlocking, note: Callable[[StorageError], None]) -> RunBlocking:
    """Return ``run``; a failure of the disk, but for one without room, is noted where it happens.

    The loop hears of it some passes later, and would write to that disk in between."""

    def run_noting(call: Callable[[], Result], /) -> Awaitable[Result]:
        def noted() -> Result:
            try:
                return call()
            except DiskFullError:
                raise
            except StorageError as error:
                note(error)
                raise

        return run(noted)

    return run_noting


async def run_in_thread(call: Callable[[], Result], /) -> Result:
    """Run ``call`` in a thread: syncing a whole snapshot takes longer than a heartbeat."""
    return await asyncio.to_thread(call)


class _Ended:
    """A call that was run in place."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def wait(self, seconds: float) -> bool:
        """Return True, or raise what the call raised."""
        if self._error is not None:
            raise self._error
        return True

    async def done(self) -> None:
        """Return, or raise what the call raised."""
        self.wait(0)


def start_in_place(call: Callable[[], None], /) -> Started:
    """Run ``call`` here and now."""
    try:
        call()
    except Exception as error:
        return _Ended(error)
    return _Ended(None)


class _Signal:
    """A signal from one thread to another: an eventfd, or a pipe.

    Each ``take`` takes one of those given: two given in a row are two, as with a pipe."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.fileno = self._giving = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        else:
            self.fileno, self._giving = os.pipe()

    def give(self) -> None:
        """Signal once."""
        os.write(self._giving, _ONE)

    def take(self) -> None:
        """Wait until there is one, and take it."""
        os.read(self.fileno, len(_ONE))

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in {self.fileno, self._giving}:
            os.close(descriptor)


class _Desk:
    """The state that caller and thread share; not the ``WorkerThread``, which ends the thread.

    A call is followed by one signal, and so is the end: a thread that the machine lets run only
    after both runs the call first. One that was dropped would be waited for in vain."""

    def __init__(self) -> None:
        self.wanted, self.done = _Signal(), _Signal()
        self.calls: deque[Callable[[], None] | None] = deque()
        """What was asked and is not begun; None is the end."""
        self.call: Callable[[], None] | None = None
        """The call that was asked last."""
        self.ended: tuple[Callable[[], None] | None, Exception | None] = (None, None)
        """The call that has ended last, with its error."""

    def serve(self) -> None:
        """Run one call after the other, until there is none."""
        while True:
            self.wanted.take()
            call = self.calls.popleft()
            if call is None:
                self.wanted.close()
                self.done.close()
                return
            found = None
            try:
                call()
            except Exception as error:
                found = error
            self.ended = call, found
            found = None  # it holds on to this frame
            self.done.give()

    def ask(self, call: Callable[[], None]) -> None:
        """Let the thread run ``call``."""
        self.call = call
        self.calls.append(call)
        self.wanted.give()

    def end(self) -> None:
        """Let the thread end after what it was asked."""
        self.calls.append(None)
        self.wanted.give()


class WorkerThread:
    """Runs calls in one thread that waits for them, from the first call until ``close``.

    For a sync of 0.2 ms an executor costs half as much again: a future with a condition, a queue,
    and six switches between threads, where two signals need four. One call at a time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._desk: _Desk | None = None
        self._end: Callable[[], object] | None = None
        self._poll = select.poll()

    def __call__(self, call: Callable[[], None], /) -> Started:
        """Start ``call``; what was started before it must have ended."""
        desk = self._desk or self._begin()
        desk.ask(call)
        return self

    def wait(self, seconds: float) -> bool:
        """Wait at most so long for the call; return whether it is done, or raise its error."""
        if not self._poll.poll(seconds * 1000):
            return False
        return self._is_done()

    async def done(self) -> None:
        """Return when the call is done, or raise its error."""
        assert self._desk is not None
        loop, done = asyncio.get_running_loop(), self._desk.done.fileno
        signalled = asyncio.Event()
        while True:
            loop.add_reader(done, signalled.set)
            try:
                await signalled.wait()
            finally:
                loop.remove_reader(done)
            signalled.clear()
            if self._is_done():
                return

    def _begin(self) -> _Desk:
        self._desk = desk = _Desk()
        self._poll.register(desk.done.fileno, select.POLLIN)
        threading.Thread(target=desk.serve, name=self._name, daemon=True).start()
        self._end = ending = weakref.finalize(self, desk.end)
        ending.atexit = False
        return desk

    def close(self) -> None:
        """Let the thread end after what it was asked; nothing is called any more. Idempotent.

        It ends with this object, too. But its end must not depend on references to it."""
        if self._end is not None:
            self._end()

    def _is_done(self) -> bool:
        """Take a signal; return whether it was that of the call, or raise its error.

        One that nobody waited for to its end is signalled late: that says nothing of the next."""
        desk = self._desk
        assert desk is not None
        desk.done.take()
        call, error = desk.ended
        if call is not desk.call:
            return False
        desk.ended = (None, None)
        if error is not None:
            raise error
        return True
