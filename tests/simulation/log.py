"""The order of the server: entries of the one log, as the first member to apply them made them."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome

CLOCK_RATE_LEAST = 0.985
"""How much of a timeout passes at the least while a clock 1 % fast counts it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of the log with what it came to. ``at_s``: when it was first applied."""

    index: int
    part: int
    term: int
    payload: bytes
    command: Command
    outcome: Outcome
    at_s: float
