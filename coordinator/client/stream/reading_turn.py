"""The turn to read a connection: its thread's, or that of the only caller that waits.

A caller that reads its own answer is not woken for it: that saves two switches between threads for
each request of a program that sends one at a time.

1. The thread leaves the reading to callers when nothing was under way after each of several
   answers, and goes on when no caller has come for ``AWAY_S``, or one asks it to: at once if it
   may not read itself, as the main thread or one with a short deadline.
2. A caller reads if its request is the only one under way, and for a moment (``ALONE_MS``). If it
   has no answer then, or others wait, it asks the thread to go on.
3. The main thread never reads. A signal handler runs there between any two steps, also within a
   read, and may use the client itself: what it asks must be read while its caller stands still.
4. Who stops reading looks whether a request is under way, under the guard under which requests
   begin: so no answer is waited for that nobody reads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

ALONE_MS = 50
"""For how long a caller reads; the socket looks up as often."""
AWAY_S = 0.05
_GONE_S = 5.0
"""A caller that has read for so long was stopped, and does not say so any more."""
_ALONE_ANSWERS_MIN = 4


class ReadingTurn:
    """The turn of one connection; ``guard`` is held around ``waiting``, the requests under way."""

    def __init__(self, guard: threading.Lock, waiting: Mapping[int, object]) -> None:
        self._guard = guard
        self._waiting = waiting
        self._caller: object | None = None
        """Who reads in place of the thread."""
        self._callers = 0
        self._is_away = False
        """Whether the thread does not read."""
        self._alone = 0
        """After how many answers in a row, to callers that may read, nothing was under way."""
        self._is_over = False
        self._bell = threading.Lock()
        """Open when the thread is to look."""
        self._bell.acquire()

    # --- callers

    def begin(self, caller: object, may_read: bool) -> None:
        """Let ``caller`` read, whose request begins now, if it may and is the only one, else its
        thread, unless another caller reads; under the guard."""
        if not may_read:
            self._alone = 0
        if not self._is_away or self._caller is not None:
            return
        if may_read and not self._waiting:
            self._caller = caller
            self._callers += 1
        elif not self._is_over:
            self._is_away = False
            self._ring()

    def is_of(self, caller: object) -> bool:
        """Whether ``caller`` reads."""
        return self._caller is caller

    def end(self, caller: object) -> None:
        """Let ``caller`` read no more, if it does."""
        if self._caller is not caller:
            return
        with self._guard:
            self._caller = None
            if not self._waiting and not self._is_over:
                return
            self._is_away = False
        self._ring()

    # --- the thread

    def may_leave(self) -> bool:
        """Count an answer; return whether the reading should be left to callers now."""
        self._alone = 0 if self._waiting else self._alone + 1
        return self._alone >= _ALONE_ANSWERS_MIN

    def leave(self) -> bool:
        """Leave the reading to callers; False if a request has begun meanwhile."""
        with self._guard:
            self._is_away = not self._waiting and not self._is_over
        return self._is_away

    def wait(self) -> bool:
        """Wait until the thread is to read; False if a caller that reads does not come back."""
        quiet_s = 0.0
        while self._is_away:
            callers = self._callers
            if self._bell.acquire(timeout=AWAY_S):
                continue
            with self._guard:
                quiet_s = quiet_s + AWAY_S if callers == self._callers else 0.0
                if quiet_s and self._caller is None:
                    self._is_away = False
            if quiet_s >= _GONE_S:
                return False
        self._alone = 0
        return True

    def stop(self) -> None:
        """Let nobody read any more: the connection has ended."""
        with self._guard:
            self._is_over, self._is_away = True, False
        self._ring()

    def wait_for_caller(self, limit_s: float) -> None:
        """Wait until no caller reads, after ``stop``."""
        while self._caller is not None and self._bell.acquire(timeout=limit_s):
            pass

    def _ring(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            pass  # it is open already
