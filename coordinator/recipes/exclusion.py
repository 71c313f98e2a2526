"""Run a function under a lock: as a helper, and as a decorator.

::

    execute_exclusive(client, "search-index", lambda grant: rebuild(token=grant.fencing_token))

    @exclusive("search-index", timeout=0)
    def rebuild_index(grant: Grant, shard: int) -> None: ...

    rebuild_index(7)

    @exclusive(key=lambda shard: f"index-{shard}", skip_if_busy=True)
    def rebuild_shard(grant: Grant, shard: int) -> str: ...

    rebuild_shard(7)                       # None if another caller is at shard 7

    run_exclusive("nightly", lambda grant: copy(token=grant.fencing_token))

**One at a time, not once.** Calls that come one after the other all run: three replicas that are
started by their schedulers at midnight, each a little later than the other, run it three times,
with ``timeout=0``, too. Once a day is ``once_per``, once for a key ``Once``.

The function is given the grant, with its fencing token, as its first argument. If the lock is not
acquired in time LockTimeoutError is raised and the function does not run. What the function raises
itself comes through unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from coordinator.client import AsyncClient, Client, expect_function, returned, run_either
from coordinator.errors import BadArgumentsError, LockTimeoutError
from coordinator.recipes.base.names import name_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.functions import bound, decorated, finishing
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.options import LockOptions

P = ParamSpec("P")
T = TypeVar("T")
SkipT = TypeVar("SkipT", bound=bool)
"""Whether a call may be skipped, and return None."""


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

    With an AsyncClient the task may be a coroutine function, and the call is awaited. The options
    are those of ``Lock``.

    Raises:
        LockTimeoutError: the lock was not acquired in time; the task did not run.
        LockLostError: the lock was lost while the task ran.
        BadArgumentsError: the task cannot be run; or it returned a coroutine or a
            generator, of which nothing has run.
        All else that ``Lock.acquire`` raises, and what the task raises.
    """
    expect_function(client, "execute_exclusive", task)
    return run_either(client, _execute(client, key, task, options))


async def _execute(
    client: Client | AsyncClient, key: str, task: Callable[[Any], Any], options: LockOptions
) -> Any:
    async with finishing(Lock(client, key, **options)) as grant:
        return await returned(client, task, grant)


@overload
def run_exclusive(
    name: str,
    task: Callable[[Grant[AsyncClient]], Coroutine[Any, Any, T]],
    **options: Unpack[LockOptions],
) -> Coroutine[Any, Any, T]: ...
@overload
def run_exclusive(
    name: str, task: Callable[[Grant[Client]], T], **options: Unpack[LockOptions]
) -> T: ...


def run_exclusive(name: str, task: Callable[[Any], Any], **options: Unpack[LockOptions]) -> Any:
    """Return what ``task(grant)`` returns, run under the lock ``name`` with a client of its own.

    It connects to ``COORDINATOR_ENDPOINTS`` for this one call. With a coroutine function the call
    is awaited.

    Raises:
        LockTimeoutError, LockLostError, BadArgumentsError, and all else that
            ``execute_exclusive`` raises.
    """
    decorated: Callable[[], Any] = exclusive(name, **options)(task)
    return decorated()


class exclusive(Generic[SkipT]):
    """Decorate a function so that each call runs under the lock ``key``: one at a time, not once.

    Args:
        key: the lock's name, or a function that makes it of a call's arguments.
        client: a Client for plain functions, an AsyncClient for coroutine functions. None
            connects to ``COORDINATOR_ENDPOINTS`` for each call, which suits scheduled tasks.
        skip_if_busy: a call that finds the lock held returns None at once and does not run.
        options: those of ``Lock``; the label is the function's name unless said otherwise.

    Raises:
        LockTimeoutError, LockLostError: at each call, as ``execute_exclusive`` does.
        BadArgumentsError: ``skip_if_busy`` together with ``timeout``; what ``key`` made is no name;
            what is decorated cannot be run, as a generator function or a class.
    """

    @overload
    def __init__(
        self: exclusive[Literal[False]],
        key: str | Callable[..., str | int],
        *,
        client: Client | AsyncClient | None = None,
        skip_if_busy: Literal[False] = False,
        **options: Unpack[LockOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: exclusive[Literal[True]],
        key: str | Callable[..., str | int],
        *,
        client: Client | AsyncClient | None = None,
        skip_if_busy: Literal[True],
        **options: Unpack[LockOptions],
    ) -> None: ...

    def __init__(
        self,
        key: str | Callable[..., str | int],
        *,
        client: Client | AsyncClient | None = None,
        skip_if_busy: bool = False,
        **options: Unpack[LockOptions],
    ) -> None:
        if skip_if_busy and "timeout" in options:
            raise BadArgumentsError(
                "exclusive: expected skip_if_busy, which does not wait, or timeout; found both"
            )
        self._key = key
        self._client = client
        self._skips = skip_if_busy
        self._options = options

    @overload
    def __call__(
        self: exclusive[Literal[False]],
        task: Callable[Concatenate[Grant[AsyncClient], P], Coroutine[Any, Any, T]],
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(
        self: exclusive[Literal[False]], task: Callable[Concatenate[Grant[Client], P], T]
    ) -> Callable[P, T]: ...
    @overload
    def __call__(
        self: exclusive[Literal[True]],
        task: Callable[Concatenate[Grant[AsyncClient], P], Coroutine[Any, Any, T]],
    ) -> Callable[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(
        self: exclusive[Literal[True]], task: Callable[Concatenate[Grant[Client], P], T]
    ) -> Callable[P, T | None]: ...

    def __call__(self, task: Callable[..., Any]) -> Callable[..., Any]:
        label = getattr(task, "__name__", "")[:200]
        options: LockOptions = {"label": label, **self._options}
        if self._skips:
            options["timeout"] = 0

        async def steps(client: Client | AsyncClient, name: Any, args: Any, kwargs: Any) -> Any:
            has_begun = False

            work = bound(task, args, kwargs)

            @wraps(work)
            def run(grant: Grant[Any]) -> Any:
                nonlocal has_begun
                has_begun = True
                return work(grant)

            try:
                return await _execute(client, name, run, options)
            except LockTimeoutError:
                if has_begun or not self._skips:  # the task may wait for other locks
                    raise
                return None

        return decorated("exclusive", task, self._client, self._name, steps)

    def _name(self, *args: Any, **kwargs: Any) -> str:
        return name_of(self._key(*args, **kwargs) if callable(self._key) else self._key, "key")
