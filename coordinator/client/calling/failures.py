"""The failures of a call that is tried again, and the error that they come to."""

from __future__ import annotations

from coordinator.errors import (
    CoordinatorError,
    NoLeaderError,
    OutcomeUnknownError,
    UnavailableError,
)


class CallFailures:
    """What has gone wrong so far in one call; decides what is raised in the end."""

    __slots__ = ("began_ms", "count", "is_nobody_there", "refused", "unknown")

    def __init__(self) -> None:
        self.count = 0
        self.began_ms: int | None = None
        """When the first failure was looked at, for a first contact."""
        self.is_nobody_there = True
        """Whether no member was there, each time."""
        self.unknown: OutcomeUnknownError | None = None
        self.refused: UnavailableError | None = None

    def note(self, error: UnavailableError | OutcomeUnknownError) -> None:
        """Count a failed attempt, and keep what says most."""
        self.count += 1
        self.is_nobody_there = self.is_nobody_there and "is_nobody_there" in error.fields
        if isinstance(error, OutcomeUnknownError):
            self.unknown = error
        elif self.refused is None or not isinstance(self.refused, NoLeaderError):
            self.refused = error  # what a member said says more than a closed port

    def verdict(self, *, is_write: bool) -> CoordinatorError:
        """Return what to raise when there is no time for another attempt."""
        if self.unknown is not None and is_write:
            return self.unknown
        if self.refused is not None:
            return self.refused
        error = UnavailableError(
            "no member answered before the deadline, and nothing was changed: look at the "
            "endpoints, and whether members run"
        )
        error.__cause__ = self.unknown
        return error
