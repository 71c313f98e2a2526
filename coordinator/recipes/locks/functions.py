"""Functions that run under a lock: the ``with`` around them, and their decorators.

Once the function has returned, its result is not lost to a release that fails. The release goes on
in the background, and an error that says "nothing was done" would be wrong: the function has run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from coordinator.client import (
    AnyClientT,
    AsyncClient,
    Client,
    connect,
    entered,
    expect_client,
    expect_function,
    kind_of,
    run_either,
)
from coordinator.errors import ClientClosedError, CoordinatorError, LockLostError
from coordinator.recipes.locks.contender import QueueContender
from coordinator.recipes.locks.grant import Grant


@asynccontextmanager
async def finishing(
    lock: QueueContender[AnyClientT], *, is_recorded: bool = False
) -> AsyncIterator[Grant[AnyClientT]]:
    """Hold ``lock`` for a body, in ``run_either``; what fails after its end is not raised.

    But a loss is, unless ``is_recorded``: what the body did was written under its grant.
    """
    has_ended, loss = False, None
    try:
        async with entered(lock.client, lock) as grant:
            yield grant
            has_ended = True
            if grant.is_unsure and lock._options.when_unsure == "stop" and not is_recorded:
                loss = grant.loss()  # which a client that is closed by now cannot say
    except CoordinatorError as error:
        if loss is not None and isinstance(error, ClientClosedError):
            raise loss from None
        if not has_ended or (isinstance(error, LockLostError) and not is_recorded):
            raise


def decorated(
    kind: str,
    task: Callable[..., Any],
    client: Client | AsyncClient | None,
    name: Callable[..., str | int],
    steps: Callable[..., Coroutine[Any, Any, Any]],
) -> Callable[..., Any]:
    """Return a function like ``task``: it runs ``steps(client, name, args, kwargs)`` in its place.

    ``name`` is called once a call, with its arguments. Without a client each call connects to
    ``COORDINATOR_ENDPOINTS``.

    Raises:
        BadArgumentsError: ``task`` cannot be run (``callables``), or not with this client.
    """
    expect_function(client, kind, task)
    if kind_of(task) == "coroutine function":

        @wraps(task)
        async def call(*args: Any, **kwargs: Any) -> Any:
            named = name(*args, **kwargs)
            if client is None:
                async with connect() as opened:
                    return await steps(opened, named, args, kwargs)
            expect_client(client, AsyncClient, f"{kind}({named!r})")
            return await steps(client, named, args, kwargs)

    else:

        @wraps(task)
        def call(*args: Any, **kwargs: Any) -> Any:
            named = name(*args, **kwargs)
            if client is None:
                with connect() as opened:
                    return run_either(opened, steps(opened, named, args, kwargs))
            expect_client(client, Client, f"{kind}({named!r})")
            return run_either(client, steps(client, named, args, kwargs))

    return call


def bound(task: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[Any], Any]:
    """Return ``task`` with all arguments but the first."""

    @wraps(task)
    def function(first: Any) -> Any:
        return task(first, *args, **kwargs)

    return function
