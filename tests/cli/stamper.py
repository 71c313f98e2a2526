"""A command for the supervisor's tests: says every few ms that it still runs.

    python stamper.py DIRECTORY [ignore-term] [child] [detached-child] [leave]

Each process writes the last moment at which it ran, in monotonic ms, into DIRECTORY/<pid>.
``ignore-term`` lets it ignore SIGTERM and SIGINT, ``child`` starts another one in the same group,
``detached-child`` one in a session of its own whose parent has ended; ``leave`` lets the first
process end while its children go on. A signal it does not ignore is noted in DIRECTORY/signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from coordinator.clock import SystemClock


def main() -> None:
    directory = Path(sys.argv[1])
    wishes = set(sys.argv[2:])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        if "ignore-term" in wishes and number != signal.SIGUSR1:
            signal.signal(number, signal.SIG_IGN)
        else:
            signal.signal(number, lambda number, _: note(directory, number))
    passed_on = ["ignore-term"] if "ignore-term" in wishes else []
    if "child" in wishes:
        subprocess.Popen([sys.executable, __file__, str(directory), *passed_on])
    if "detached-child" in wishes:
        subprocess.Popen([sys.executable, __file__, str(directory), "detach", *passed_on])
    if "detach" in wishes:
        if os.fork():
            os._exit(0)
        os.setsid()
    path = directory / str(os.getpid())
    if "leave" in wishes:
        while len([entry for entry in directory.iterdir() if entry.name.isdigit()]) < 2:
            time.sleep(0.005)
        sys.exit(5)
    clock = SystemClock()
    while True:
        temporary = path.with_suffix(".new")
        temporary.write_text(str(clock.monotonic_ms()))
        temporary.rename(path)
        time.sleep(0.005)


def note(directory: Path, number: int) -> None:
    with (directory / "signals").open("a") as file:
        file.write(f"{os.getpid()} {number}\n")
    if number != signal.SIGUSR1:
        sys.exit(0)


main()
