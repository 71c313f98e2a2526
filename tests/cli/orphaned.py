"""A guard that looks for orphans while one of them ends and leaves it another; prints what it sees.

Run as a program: it adopts what its children leave behind.
"""

from __future__ import annotations

import os
import signal
import socket

from coordinator.cli.watchdog import Watchdog, children_of_this_process
from coordinator.clock import SystemClock


def main() -> None:
    ours, _theirs = socket.socketpair()
    may_end, end = os.pipe()
    child = os.fork()
    if not child:
        if not os.fork():
            signal.pause()
        os.read(may_end, 1)
        os._exit(0)

    def children() -> list[int]:
        found = children_of_this_process()
        if found == [child]:
            os.write(end, b".")
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return found

    watchdog = Watchdog(ours, SystemClock(), children)
    for _ in range(2):
        living, are_all = watchdog.orphans()
        count = "one" if len(living) == 1 else "none"
        print(f"{count}, {'all of them' if are_all else 'perhaps not all'}")
    os.kill(living[0], signal.SIGKILL)


if __name__ == "__main__":
    main()
