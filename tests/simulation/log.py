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


QUEUES_OF_RIGHTS = ("/locks/r0", "/locks/r1")
"""Used by programs whose rights change: who has lost his is taken out of them by any command, and
a session ends by an ordinary close if its credential was revoked, with its lock-delays."""


def is_of_rights(path: str) -> bool:
    """Whether a contender or lock-delay may come and go by the rights of its identity."""
    return path.startswith(QUEUES_OF_RIGHTS)
