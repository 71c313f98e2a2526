"""Values that may have to be awaited: one coroutine serves either client with them.

A method of an AsyncClient returns what is awaited, one of a Client the value, once it is there. A
coroutine that awaits nothing but ``settled`` values never suspends with a Client: ``run_here`` runs
it in the thread that calls.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_HIDES_STOP = ("coroutine raised StopIteration",)
_IS_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


async def settled(given: Any) -> Any:
    """Return what a method of either client comes to."""
    return await given if inspect.isawaitable(given) else given


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, in the thread that calls."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        stop = _hidden_by(error)
        if stop is None:
            raise
    else:
        work.close()
        raise RuntimeError("expected a coroutine that waits in its thread, found one that suspends")
    raise stop


def _hidden_by(error: RuntimeError) -> StopIteration | None:
    """Return the StopIteration of a program's function in whose place our coroutine raised this.

    None of a RuntimeError that the function raised: it came through the function's frame, too, also
    when the function ran a coroutine of its own.
    """
    stop = error.__cause__
    if not isinstance(stop, StopIteration) or error.args != _HIDES_STOP or not error.__traceback__:
        return None
    frames = traceback.walk_tb(error.__traceback__.tb_next)  # the first is that of run_here
    is_ours = all(frame.f_code.co_flags & _IS_ASYNC for frame, _line in frames)
    return stop if is_ours else None
