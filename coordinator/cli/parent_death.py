"""Two promises of the Linux kernel about parents and children; both do nothing elsewhere.

``die_with_parent`` holds for direct children only and until they execute a set-uid program;
``adopt_orphans`` makes this process the parent of whatever its descendants leave behind
(prctl(2), PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded here and not between fork and exec, where loading a library could hang.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def dying_with_parent(
    signal_number: int = signal.SIGKILL, *, hearing: signal.Signals | None = None
) -> Callable[[], None]:
    """Return a function for a new child to call before it executes its program.

    From then on the kernel sends the child ``signal_number`` when the thread that started it
    ends, however it ends. The signal ``hearing`` has its default effect on the child, even where
    nohup has it ignored: a shell could not trap it otherwise (POSIX, the trap utility)."""
    parent_id = os.getpid()

    def arrange() -> None:
        if hearing is not None:
            signal.signal(hearing, signal.SIG_DFL)
        if _libc is None:
            return
        _libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent_id:  # it died before the arrangement was made
            os._exit(128 + signal_number)

    return arrange


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends; says whether that worked."""
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
