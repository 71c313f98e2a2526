"""The overview of all jobs: the last run, the next, what is late, and what fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic
from urllib.parse import unquote

from coordinator.client import ClientT, answered, both, expect_function
from coordinator.errors import BadArgumentsError
from coordinator.recipes.base.maybe_there import drop, names_below, read
from coordinator.recipes.base.names import name_of, path_of
from coordinator.recipes.jobs.leader_time import LeaderClock
from coordinator.recipes.jobs.ledger import JobRun, Ledger, Policy
from coordinator.recipes.jobs.steps import NAME_CHARACTERS_MAX, ROOT, lock_name_of

_TOGETHER = 50


@dataclass(frozen=True, slots=True)
class JobView:
    """One job: the past when it is read. Times are the leader's, in ms since 1970, UTC."""

    name: str
    ledger: Ledger
    runs: tuple[JobRun, ...]
    """The remembered runs, the latest first."""
    now_ms: int
    due_ms: int | None
    """The start of the first interval that was not run; None if all are settled."""
    next_ms: int | None
    running: JobRun | None
    """The run that its holder is at."""
    behind_ms: int
    """How far the leader's time is behind one by which this job was decided. While it is, nothing
    is due: those intervals were run early."""

    @property
    def last(self) -> JobRun | None:
        """The latest run."""
        return self.runs[0] if self.runs else None

    @property
    def crashed(self) -> JobRun | None:
        """The run that was started, and whose holder is gone; it was not yet repeated."""
        last = self.last
        return last if last is not self.running and last and last.state == "started" else None

    @property
    def late_ms(self) -> int:
        """How long ago an interval began that does not run; 0 if there is none."""
        if self.due_ms is None or self.running is not None:
            return 0
        return max(0, self.now_ms - self.due_ms)

    @property
    def trouble(self) -> str:
        """The latest problem in one line: who failed, and why; "" if there is none."""
        last = self.last
        if self.crashed is not None:
            return f"{self.crashed.by} did not come to the end of {self.crashed.interval}"
        if last is None or last.state in ("started", "done"):
            return ""
        return f"{last.by}: {last.reason}" if last.state == "failed" else f"{last.by} was lost"


class Jobs(Generic[ClientT]):
    """All jobs of a cluster."""

    def __init__(self, client: ClientT) -> None:
        self.client = client

    @both
    async def list(
        self, on_unreadable: Callable[[str, BadArgumentsError], None] | None = None
    ) -> tuple[JobView, ...]:
        """Return all jobs, by name.

        ``on_unreadable(name, error)`` is called for each that is no ledger, and the others are
        returned: one client's mistake hides no job of another's.

        Raises:
            BadArgumentsError: a znode there is no ledger, and ``on_unreadable`` is not given.
            UnavailableError, OutcomeUnknownError: no member answered in time.
        """
        if on_unreadable is not None:
            expect_function(self.client, "on_unreadable", on_unreadable)
        names = [unquote(each) for each in await names_below(self.client.core, ROOT)]
        views: list[JobView | None] = []

        async def view(name: str) -> JobView | None:
            try:
                return await self._view(name)
            except BadArgumentsError as error:
                if on_unreadable is None:
                    raise
                await answered(self.client.core.own_loop, on_unreadable, name, error)
                return None

        for begin in range(0, len(names), _TOGETHER):
            views += await asyncio.gather(*map(view, names[begin : begin + _TOGETHER]))
        return tuple(each for each in views if each is not None)

    @both
    async def look(self, name: str | int) -> JobView | None:
        """Return one job, None if it never ran.

        Raises:
            BadArgumentsError: the znode is no ledger.
            UnavailableError, OutcomeUnknownError: no member answered in time.
        """
        return await self._view(name_of(name))

    @both
    async def forget(self, name: str | int) -> bool:
        """Remove the ledger, so that the next call runs the interval that it is in; False: none.

        For a job that is over, or whose time is wrong because a clock was far ahead.

        Raises:
            UnavailableError, OutcomeUnknownError: it was not removed; it may have been.
        """
        return await drop(self.client.core, self._path(name), recursive=True)

    def _path(self, name: str | int) -> str:
        return path_of(ROOT, name, characters_max=NAME_CHARACTERS_MAX)

    async def _view(self, name: str) -> JobView | None:
        core, path = self.client.core, self._path(name)
        time = await core.shared(LeaderClock).read(core)
        if (written := await read(core, path)) is None:
            return None
        ledger, runs = Ledger.of(path, written.data), []
        for each in sorted(await names_below(core, path), reverse=True):
            znode = await read(core, f"{path}/{each}")
            if znode is not None:  # not removed in the meantime
                runs.append(JobRun.of(znode.path, znode.data, znode.stat.mtime_ms))
        running = None
        if ledger.open_ms is not None and runs:
            holder = (await core.lock(lock_name_of(name))).holder
            token = None if holder is None else holder.fencing_token
            running = next((each for each in runs if each.fencing_token == token), None)
        now_ms = max(time.now_ms, ledger.time_ms)
        plan = ledger.plan(Policy(ledger.catch_up, ledger.guarantee), now_ms)
        return JobView(
            name,
            ledger,
            tuple(runs),
            now_ms,
            min(plan.starts, default=None),
            ledger.next_ms(now_ms),
            running,
            max(0, ledger.time_ms - time.now_ms),
        )
