"""The event loop of a member: asyncio's, whose passes have an end.

A member hands much from one step to the next: messages call for a pass of Raft, which makes
messages to write. asyncio begins another pass for each step, and asks the system before it what is
ready.

1. What is left to the end of a pass is done once for all that came in it, before the loop waits.
2. What is left to before the loop waits runs when nothing else is to be done, or after ``LATE_MS``
   between two passes of a loop that is never idle. Nobody waits for it.
3. A pass that follows at once does not ask the system, if it was asked less than ``ASKED_MS`` ago.
4. To leave a call to the next pass takes two calls of Python functions where asyncio makes five.

On any other loop the end of a pass is the next pass, and so is the time before it waits.
``member_loop`` makes such a one on a Python whose asyncio does not have what is looked at here.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, TypeVarTuple

from coordinator.clock import loop_seconds

ASKED_MS = 1.0
"""The system is asked this often: less than a busy pass takes, more than a few short ones."""
LATE_MS = 5.0
"""What is left to before the loop waits is not left for longer, but for the pass that has begun."""
_WAIT_S_MAX = 3_600.0
"""The longest wait, if nothing is due: the loop then waits again."""

_LOOKED_AT = ("_ready", "_scheduled", "_stopping", "_closed", "_debug")
"""Attributes of asyncio's loop that are not documented: its calls, its timers, whether it ends, is
closed, or is to find mistakes."""

Call = Callable[[], None]
_Arguments = TypeVarTuple("_Arguments")

logger = logging.getLogger(__name__)


def pass_end(loop: asyncio.AbstractEventLoop) -> Callable[[Call], object]:
    """Return what leaves a call to the end of the present pass of ``loop``."""
    return loop.call_at_pass_end if isinstance(loop, MemberLoop) else loop.call_soon


def before_wait(loop: asyncio.AbstractEventLoop) -> Callable[[Call], object]:
    """Return what leaves a call, once, to before ``loop`` waits: under load after ``LATE_MS``."""
    return loop.call_before_wait if isinstance(loop, MemberLoop) else loop.call_soon


def member_loop(looked_at: tuple[str, ...] = _LOOKED_AT) -> asyncio.AbstractEventLoop:
    """Return a MemberLoop; where asyncio lacks what that looks at, asyncio's own loop."""
    loop = MemberLoop()
    missing = [name for name in looked_at if not hasattr(loop, name)]
    if not missing:
        return loop
    loop.close()
    logger.warning(
        "asyncio's loop has no %s in this version of Python: its passes have no end, which costs "
        "time and nothing else",
        ", ".join(missing),
    )
    return asyncio.new_event_loop()


class AtPassEnd:
    """One call that is left to the end of the present pass, once, and may be taken back."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: Callable[[Call], object] | None = None
        self.is_left = False

    def leave(self) -> None:
        """Run the call at the end of this pass."""
        if self.is_left:
            return
        self.is_left = True
        if self._leave is None:
            self._loop = asyncio.get_running_loop()
            self._leave = pass_end(self._loop)
        self._leave(self._run)

    def take_back(self) -> None:
        """Do not run it, if it was left: what it is for is done."""
        if self.is_left:
            self.is_left = False
            if isinstance(self._loop, MemberLoop):
                self._loop.take_back(self._run)

    def _run(self) -> None:
        if self.is_left:
            self.is_left = False
            self._call()


class MemberLoop(asyncio.SelectorEventLoop):
    """asyncio's loop; what ``call_at_pass_end`` was given runs before it waits."""

    def __init__(self) -> None:
        self._ending = _Ending(self)
        self.call_at_pass_end = self._ending.calls.append
        """Leaves a call to the end of this pass, in order; one that is made there to the next."""
        self.call_before_wait = self._ending.leave
        """Leaves a call to when the loop would wait, if it is not left there already."""
        super().__init__(self._ending)
        # Asked by each task, future and handle: without a call of a Python function.
        vars(self)["get_debug"] = partial(getattr, self, "_debug")

    time = staticmethod(loop_seconds)  # the same clock, without a call of a Python function

    def call_soon(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's, which makes two more calls of Python functions."""
        loop: Any = self
        if loop._closed or loop._debug:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        loop._ready.append(handle)
        return handle

    def take_back(self, call: Call) -> None:
        """Do not run a call at the end of this pass: for nothing else it would not wait."""
        if call in self._ending.calls:
            self._ending.calls.remove(call)

    def seconds_to_wait(self) -> float:
        """Return how long nothing is due, by what asyncio itself looks at before it waits."""
        loop: Any = self
        if loop._ready or loop._stopping:
            return 0.0
        seconds = loop._scheduled[0].when() - loop.time() if loop._scheduled else _WAIT_S_MAX
        return max(0.0, min(seconds, _WAIT_S_MAX))


class _Ending(selectors.DefaultSelector):
    """Is asked by the loop between two passes."""

    def __init__(self, loop: MemberLoop) -> None:
        super().__init__()
        self._loop = loop
        self._asked_at = 0.0
        self.calls: list[Call] = []
        self._late: list[Call] = []
        self._late_since = 0.0

    def leave(self, call: Call) -> None:
        """Keep ``call`` until the loop would wait, at most for ``LATE_MS`` and a pass."""
        if call not in self._late:
            if not self._late:
                self._late_since = loop_seconds()
            self._late.append(call)

    def select(self, timeout: float | None = None) -> list[Any]:
        """End the pass; return what is ready then, or after ``timeout``."""
        if self.calls:
            self._run(self.calls)
            timeout = 0.0 if self.calls else self._loop.seconds_to_wait()
        if self._late and (timeout is None or timeout > 0.0 or self._is_late()):
            self._run(self._late)
            timeout = 0.0 if self.calls else self._loop.seconds_to_wait()
        is_at_once = timeout is not None and timeout <= 0.0
        if is_at_once and loop_seconds() - self._asked_at < ASKED_MS / 1000:
            return []
        found = super().select(timeout)
        self._asked_at = loop_seconds()
        return found

    def _is_late(self) -> bool:
        return loop_seconds() - self._late_since >= LATE_MS / 1000

    def _run(self, left: list[Call]) -> None:
        calls = left[:]
        left.clear()
        for call in calls:
            try:
                call()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._loop.call_exception_handler(
                    {"message": f"Exception at the end of a pass, in {call!r}", "exception": error}
                )
