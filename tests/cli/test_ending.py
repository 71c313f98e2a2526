"""Signals around the end of a command under a lock."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest

from coordinator.cli.connection import Settings
from coordinator.cli.holder import Holder, finished
from coordinator.cli.supervisor import Ended, Reason

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Give back what this process does at these signals, which is the tests' own."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
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
