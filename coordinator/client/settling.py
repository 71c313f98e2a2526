"""Values that may have to be awaited: one coroutine serves either client with them.

A method of an AsyncClient returns what is awaited, one of a Client the value, once it is there. A
coroutine that awaits nothing but ``settled`` values never suspends with a Client: ``run_here`` runs
it in the thread that calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def settled(given: Any) -> Any:
    """Return what a method of either client, or a program's function for it, comes to."""
    return await given if inspect.isawaitable(given) else given


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, in the thread that calls."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):  # a function's own, which a coroutine hides
            raise error.__cause__ from None
        raise
    work.close()
    raise RuntimeError("expected a coroutine that waits in its thread, found one that suspends")
