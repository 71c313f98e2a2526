"""A function that runs once in each interval, whichever of its callers comes first.

::

    @once_per("daily-report", every="1d", at="02:00", tz="Europe/Berlin")
    def daily_report(run: Run) -> str:
        return write_report(run.interval, token=run.fencing_token)

    daily_report()          # on each host, as often as you like: None where nothing was to be done

It is ``Job.run`` with the decorated function as its work. With ``catch_up="all"`` the function may
be called for several intervals; the last result is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack, overload

from coordinator.client import AsyncClient, Client, settled
from coordinator.recipes.job import Job
from coordinator.recipes.jobs.ledger import CatchUp, Guarantee, Run
from coordinator.recipes.jobs.schedule import Schedule
from coordinator.recipes.locks.functions import bound, decorated
from coordinator.recipes.waits import Timeout

P = ParamSpec("P")
T = TypeVar("T")


class JobOptions(TypedDict, total=False):
    """The keyword arguments of ``Job``, which describes them."""

    every: str | timedelta | None
    at: str | None
    tz: str | None
    cron: str | None
    catch_up: CatchUp
    guarantee: Guarantee
    attempts_max: int
    grace: float
    history: int
    timeout: Timeout
    label: str | None


class once_per:
    """Decorate a function so that one call in each interval of the job ``name`` runs it.

    The function gets the run, with its interval and fencing token, as its first argument.

    Args:
        client: a Client for plain functions, an AsyncClient for coroutine functions. None
            connects to ``COORDINATOR_ENDPOINTS`` for each call, which suits scheduled tasks.
        options: those of ``Job``.

    Raises:
        BadArgumentsError: at once, for no valid schedule, and a function that cannot be run.
        LockLostError, UnavailableError, OutcomeUnknownError: at each call, as ``Job.run`` does.
    """

    def __init__(
        self,
        name: str | int,
        *,
        client: Client | AsyncClient | None = None,
        **options: Unpack[JobOptions],
    ) -> None:
        words = {what: options.get(what) for what in ("at", "tz", "cron")}
        Schedule.of(options.get("every"), **words)  # type: ignore[arg-type]
        self._name = name
        self._client = client
        self._options = options

    @overload
    def __call__(
        self, task: Callable[Concatenate[Run[AsyncClient], P], Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(self, task: Callable[Concatenate[Run[Client], P], T]) -> Callable[P, T | None]: ...

    def __call__(self, task: Callable[..., Any]) -> Callable[..., Any]:
        async def steps(client: Client | AsyncClient, name: Any, args: Any, kwargs: Any) -> Any:
            job: Job[Any] = Job(client, name, **self._options)
            reply = await settled(job.run(bound(task, args, kwargs)))
            return reply.result

        return decorated("once_per", task, self._client, lambda *_, **__: self._name, steps)
