"""Run a function under a lock: as a helper, and as a decorator.

::

    execute_exclusive(client, "search-index", lambda grant: rebuild(token=grant.fencing_token))

    @exclusive("search-index", timeout=0)
    def rebuild_index(grant: Grant, shard: int) -> None: ...

    rebuild_index(7)

**One at a time, not once.** Calls that come one after the other all run: three replicas that are
started by their schedulers at midnight, each a little later than the other, run it three times,
with ``timeout=0``, too. Once a day is ``Once`` with the day in its key (``recipes.once``).

The function is given the grant, with its fencing token, as its first argument. If the lock is not
acquired in time LockTimeoutError is raised and the function does not run. What the function raises
itself comes through unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from coordinator.client import AsyncClient, Client, connect, expect_client
from recipes.grant import Grant
from recipes.lock import Lock
from recipes.options import LockOptions

P = ParamSpec("P")
T = TypeVar("T")


@overload
def execute_exclusive(
    client: Client,
    key: str,
    task: Callable[[Grant[Client]], T],
    **options: Unpack[LockOptions],
) -> T: ...
@overload
def execute_exclusive(
    client: AsyncClient,
    key: str,
    task: Callable[[Grant[AsyncClient]], Awaitable[T]],
    **options: Unpack[LockOptions],
) -> Coroutine[Any, Any, T]: ...


def execute_exclusive(
    client: Client | AsyncClient,
    key: str,
    task: Callable[[Any], Any],
    **options: Unpack[LockOptions],
) -> Any:
    """Return what ``task(grant)`` returns, run while the lock ``key`` is held.

    With an AsyncClient the task is a coroutine function, and the call is awaited. The options are
    those of ``Lock``.

    Raises:
        LockTimeoutError: the lock was not acquired in time; the task did not run.
        LockLostError: the lock was lost while the task ran.
        All else that ``Lock.acquire`` raises, and what the task raises.
    """
    if isinstance(client, Client):
        with Lock(client, key, **options) as grant:
            return task(grant)
    return _execute(client, key, task, options)


async def _execute(
    client: AsyncClient,
    key: str,
    task: Callable[[Grant[AsyncClient]], Awaitable[T]],
    options: LockOptions,
) -> T:
    async with Lock(client, key, **options) as grant:
        return await task(grant)


class exclusive:
    """Decorate a function so that each call runs under the lock ``key``: one at a time.

    Not once: a call that comes when the one before has ended runs as well. For what is to be done
    once a period there is ``Once``, with the period in its key.

    Args:
        key: the lock's name.
        client: a Client for plain functions, an AsyncClient for coroutine functions. None
            connects to ``COORDINATOR_ENDPOINTS`` for each call, which suits scheduled tasks.
        options: those of ``Lock``; the label is the function's name unless said otherwise.

    Raises:
        LockTimeoutError, LockLostError: at each call, as ``execute_exclusive`` does.
    """

    def __init__(
        self,
        key: str,
        *,
        client: Client | AsyncClient | None = None,
        **options: Unpack[LockOptions],
    ) -> None:
        self._key = key
        self._client = client
        self._options = options

    @overload
    def __call__(
        self, task: Callable[Concatenate[Grant[AsyncClient], P], Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, task: Callable[Concatenate[Grant[Client], P], T]) -> Callable[P, T]: ...

    def __call__(self, task: Callable[..., Any]) -> Callable[..., Any]:
        label = getattr(task, "__name__", "")[:200]
        options: LockOptions = {"label": label, **self._options}
        decorate = self._awaited if inspect.iscoroutinefunction(task) else self._plain
        return decorate(task, options)

    def _plain(self, task: Callable[..., T], options: LockOptions) -> Callable[..., T]:
        @wraps(task)
        def call(*args: Any, **kwargs: Any) -> T:
            def run(grant: Grant[Client]) -> T:
                return task(grant, *args, **kwargs)

            if self._client is None:
                with connect() as client:
                    return execute_exclusive(client, self._key, run, **options)
            expect_client(self._client, Client, f"exclusive({self._key!r})")
            assert isinstance(self._client, Client)
            return execute_exclusive(self._client, self._key, run, **options)

        return call

    def _awaited(self, task: Callable[..., Coroutine[Any, Any, T]], options: LockOptions) -> Any:
        @wraps(task)
        async def call(*args: Any, **kwargs: Any) -> T:
            def run(grant: Grant[AsyncClient]) -> Coroutine[Any, Any, T]:
                return task(grant, *args, **kwargs)

            if self._client is None:
                async with connect() as client:
                    return await _execute(client, self._key, run, options)
            expect_client(self._client, AsyncClient, f"exclusive({self._key!r})")
            assert isinstance(self._client, AsyncClient)
            return await _execute(self._client, self._key, run, options)

        return call
