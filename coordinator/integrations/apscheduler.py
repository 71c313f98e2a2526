"""APScheduler's executor that runs each job's time on one of many replicas.

::

    scheduler = BackgroundScheduler(executors={"default": OnceExecutor(connect())}, timezone="UTC")
    scheduler.add_job(write_report, "cron", hour=2, id="report")

1. Every replica has the schedule and fires. The first one runs the job, the others do nothing:
   each time of each job has a record of ``Once``, under the job's id and the scheduled time.
2. At most once: a run that was begun is begun by no other replica, also if it fails or its replica
   dies. For jobs that are to be caught up there are ``once_per`` and ``Jobs``.
3. The replicas need the same ids, so a job has an ``id=`` of its own, and the same times: ``cron``
   and ``date`` triggers, or ``interval`` with a ``start_date``.
4. ``current_attempt().fencing_token`` is for the stores that the job writes to.
5. It is of APScheduler 3. Version 4 has no release that is not an alpha.
"""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from coordinator.client import Client, expect_client, expect_function, expect_result
from coordinator.errors import BadArgumentsError, LockTimeoutError, OutcomeUnknownError
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.once import KEEP_S_DEFAULT, Attempt, Once

try:
    from apscheduler.executors.base import run_job
    from apscheduler.executors.pool import ThreadPoolExecutor
except ImportError as error:
    raise missing_extra("apscheduler", "apscheduler") from error

_DRAWN_ID = re.compile("[0-9a-f]{32}")
"""What APScheduler draws for a job without an id."""

_log = logging.getLogger(__name__)
_current: ContextVar[Attempt | None] = ContextVar("coordinator_attempt", default=None)


def current_attempt() -> Attempt:
    """Return the attempt of the job that runs in this thread: its key and fencing token.

    Raises:
        BadArgumentsError: no job of an OnceExecutor runs here.
    """
    attempt = _current.get()
    if attempt is None:
        raise BadArgumentsError("current_attempt: expected a job of an OnceExecutor, found none")
    return attempt


class OnceExecutor(ThreadPoolExecutor):
    """Runs each scheduled time of a job once, in one of the replicas that have this executor.

    Args:
        client: a Client; the pool's threads share it.
        name: of this schedule, if several applications share the cluster.
        keep: for how many seconds it is remembered that a time was run, longer than the replicas'
            clocks differ and their ``misfire_grace_time``.
        max_workers: how many jobs run at once in this replica.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str = "default",
        keep: float = KEEP_S_DEFAULT,
        max_workers: int = 10,
    ) -> None:
        expect_client(client, Client, "OnceExecutor")
        self._once = Once(client, timeout=0, keep=keep, when_interrupted="raise")
        self._name = name
        super().__init__(max_workers)

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        if _DRAWN_ID.fullmatch(job.id):
            raise BadArgumentsError(
                f"{job.name}: expected a job with id='...', by which the replicas know it as the "
                f"same; found one with an id that APScheduler drew"
            )
        expect_function(self._once.client, job.id, job.func)
        future = self._pool.submit(self._run, job, run_times)

        def on_end(ended: Any) -> None:
            failure = ended.exception()
            if failure is None:
                self._run_job_success(job.id, ended.result())
            else:
                self._run_job_error(job.id, failure, failure.__traceback__)

        future.add_done_callback(on_end)

    def _run(self, job: Any, run_times: list[datetime]) -> list[Any]:
        """Return the events of these times, as APScheduler's own function makes them."""
        events: list[Any] = []
        for time in run_times:
            at_this_time = SimpleNamespace(
                id=job.id,
                misfire_grace_time=job.misfire_grace_time,
                func=self._run_once,
                args=(job, time),
                kwargs={},
            )
            events += run_job(at_this_time, job._jobstore_alias, [time], self._logger.name)
        return events

    def _run_once(self, job: Any, time: datetime) -> Any:
        key = f"{self._name}:{job.id}:{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"
        result, has_begun = None, False

        def work(attempt: Attempt) -> None:
            nonlocal result, has_begun
            has_begun = True
            before = _current.set(attempt)
            try:
                result = job.func(*job.args, **job.kwargs)
                expect_result(job.func, result)
            finally:
                _current.reset(before)

        try:
            self._once.run(f"apscheduler:{key}", work)
        except (LockTimeoutError, OutcomeUnknownError) as error:
            is_elsewhere = isinstance(error, LockTimeoutError) or "attempt" in error.fields
            if has_begun or not is_elsewhere:  # the job's own error
                raise
            _log.info("%s: not run here, another replica began it", key)
        return result
