"""One run of a job under way, as its work gets it, and the call's reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal

from coordinator.client import ClientT, Operation
from coordinator.recipes.grant import Grant
from coordinator.recipes.job_ledger import JobRun, Ledger, time_text


@dataclass(slots=True, eq=False)
class Run(Generic[ClientT]):
    """A run that was started: the work's argument.

    ``attempt`` above 1: an earlier attempt failed, or did not come to its end. ``grant`` is that of
    the job's lock: pass its token with writes to other stores, and ``if_held=run.grant`` with
    writes to this one; ``run.grant.previous`` has the note that the holder before left.
    """

    job: str
    start_ms: int
    end_ms: int | None
    """The start of the next interval."""
    attempt: int
    grant: Grant[ClientT]
    ledger: Ledger
    """The ledger when the run began; for the recipe."""
    record: JobRun
    """What is written of the run so far; for the recipe."""
    operations: list[Operation] = field(default_factory=list)

    @property
    def fencing_token(self) -> int:
        """Grows with each run: pass it to a guard, so that a run that wakes late is refused."""
        return self.grant.fencing_token

    @property
    def interval(self) -> str:
        """The start of the interval as a text: ``2026-03-29T00:00:00Z``."""
        return time_text(self.start_ms)

    @property
    def key(self) -> str:
        """A name for this job and interval, the same in each attempt: for a store that knows keys.

        With it, at least once becomes once."""
        return f"{self.job}/{self.interval}"

    def also(self, *operations: Operation) -> None:
        """Do these in the one command that records the run as done: all of it, or nothing."""
        self.operations += operations


@dataclass(frozen=True, slots=True)
class JobReply:
    """The result of a call of ``run``.

    ``ran``: this call ran what is in ``runs``. ``done``: nothing was due. ``busy``: another client
    is at it. ``next_ms`` is when the next interval begins, None if never, or not known (``busy``).
    ``jump_ms``: how far the leader's time jumped since this client read it before.
    """

    state: Literal["ran", "done", "busy"]
    runs: tuple[JobRun, ...] = ()
    next_ms: int | None = None
    jump_ms: int = 0

    @property
    def result(self) -> Any:
        """What the last run of this call returned, None if there was none."""
        return self.runs[-1].result if self.runs else None
