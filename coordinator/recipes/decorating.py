"""Decorators of functions and of coroutine functions: the same steps, with either client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from coordinator.client import (
    AsyncClient,
    Client,
    connect,
    expect_client,
    expect_function,
    kind_of,
    run_either,
)


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
