"""The event loop of a member: asyncio's, whose passes have an end.

A member hands much from one step to the next: messages call for a pass of Raft, which makes
messages to write. asyncio begins another pass for each step, and asks the system before it what is
ready.

1. What is left to the end of a pass is done once for all that came in it, before the loop waits.
2. What is left to before the loop waits runs when nothing else is to be done, or after ``LATE_MS``
   between two passes of a loop that is never idle. Nobody waits for it.
3. A pass that follows at once does not ask the system, if it was asked less than ``ASKED_MS`` ago.
4. To leave a call to the next pass takes two calls of Python functions where asyncio makes five,
   and one for the next step of a task, which has no handle then; to make a future takes none for
   one, and a task none for two.
5. Timers are ordered by tuples, which C compares; asyncio's are compared by a Python function.
6. A pass takes two calls of Python functions, and none for what it calls; asyncio makes four for
   each socket and one for each call. A member that is seldom woken has forgotten all code by then:
   each function that it needs is read from memory again, which takes longer than to run it.

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
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil
from types import BuiltinMethodType, MethodType
from typing import Any, TypeVarTuple

from coordinator.clock import loop_seconds

ASKED_MS = 1.0
"""The system is asked this often: less than a busy pass takes, more than a few short ones."""
LATE_MS = 5.0
"""What is left to before the loop waits is not left for longer, but for the pass that has begun."""
_WAIT_S_MAX = 3_600.0
"""The longest wait, if nothing is due: the loop then waits again."""
_CANCELLED_MIN = 100
"""Timers that were cancelled are looked for from so many on, if they are half of all."""

_LOOKED_AT = (
    "_ready", "_scheduled", "_stopping", "_closed", "_debug", "_process_events",
    "_timer_handle_cancelled", "_clock_resolution", "_remove_reader", "_remove_writer", "_run_once",
)  # fmt: skip
"""Attributes of asyncio's loop that are not documented: its calls, its timers, whether it ends, is
closed, or is to find mistakes, what it does with what is ready and with a timer that is cancelled,
how exact its clock is, how it stops to look at a socket, and what makes a pass."""
_OF_A_HANDLE = ("_cancelled", "_context", "_callback", "_args")
_HAS_EPOLL = selectors.DefaultSelector is getattr(selectors, "EpollSelector", None)
_OF_A_SELECTOR = ("_fd_to_key", "_selector") if _HAS_EPOLL else ("_fd_to_key",)

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
    missing = _missing(looked_at)
    if not missing:
        return MemberLoop()
    logger.warning(
        "asyncio's loop has no %s in this version of Python: its passes have no end, which costs "
        "time and nothing else",
        ", ".join(missing),
    )
    return asyncio.new_event_loop()


class _Asked:
    """A loop that a task asks for its first step."""

    step: type | None = None

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *, context: Context) -> None:
        self.step = type(callback)


def _step_of_tasks() -> type | None:
    """Return the class of what a task calls for its steps; None where it is an ordinary method."""
    asked: Any = _Asked()
    steps = asyncio.sleep(0)
    task = asyncio.Task(steps, loop=asked)
    vars_of_task: Any = task
    vars_of_task._log_destroy_pending = False
    steps.close()
    return None if asked.step is MethodType else asked.step


_STEP = _step_of_tasks()


def _missing(looked_at: tuple[str, ...]) -> list[str]:
    """Return what a loop of asyncio, its handles or its selector do not have."""
    with selectors.DefaultSelector() as selector:
        loop = asyncio.SelectorEventLoop(selector)
        try:
            handle = loop.call_soon(bool)
            parts = ((loop, looked_at), (handle, _OF_A_HANDLE), (selector, _OF_A_SELECTOR))
            return [name for part, names in parts for name in names if not hasattr(part, name)]
        finally:
            loop.close()


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


def _can_be_entered(context: Context) -> bool:
    try:
        context.run(int)
    except RuntimeError:  # it is entered already
        return False
    return True


class MemberLoop(asyncio.SelectorEventLoop):
    """asyncio's loop; what ``call_at_pass_end`` was given runs before it waits."""

    def __init__(self) -> None:
        self._is_of_asyncio = False
        """Whether asyncio makes this pass."""
        self._ending = _Ending(self)
        self.call_at_pass_end = self._ending.calls.append
        """Leaves a call to the end of this pass, in order; one that is made there to the next."""
        self.call_before_wait = self._ending.leave
        """Leaves a call to when the loop would wait, if it is not left there already."""
        super().__init__(self._ending)
        # Asked by each task, future and handle: without a call of a Python function.
        vars(self)["create_future"] = partial(asyncio.Future, loop=self)
        vars(self)["create_task"] = partial(asyncio.Task, loop=self)

    def set_debug(self, enabled: bool) -> None:
        """As asyncio's; whether it is set is asked by each task and future, of a function in C."""
        super().set_debug(enabled)
        vars(self)["get_debug"] = bool(enabled).__bool__

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
        handle: Any
        if context is not None and (
            type(callback) is _STEP
            or (type(callback) is BuiltinMethodType and type(callback.__self__) is asyncio.Task)
        ):
            handle = (context, callback, args)  # a task asks, which keeps no handle
        else:
            handle = asyncio.Handle(callback, args, self, context)
        loop._ready.append(handle)
        return handle  # type: ignore[no-any-return]

    def set_task_factory(self, factory: Any) -> None:
        """As asyncio's; tasks are made by ``factory`` from now on."""
        vars(self).pop("create_task", None)
        super().set_task_factory(factory)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's, whose timers are compared by a Python function."""
        loop: Any = self
        if loop._closed or loop._debug or when is None:  # which asyncio refuses
            return super().call_at(when, callback, *args, context=context)
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._ending.add_timer(when, timer)
        return timer

    def _run_once(self) -> None:
        """Is called for each pass: call all that is left from the last one, is ready, or is due."""
        loop: Any = self
        ready = loop._ready
        if loop._debug or loop._scheduled:
            self._with_handles()
            self._is_of_asyncio = True
            try:
                super()._run_once()  # type: ignore[misc]
            finally:
                self._is_of_asyncio = False
            return
        found = self._ending.select(0.0 if ready or loop._stopping else None)
        if found or self._ending.timers:
            self._process_events(found)
        handle: Any
        for _ in range(len(ready)):
            handle = ready.popleft()
            if type(handle) is tuple:
                context, callback, args = handle
            elif handle._cancelled:
                continue
            elif type(handle) not in _PLAIN:
                handle._run()  # it says itself what to look at first
                continue
            else:
                context, callback, args = handle._context, handle._callback, handle._args
            try:
                context.run(callback, *args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._report(self._handle_of(handle), context, error)
        # What they refer to may be freed while the loop waits.
        handle = context = callback = args = None

    def _report(self, handle: Any, context: Context, error: BaseException) -> None:
        said = {"message": f"Exception in callback {handle!r}", "exception": error}
        # From Python 3.12 on the handler of exceptions is called in the context of the handle.
        if _can_be_entered(context):
            said["handle"] = handle
        self.call_exception_handler(said)

    def _with_handles(self) -> None:
        """Give a handle to each call that was left without one: asyncio makes the pass."""
        loop: Any = self
        for at, each in enumerate(loop._ready):
            loop._ready[at] = self._handle_of(each)

    def _handle_of(self, left: Any) -> Any:
        """Return the handle of a call that was left without one."""
        if type(left) is not tuple:
            return left
        context, callback, args = left
        return asyncio.Handle(callback, args, self, context)

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """Is called by each timer that is cancelled."""
        loop: Any = super()
        loop._timer_handle_cancelled(timer)
        self._ending.cancelled += 1

    def _process_events(self, found: list[tuple[int, int]]) -> None:
        """Is called in each pass with what ``select`` has found: call what is ready, and due."""
        loop: Any = self
        ready, ending = loop._ready, self._ending
        for number, events in found:
            key = ending.key_of.get(number)
            if key is None:
                continue  # it was closed meanwhile
            reader, writer = key.data
            if events & _MAY_READ and reader is not None:
                if reader._cancelled:
                    loop._remove_reader(key.fileobj)
                else:
                    ready.append(reader)
            if events & _MAY_WRITE and writer is not None:
                if writer._cancelled:
                    loop._remove_writer(key.fileobj)
                else:
                    ready.append(writer)
        timers = ending.timers
        if timers:
            end = loop_seconds() + loop._clock_resolution
            while timers and timers[0][0] < end:
                ready.append(heappop(timers)[2])  # one that is cancelled is not called
        if self._is_of_asyncio:
            self._with_handles()  # of what was left at the end of the pass before

    def close(self) -> None:
        """As asyncio's; what was left to be called is forgotten."""
        super().close()
        self._ending.forget()

    def take_back(self, call: Call) -> None:
        """Do not run a call at the end of this pass: for nothing else it would not wait."""
        if call in self._ending.calls:
            self._ending.calls.remove(call)

    def seconds_to_wait(self) -> float:
        """Return how long nothing is due, by what asyncio itself looks at before it waits."""
        loop: Any = self
        if loop._ready or loop._stopping:
            return 0.0
        # Only timers that were set while the loop looked for mistakes are asyncio's.
        seconds = loop._scheduled[0].when() - loop.time() if loop._scheduled else _WAIT_S_MAX
        return max(0.0, min(seconds, self._ending.seconds_to_timer()))


_PLAIN = (asyncio.Handle, asyncio.TimerHandle)
_READ, _WRITE = 1, 4
"""EPOLLIN and EPOLLOUT."""
_MAY_READ, _MAY_WRITE = ~_WRITE, ~_READ
"""An error is for both."""
_EVENTS = (0, _READ, _WRITE, _READ | _WRITE)
"""By what ``selectors`` calls them."""


class _Ending(selectors.DefaultSelector):
    """Is asked by the loop between two passes."""

    def __init__(self, loop: MemberLoop) -> None:
        super().__init__()
        self._loop = loop
        self._asked_at = 0.0
        self.calls: list[Call] = []
        self._late: list[Call] = []
        self._late_since = 0.0
        known: Any = self
        self.key_of: dict[int, selectors.SelectorKey] = known._fd_to_key
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap: when, which comes first of the same time, and what is due then."""
        self._numbers = count()
        self.cancelled = 0
        """How many timers were cancelled since it was last looked for them."""

    def forget(self) -> None:
        """Call nothing any more."""
        self.timers.clear()
        self.calls.clear()
        self._late.clear()

    def add_timer(self, when: float, timer: asyncio.TimerHandle) -> None:
        """Let ``timer`` be called ``when`` the clock says so."""
        timers = self.timers
        if self.cancelled >= _CANCELLED_MIN and self.cancelled > len(timers) // 2:
            timers[:] = [each for each in timers if not each[2].cancelled()]
            heapify(timers)
            self.cancelled = 0
        heappush(timers, (when, next(self._numbers), timer))

    def leave(self, call: Call) -> None:
        """Keep ``call`` until the loop would wait, at most for ``LATE_MS`` and a pass."""
        if call not in self._late:
            if not self._late:
                self._late_since = loop_seconds()
            self._late.append(call)

    def seconds_to_timer(self) -> float:
        """Return how long no timer is due, at most ``_WAIT_S_MAX``."""
        timers = self.timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
            self.cancelled -= 1
        return min(timers[0][0] - loop_seconds(), _WAIT_S_MAX) if timers else _WAIT_S_MAX

    def select(self, timeout: float | None = None) -> list[Any]:
        """End the pass; return what is ready then, or after ``timeout``, as (number, events)."""
        if self.calls:
            self._run(self.calls)
            timeout = 0.0 if self.calls else self._loop.seconds_to_wait()
        elif timeout is None or timeout > 0.0:
            timers = self.timers
            if timers and not timers[0][2]._cancelled:
                left = min(timers[0][0] - loop_seconds(), _WAIT_S_MAX)
            else:
                left = self.seconds_to_timer()
            timeout = left if timeout is None or left < timeout else timeout
        if self._late and (timeout > 0.0 or self._is_late()):
            self._run(self._late)
            timeout = 0.0 if self.calls else self._loop.seconds_to_wait()
        if timeout <= 0.0 and loop_seconds() - self._asked_at < ASKED_MS / 1000:
            return []
        if _HAS_EPOLL:  # as selectors.EpollSelector does, which calls a function for each socket
            known: Any = self
            found: list[Any]
            seconds = ceil(timeout * 1e3) * 1e-3 if timeout > 0.0 else 0.0
            try:
                found = known._selector.poll(seconds, len(self.key_of) or 1)
            except InterruptedError:
                found = []
        else:
            found = self._ask_otherwise(timeout)
        self._asked_at = loop_seconds()
        return found

    def _ask_otherwise(self, timeout: float) -> list[Any]:
        return [(key.fd, _EVENTS[events]) for key, events in super().select(timeout)]

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
