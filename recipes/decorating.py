"""Decorators of functions and of coroutine functions: the same steps, with either client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from coordinator.client import AsyncClient, Client, connect, expect_client, run_either


def decorated(
    task: Callable[..., Any],
    client: Client | AsyncClient | None,
    title: Callable[..., str],
    steps: Callable[..., Coroutine[Any, Any, Any]],
) -> Callable[..., Any]:
    """Return a function like ``task`` that runs ``steps(client, args, kwargs)`` in its place.

    ``title`` of a call's arguments names the decorator in errors. Without a client each call
    connects to ``COORDINATOR_ENDPOINTS``.
    """
    if inspect.iscoroutinefunction(task):

        @wraps(task)
        async def call(*args: Any, **kwargs: Any) -> Any:
            named = title(*args, **kwargs)
            if client is None:
                async with connect() as opened:
                    return await steps(opened, args, kwargs)
            expect_client(client, AsyncClient, named)
            return await steps(client, args, kwargs)

    else:

        @wraps(task)
        def call(*args: Any, **kwargs: Any) -> Any:
            named = title(*args, **kwargs)
            if client is None:
                with connect() as opened:
                    return run_either(opened, steps(opened, args, kwargs))
            expect_client(client, Client, named)
            return run_either(client, steps(client, args, kwargs))

    return call
