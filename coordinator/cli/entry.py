"""The beginning of the ``coordinator`` command, where Ctrl-C ends it quietly while it loads."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command line and run it; until it is loaded SIGINT just ends this process.

    What is loaded stays, so the collector does not look at it, now or later."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not if our parent has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import gc

    gc.disable()
    from coordinator.cli.main import main as run

    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, handler)
    run()
