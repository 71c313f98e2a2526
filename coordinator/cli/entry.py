"""The beginning of the ``coordinator`` command, where Ctrl-C ends it quietly while it loads."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command line and run it; until it is loaded SIGINT just ends this process."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not if our parent has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from coordinator.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    run()
