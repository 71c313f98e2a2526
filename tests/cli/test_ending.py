"""Signals around the end of a command under a lock."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any, cast

from coordinator.cli.connection import Settings
from coordinator.cli.holder import Holder, finished
from coordinator.cli.supervisor import Ended, Reason


def test_no_signal_changes_how_a_command_has_ended_or_what_programs_hear() -> None:
    """Neither one that comes while the event loop ends nor a later one; none stays blocked."""
    settings = cast(Settings, cast(Any, None))
    holder = Holder(settings, cast(Any, None))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def run() -> Ended:
        holder.ended = Ended(Reason.EXITED, 3)
        holder.keep_the_ending()
        signal.raise_signal(signal.SIGTERM)  # for this thread: others do not block it
        return holder.ended

    code = finished(settings, holder, run)
    signal.raise_signal(signal.SIGINT)

    assert code == 3
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


LATE = """
import os, signal, sys
from coordinator.cli.holder import Holder, finished
from coordinator.cli.supervisor import Ended, Reason

class Late:
    def __del__(self, kill=os.kill, own=os.getpid(), number=signal.SIGINT):
        kill(own, number)

late = Late()
holder = Holder(None, None)

def run():
    holder.ended = Ended(Reason.EXITED, 3)
    holder.keep_the_ending()
    return holder.ended

sys.exit(finished(None, holder, run))
"""


def test_no_signal_changes_the_exit_code_while_python_takes_down_its_modules() -> None:
    """It has given up its handlers by then: Ctrl-C once more made 3 a death by SIGINT."""
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (3, "")
