"""Work that is done once in each interval, by whichever client comes first.

::

    job = Job(client, "daily-report", every="1d", at="02:00", tz="Europe/Berlin")
    job.run(lambda run: write_report(run.interval, token=run.fencing_token))     # on each host

    while job.wait(FOREVER):                       # or without a cron of one's own
        job.run(work)

1. Which interval it is, is decided by the leader's time, which is replicated (``leader_time``) and
   in each job never goes back. The clock of the caller decides nothing.
2. A run is recorded before the work ("started") and after it ("done", with its result), both in
   commands that depend on the job's lock. One client works at a time, with a growing token.
3. ``at_least_once``: a run that crashed or failed is repeated by the next call, up to
   ``attempts_max`` times; so work must allow for that. ``at_most_once``: it is not repeated; it is
   "lost": whether it was done is not known.
4. The first call runs the interval that it is in. Later ones make up for missed intervals by
   ``catch_up``: "last" runs the latest only, however late; "all" runs each, oldest first; "skip"
   runs none that was not started within ``grace`` seconds, and repeats one that failed.
5. What the work adds with ``run.also`` is done in the very command that says "done": once.
6. A scheduler calls at exactly its time, and its host's clock may be ahead of the leader's. So a
   call up to two seconds early waits: "nothing is due" would let that interval pass.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, overload

from coordinator.client import (
    AsyncClient,
    Client,
    ClientT,
    StoppedIteration,
    both,
    expect_function,
    limit_ms_of,
    returned,
    run_either,
    settled,
    within,
)
from coordinator.errors import CoordinatorError, LockTimeoutError
from coordinator.recipes.jobs.ledger import CatchUp, JobReply, JobRun, Policy, Run
from coordinator.recipes.jobs.ledger import Guarantee as Guarantee
from coordinator.recipes.jobs.schedule import Schedule
from coordinator.recipes.jobs.steps import EARLY_MS_MAX, Agenda, JobSteps, lock_name_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.functions import finishing
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import Timeout, wait_ms_of

_LOOK_S = 60.0
"""How often a wait asks for the time at least: clocks may be set."""
_BUSY_S = 5.0
"""How often it asks whether another client is still at what is due."""
_REST_S_MIN = 0.01
_TEXT_CHARACTERS_MAX = 200


class Job(Generic[ClientT]):
    """The job ``name``, and when its intervals begin.

    Args:
        every, at, tz, cron: see ``Schedule``.
        catch_up: "last", "all" or "skip", what to do about intervals that were not run in time.
        guarantee: "at_least_once" or "at_most_once".
        attempts_max: how often one interval is tried with ``at_least_once``; then it has failed.
        grace: seconds, with ``catch_up="skip"``.
        history: how many runs are remembered, 1 to 500.
        timeout: seconds to wait while another client works; 0 (the default) asks once.
        label: who runs it, as people see it; None: the label that ``connect`` was given, or else
            this host and process.

    Raises:
        BadArgumentsError: an argument is out of its range, or a word of the schedule is not valid.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        every: str | timedelta | None = None,
        at: str | None = None,
        tz: str | None = None,
        cron: str | None = None,
        catch_up: CatchUp = "last",
        guarantee: Guarantee = "at_least_once",
        attempts_max: int = 3,
        grace: float = 3_600.0,
        history: int = 30,
        timeout: Timeout = 0,
        label: str | None = None,
    ) -> None:
        self.client = client
        self.schedule = Schedule.of(every, at=at, tz=tz, cron=cron)
        self.policy = Policy(catch_up, guarantee, attempts_max, grace, history)
        by = client.core.settings.given_label if label is None else label
        if label is None and not by:
            by = f"{socket.gethostname()}:{os.getpid()}"
        self._by = by[:_TEXT_CHARACTERS_MAX]
        self._steps = JobSteps(client, name, self.schedule, self.policy, self._by)
        self.name = self._steps.name
        self._timeout = timeout
        wait_ms = wait_ms_of(timeout)
        self._is_patient = wait_ms is None or wait_ms >= _BUSY_S * 1000
        self._lock()  # refuses a bad timeout now

    @overload
    def run(self: Job[Client], work: Callable[[Run[Client]], Any]) -> JobReply: ...
    @overload
    def run(
        self: Job[AsyncClient], work: Callable[[Run[AsyncClient]], Awaitable[Any]]
    ) -> Coroutine[Any, Any, JobReply]: ...

    def run(self: Any, work: Callable[[Any], Any]) -> Any:
        """Do the work of each interval that is due; return the outcome.

        A call up to two seconds (or a tenth of the interval) before the next one waits for it.
        ``work(run)`` returns a JSON value; with an AsyncClient it may be a coroutine function.

        Raises:
            LockLostError: the lock was lost while the work ran; another client may repeat it.
            BadArgumentsError: the result could not be kept; the run is recorded as done. Or the
                work cannot be run; or it returned a coroutine or a generator, which has not run:
                that run has failed.
            UnavailableError, OutcomeUnknownError: no member answered; the next call goes on from
                what is recorded. Or the leader's clock is far ahead.
            All else that ``Lock.acquire`` raises, and what the work raises.
        """
        expect_function(self.client, "Job.run", work)
        return run_either(self.client, self._run(work))

    @both
    async def wait(self, timeout: Timeout) -> bool:
        """Wait until an interval is due; False when none was in time. 0 asks once.

        One that another client is at is not, until it dies; but with a ``timeout``, ``run`` waits.

        Raises:
            UnavailableError, OutcomeUnknownError: no member answered in time.
        """
        wait_ms, clock = wait_ms_of(timeout), self.client.core.clock
        ends_ms = None if wait_ms is None else clock.monotonic_ms() + wait_ms
        rest_s, before_ms = _REST_S_MIN, None
        while True:
            agenda, until_s = await self._steps.look(), _LOOK_S
            # The leader's time may stand still, at any moment before the next interval.
            rest_s = rest_s * 2 if agenda.now_ms == before_ms else _REST_S_MIN
            before_ms = agenda.now_ms
            if agenda.is_due:
                if self._is_patient or not await self._steps.is_under_way(agenda.ledger):
                    return True
                until_s = _BUSY_S
            elif agenda.next_ms is not None:
                until_s = (agenda.next_ms - agenda.now_ms) / 1000
            left_s = _LOOK_S if ends_ms is None else (ends_ms - clock.monotonic_ms()) / 1000
            if left_s <= 0:
                return False
            await asyncio.sleep(min(left_s, max(until_s, rest_s), _LOOK_S))

    # --- inside

    async def _run(self: Any, work: Callable[[Run[Any]], Any]) -> JobReply:
        agenda = await settled(self._look())
        if not agenda.is_due:
            return JobReply("done", (), agenda.next_ms, agenda.jump_ms)
        with ExitStack() as before_work:
            before_work.enter_context(within(self.client.clock, limit_ms_of(self._timeout)))
            reply: JobReply = await self._run_due(work, agenda, before_work)
            return reply

    async def _run_due(
        self: Any, work: Callable[[Run[Any]], Any], agenda: Agenda, before_work: ExitStack
    ) -> JobReply:
        runs: list[JobRun] = []
        has_begun = False
        try:
            async with finishing(self._lock(), is_recorded=True) as grant:
                has_begun = True
                agenda = await settled(self._begin(grant, agenda.jump_ms))
                before_work.close()
                for start_ms in agenda.plan.starts:
                    run = await settled(self._start(start_ms, agenda, grant))
                    if run is None:
                        continue
                    try:
                        result = await returned(self.client, work, run)
                    except StoppedIteration as stopped:
                        await settled(self._fail(run, stopped.stop))
                        raise
                    except Exception as error:
                        await settled(self._fail(run, error))
                        raise
                    runs.append(await settled(self._finish(run, result)))
        except LockTimeoutError:
            if has_begun:
                raise
            return JobReply("busy", jump_ms=agenda.jump_ms)
        return JobReply("ran" if runs else "done", tuple(runs), agenda.next_ms, agenda.jump_ms)

    def _lock(self) -> Lock[ClientT]:
        return Lock(self.client, lock_name_of(self.name), timeout=self._timeout, label=self._by)

    async def _looked(self) -> Agenda:
        core, agenda = self.client.core, await self._look_in_time()
        ends_ms = core.clock.monotonic_ms() + 2 * EARLY_MS_MAX  # the leader's time may stand still
        while (early_ms := agenda.early_ms) > 0 and core.clock.monotonic_ms() < ends_ms:
            await core.wait(early_ms)
            now = await self._look_in_time()
            agenda = replace(now, jump_ms=now.jump_ms or agenda.jump_ms)
        return agenda

    _look = both(_looked, has_own_time=True)

    async def _look_in_time(self) -> Agenda:
        core = self.client.core
        limit_ms = limit_ms_of(self._timeout) or core.settings.timeout_ms
        with within(core.clock, min(limit_ms, core.settings.timeout_ms)):
            return await self._steps.look()

    @both
    async def _begin(self, grant: Grant[Any], jump_ms: int) -> Agenda:
        return await self._steps.begin(grant, jump_ms)

    @both
    async def _start(self, start_ms: int, agenda: Agenda, grant: Grant[Any]) -> Run[Any] | None:
        return await self._steps.start(start_ms, agenda, grant)

    @both
    async def _finish(self, run: Run[Any], result: Any) -> JobRun:
        return await self._steps.finish(run, result)

    @both
    async def _fail(self, run: Run[Any], error: Exception) -> None:
        """Record it; if that fails too, the run stays "started", which is true."""
        try:
            await self._steps.fail(run, f"{type(error).__name__}: {error}")
        except CoordinatorError as also:
            error.add_note(f"the failed run could not be recorded: {also.message}")
