"""The steps of a job's run, each one command that depends on the job's lock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from coordinator.client import (
    AnyClientT,
    AsyncClient,
    Create,
    Delete,
    MultiReply,
    Operation,
    SetData,
)
from coordinator.errors import BadArgumentsError, DataTooLargeError, RequestError
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.base.names import name_of, path_of
from coordinator.recipes.jobs.leader_time import LeaderClock, refuse_far_ahead
from coordinator.recipes.jobs.ledger import JobRun, Ledger, Plan, Policy, Run
from coordinator.recipes.jobs.schedule import Schedule
from coordinator.recipes.locks.grant import Grant

ROOT = "/schedules/jobs"
NAME_CHARACTERS_MAX = 150
EARLY_MS_MAX = 2_000
_REASON_CHARACTERS_MAX = 500
_REMOVED_MAX = 50
"""Old runs that one command removes."""


def lock_name_of(job: str) -> str:
    """Return the name of the lock that the worker of ``job`` holds."""
    return f"job:{job}"


@dataclass(frozen=True, slots=True)
class Agenda:
    """What is due at ``now_ms``, the accepted time of the leader, by the ledger that was read."""

    ledger: Ledger
    is_there: bool
    now_ms: int
    jump_ms: int
    plan: Plan

    @property
    def is_due(self) -> bool:
        """Whether there is anything to run, or to write."""
        return bool(self.plan.starts or self.plan.skipped)

    @property
    def next_ms(self) -> int | None:
        """When the next interval begins that is not yet in the plan."""
        return self.ledger.next_ms(self.now_ms)

    @property
    def early_ms(self) -> int:
        """For how long to wait until the next interval, which its caller has come for; 0: not.

        Of a scheduler whose clock is a little ahead of the leader's: by up to ``EARLY_MS_MAX``, or
        a tenth of the interval."""
        next_ms = None if self.is_due else self.next_ms
        if next_ms is None:
            return 0
        length_ms = next_ms - self.ledger.schedule.latest(self.now_ms)
        left_ms = next_ms - self.now_ms
        return left_ms if left_ms <= min(EARLY_MS_MAX, length_ms // 10) else 0


class JobSteps:
    """Reads and writes the ledger of the job ``name``."""

    def __init__(
        self, client: Any, name: str | int, schedule: Schedule, policy: Policy, by: str
    ) -> None:
        self.name = name_of(name)
        self._client = client
        self._schedule = schedule
        self._policy = policy
        self._by = by
        self._path = path_of(ROOT, name, characters_max=NAME_CHARACTERS_MAX)

    async def look(self) -> Agenda:
        """Ask for the time and the ledger; return what is due.

        Raises:
            UnavailableError: no member answered; or the leader's clock is far ahead.
            BadArgumentsError: the znode is no ledger.
        """
        core = self._client.core
        time = await core.shared(LeaderClock).read(core)
        ledger, is_there = await self._read()
        now_ms = max(time.now_ms, ledger.time_ms)
        jump_ms = time.jump_ms or min(0, time.now_ms - ledger.time_ms)
        agenda = Agenda(ledger, is_there, now_ms, jump_ms, ledger.plan(self._policy, now_ms))
        if agenda.is_due:
            refuse_far_ahead(core, now_ms, ledger.time_ms)
        return agenda

    async def is_under_way(self, ledger: Ledger) -> bool:
        """Whether a run has begun whose client is still there.

        Raises:
            UnavailableError: no member answered in time.
        """
        if ledger.open_ms is None:
            return False
        view = await self._client.core.lock(lock_name_of(self.name))
        return view.holder is not None

    async def begin(self, grant: Grant[Any], jump_ms: int) -> Agenda:
        """Look again, now that the lock is held; settle what is skipped, and what was lost.

        ``jump_ms`` is what the look before noticed, which this one cannot notice again."""
        agenda = await self.look()
        agenda = replace(agenda, jump_ms=agenda.jump_ms or jump_ms)
        plan, ledger = agenda.plan, agenda.ledger.at(agenda.now_ms)
        operations: list[Operation] = []
        if ledger.open_ms is not None and ledger.open_ms not in plan.starts:
            run = await self._run_of(ledger.open_ms)
            if run is not None and run.state == "started":
                lost = replace(run, state="lost", reason="its process did not come to its end")
                operations.append(SetData(self._run_path(run.start_ms), lost.to_bytes()))
            ledger = replace(ledger, open_ms=None, failures=ledger.failures + 1)
        ledger = ledger.without(plan, plan.starts[0] if plan.starts else None)
        if agenda.jump_ms:
            ledger = replace(
                ledger,
                jumps=ledger.jumps + 1,
                jump_at_ms=agenda.now_ms,
                jump_by_ms=agenda.jump_ms,
            )
        if operations or ledger != agenda.ledger.at(agenda.now_ms):
            await self._write(agenda.is_there, ledger, operations, grant)
            agenda = replace(agenda, is_there=True)
        return replace(agenda, ledger=ledger)

    async def start(
        self, start_ms: int, agenda: Agenda, grant: Grant[AnyClientT]
    ) -> Run[AnyClientT] | None:
        """Record that a run of the interval begins; None: it was tried often enough."""
        ledger, is_there = await self._read()
        ledger = ledger.at(agenda.now_ms)
        before, path = await self._run_of(start_ms), self._run_path(start_ms)
        attempt = 1 if before is None else before.attempt + 1
        if before is not None and before.state == "started":
            ledger = replace(ledger, failures=ledger.failures + 1)
        attempts_max = 1 if self._policy.is_at_most_once else self._policy.attempts_max
        if before is not None and attempt > attempts_max:
            if before.state == "started":
                before = replace(before, state="lost", reason="no attempt came to its end")
            ledger = replace(ledger, settled_ms=start_ms, open_ms=None)
            await self._write(is_there, ledger, [SetData(path, before.to_bytes())], grant)
            return None
        settled_ms = start_ms if self._policy.is_at_most_once else start_ms - 1
        ledger = replace(ledger, settled_ms=settled_ms, open_ms=start_ms, failed_ms=None)
        token = grant.fencing_token
        record = JobRun(start_ms, "started", attempt, token, self._by, agenda.now_ms)
        data_of_run = record.to_bytes()
        operations: list[Operation] = [SetData(path, data_of_run)]
        if before is None:
            old = await self._too_old() if is_there else []
            operations = [Create(path, data_of_run), *old]
        await self._write(is_there, ledger, operations, grant)
        end_ms = self._schedule.next(start_ms)
        return Run(self.name, start_ms, end_ms, attempt, grant, ledger, record)

    async def finish(self, run: Run[Any], result: Any) -> JobRun:
        """Record that the run is done, with what it asked to be done along with it.

        Raises:
            BadArgumentsError: it is recorded as done, but its result could not be kept.
            RequestError: what should be done along with it was refused; the run has failed.
        """
        ledger = replace(run.ledger, settled_ms=run.start_ms, open_ms=None, failures=0)
        done = replace(run.record, state="done", result=result)
        others = run.operations
        try:
            return await self._end(done, ledger, others, run.grant)
        except (TypeError, ValueError, RecursionError, DataTooLargeError) as error:
            try:
                await self._end(replace(done, result=None), ledger, others, run.grant)
            except RequestError as also:  # it was not the result
                await self.fail(run, f"{type(also).__name__}: {also.message}")
                raise
            raise BadArgumentsError(
                f"{run.key}: the work was done, and is recorded as done without its result, which "
                f"could not be kept: {error}"
            ) from error
        except RequestError as error:  # of what is done along with it
            await self.fail(run, f"{type(error).__name__}: {error.message}")
            raise

    async def fail(self, run: Run[Any], reason: str) -> None:
        """Record that the run failed, and why."""
        is_last = self._policy.is_at_most_once or run.attempt >= self._policy.attempts_max
        ledger = replace(
            run.ledger,
            settled_ms=run.start_ms if is_last else run.start_ms - 1,
            open_ms=None,
            failed_ms=None if is_last else run.start_ms,
            failures=run.ledger.failures + 1,
        )
        failed = replace(run.record, state="failed", reason=reason[:_REASON_CHARACTERS_MAX])
        await self._end(failed, ledger, [], run.grant)

    # --- inside

    def _run_path(self, start_ms: int) -> str:
        return f"{self._path}/{start_ms:015d}"

    async def _read(self) -> tuple[Ledger, bool]:
        """Return the ledger as this client's job wants it, and whether there is one."""
        znode = await read(self._client.core, self._path)
        ledger = Ledger(self._schedule) if znode is None else Ledger.of(self._path, znode.data)
        catch_up, guarantee = self._policy.catch_up, self._policy.guarantee
        wanted = replace(ledger, schedule=self._schedule, catch_up=catch_up, guarantee=guarantee)
        return wanted, znode is not None

    async def _run_of(self, start_ms: int) -> JobRun | None:
        znode = await read(self._client.core, self._run_path(start_ms))
        if znode is None:
            return None
        return JobRun.of(znode.path, znode.data, znode.stat.mtime_ms)

    async def _write(
        self, is_there: bool, ledger: Ledger, others: list[Operation], grant: Grant[Any]
    ) -> MultiReply:
        data = ledger.to_bytes()
        first: Operation = SetData(self._path, data)
        if not is_there:
            first = Create(self._path, data, parents="persistent")
        core: AsyncClient = self._client.core
        return await core.multi([first, *others], if_held=grant)

    async def _end(
        self, run: JobRun, ledger: Ledger, others: list[Operation], grant: Grant[Any]
    ) -> JobRun:
        record = SetData(self._run_path(run.start_ms), run.to_bytes())
        reply = await self._write(True, ledger, [record, *others], grant)
        stat = reply.results[1].stat
        return run if stat is None else replace(run, ended_ms=stat.mtime_ms)

    async def _too_old(self) -> list[Operation]:
        """Return what removes the oldest runs, so that there is room for one more."""
        names = (await self._client.core.children(self._path)).names
        old = sorted(names)[: max(0, len(names) + 1 - self._policy.history)]
        return [Delete(f"{self._path}/{name}") for name in old[:_REMOVED_MAX]]
