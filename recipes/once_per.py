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

import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack, overload

from coordinator.client import AsyncClient, Client, connect, expect_client
from recipes.job import Job
from recipes.job_ledger import CatchUp, Guarantee
from recipes.job_run import Run
from recipes.options import Timeout
from recipes.schedule import Schedule

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
        BadArgumentsError: at once, for a schedule that is none.
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
        if inspect.iscoroutinefunction(task):
            return self._awaited(task)
        return self._plain(task)

    def _plain(self, task: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(task)
        def call(*args: Any, **kwargs: Any) -> Any:
            def work(run: Run[Client]) -> Any:
                return task(run, *args, **kwargs)

            if self._client is None:
                with connect() as client:
                    return Job(client, self._name, **self._options).run(work).result
            expect_client(self._client, Client, f"once_per({self._name!r})")
            assert isinstance(self._client, Client)
            return Job(self._client, self._name, **self._options).run(work).result

        return call

    def _awaited(self, task: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        @wraps(task)
        async def call(*args: Any, **kwargs: Any) -> Any:
            async def work(run: Run[AsyncClient]) -> Any:
                return await task(run, *args, **kwargs)

            if self._client is None:
                async with connect() as client:
                    return (await Job(client, self._name, **self._options).run(work)).result
            expect_client(self._client, AsyncClient, f"once_per({self._name!r})")
            assert isinstance(self._client, AsyncClient)
            return (await Job(self._client, self._name, **self._options).run(work)).result

        return call
