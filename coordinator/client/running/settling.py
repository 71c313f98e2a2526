"""Values that may have to be awaited: one coroutine serves either client with them.

A method of an AsyncClient returns what is awaited, one of a Client the value, once it is there. A
coroutine that awaits nothing but ``settled`` values never suspends with a Client: ``run_here`` runs
it in the thread that calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StoppedIteration(Exception):
    """A program's function has raised ``stop``, which no coroutine lets through (PEP 479)."""

    def __init__(self, stop: StopIteration) -> None:
        super().__init__(*stop.args)
        self.stop = stop


def called(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a program's function returns; for a coroutine that is run by ``run_here``."""
    try:
        return function(*args, **kwargs)
    except StopIteration as stop:
        raise StoppedIteration(stop) from None


async def settled(given: Any) -> Any:
    """Return the result of a method of either client."""
    return await given if inspect.isawaitable(given) else given


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, in the thread that calls.

    What a function raises that it has ``called`` comes through as it is.
    """
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except StoppedIteration as stopped:
        stop = stopped.stop
    else:
        work.close()
        raise RuntimeError("expected a coroutine that waits in its thread, found one that suspends")
    raise stop
