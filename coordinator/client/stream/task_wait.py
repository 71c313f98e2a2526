"""The wait of a task: like a future, but the task may go on where its answer is read.

A future wakes its task in the next pass of the loop. A connection reads in a callback of the loop,
where no task runs, so the tasks whose answers it has read can take their next steps there, one
after the other, and what they ask next leaves in one send. That saves a pass for each answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from typing import Any

Wake = Callable[[Any], object]


class TaskWait:
    """Awaited by one task, once; belongs to one event loop. Nothing is done twice with it."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_cancel_message",
        "_context",
        "_is_cancelled",
        "_loop",
        "_wake",
        "is_done",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # What asyncio asks of an object that a task awaits: this, the loop, and the methods below.
        self._asyncio_future_blocking = False
        self._loop = loop
        self._wake: Wake | None = None
        self._context: Context | None = None
        self._is_cancelled = False
        self._cancel_message: object = None
        """By which who cancels knows its own cancellation again: anyio's scopes do."""
        self.is_done = False
        """Whether the task goes on, or will."""

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.is_done:
            self._asyncio_future_blocking = True
            yield self

    def go_on(self) -> None:
        """Let the task take its next step now; where no task runs, and ``is_done`` is set."""
        wake, context = self._wake, self._context
        if wake is None or context is None:
            return
        try:
            context.run(int)
        except RuntimeError:  # it is entered already: who reads was started in it
            self.go_on_soon()
        else:
            self._wake = None
            try:
                context.run(wake, self)
            finally:
                del wake  # a failure of the task leads to this frame, and that to the task: a cycle

    def go_on_soon(self) -> None:
        """Let the task go on in the next pass of the loop, from anywhere within the loop."""
        self.is_done = True
        wake, self._wake = self._wake, None
        if wake is not None:
            self._loop.call_soon(wake, self, context=self._context)

    # --- what asyncio calls

    def add_done_callback(self, wake: Wake, *, context: Context) -> None:
        """Note how the task is woken."""
        assert self._wake is None, "one task waits for it"
        self._wake, self._context = wake, context

    def result(self) -> None:
        """Raise what the task gets in place of a result, if anything."""
        if self._is_cancelled:
            raise self._cancellation()

    def done(self) -> bool:
        """Return whether the task goes on, or will."""
        return self.is_done

    def cancel(self, msg: object = None) -> bool:
        """Cancel the wait, unless the task goes on already."""
        if self.is_done:
            return False
        self._is_cancelled = True
        self._cancel_message = msg
        self.go_on_soon()
        return True

    def _cancellation(self) -> asyncio.CancelledError:
        message = self._cancel_message
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)


def let_go_on(awaited: Sequence[TaskWait]) -> None:
    """Let the tasks behind ``awaited`` go on, each of which ``is_done``, in this order.

    At once if no task runs here. If one ends the loop while it goes on, or runs the loop inside
    itself (notebooks do), the others go on in the next pass.
    """
    left = list(reversed(awaited))

    def rest() -> None:
        while left:
            left.pop().go_on_soon()

    if asyncio.current_task() is not None:
        rest()
        return
    later = asyncio.get_running_loop().call_soon(rest) if len(left) > 1 else None
    while left:
        left.pop().go_on()
    if later is not None:
        later.cancel()
