"""Stopping a call between any two lines of the guard's code, as a pause of its process would.

A trace function counts the lines of the guard's own code that a call executes, and stops the thread
(or ends the process) before one of them. Lines of the standard library and of installed packages
are not counted: what one of them does in the store is one step.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_HERE = str(Path(__file__).parent)
_NOT_THE_GUARDS = tuple(
    str(Path(sysconfig.get_path(name))) + os.sep for name in ("stdlib", "purelib", "platlib")
)


class OwnCode:
    """Which code is the guard's own: that of ``packages``, by default all outside the libraries."""

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        self._packages = tuple(packages)
        self._known: dict[str, bool] = {}

    def __contains__(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        known = self._known.get(file)
        if known is None:
            known = self._known[file] = self._decide(file, frame.f_globals.get("__name__", ""))
        return known

    def _decide(self, file: str, module: str) -> bool:
        if file.startswith((_HERE, "<")):
            return False
        if self._packages:
            return any(module == each or module.startswith(each + ".") for each in self._packages)
        return not file.startswith(_NOT_THE_GUARDS)


Tracer = Callable[[FrameType, str, Any], Any]


def at_line(own: OwnCode, number: int, act: Callable[[], None]) -> Tracer:
    """Return a trace function that calls ``act`` before the ``number``-th line of own code."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame not in own:
            return trace if event == "call" else None
        if event == "line":
            seen += 1
            if seen == number:
                act()
        return trace

    return trace


def count_lines(own: OwnCode, work: Callable[[], object]) -> int:
    """Do ``work`` and return how many lines of own code it executed."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame not in own:
            return trace if event == "call" else None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


class ThreadCall:
    """A call in a thread of its own; ``error`` is what it raised, None if it returned."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._tracer: Tracer | None = None
        self._is_over = threading.Event()
        self._has_stopped = threading.Event()
        """Paused, or over."""
        self._may_go_on = threading.Event()
        self.error: Exception | None = None
        self.is_paused = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, own: OwnCode | None = None, pause_at: int = 0) -> ThreadCall:
        """Begin; with ``pause_at`` stop before that line of ``own`` code."""
        if own is not None and pause_at:
            self._tracer = at_line(own, pause_at, self._pause)
        self._thread.start()
        return self

    def wait_stopped(self, timeout_s: float) -> bool:
        """Wait until it is paused or over."""
        return self._has_stopped.wait(timeout_s)

    def wait_over(self, timeout_s: float) -> bool:
        """Wait until the call has returned or raised; False if it did not in time."""
        return self._is_over.wait(timeout_s)

    def go_on(self) -> None:
        """Let the stopped call go on."""
        self.is_paused = False
        self._may_go_on.set()

    def _pause(self) -> None:
        self.is_paused = True
        self._has_stopped.set()
        self._may_go_on.wait()

    def _run(self) -> None:
        sys.settrace(self._tracer)
        try:
            self._work()
        except Exception as error:
            self.error = error
        finally:
            sys.settrace(None)
            self._is_over.set()
            self._has_stopped.set()


def crash_at(own: OwnCode, number: int, work: Callable[[], object], timeout_s: float) -> bool:
    """Run ``work`` in a forked process that dies before the ``number``-th line of own code.

    Returns whether it died there; False when the work was over before. A child that hangs is
    killed, which is a crash as well.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: see above
        child = os.fork()
    if child == 0:
        status = 0
        try:
            sys.settrace(at_line(own, number, lambda: os._exit(1)))
            work()
        except BaseException:
            status = 2
        finally:
            os._exit(status)
    return _status_of(child, timeout_s) not in (0, 2)


def _status_of(child: int, timeout_s: float) -> int:
    statuses: list[int] = []
    waiter = threading.Thread(target=lambda: statuses.append(os.waitpid(child, 0)[1]), daemon=True)
    waiter.start()
    waiter.join(timeout_s)
    if not statuses:
        os.kill(child, 9)
        waiter.join()
    return os.waitstatus_to_exitcode(statuses[0])
