"""The functions that a program hands over: which of them can run, and what they may return.

One rule for all that take one (work, checks, callbacks):

1. With a Client it is a plain function; with an AsyncClient it may be a coroutine function as well.
   So may an object whose ``__call__`` is one, and a ``functools.partial``.
2. A call of a generator function runs nothing, and a call of a class makes an object. They are
   refused before anything is begun (``expect_function``), as is a coroutine function with a Client.
3. What cannot be seen before is seen then: a function that returns what would still have to run (a
   coroutine, a generator) has not done its work. That is an error, no result (``expect_result``).
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal, TypeAlias

from coordinator.errors import BadArgumentsError

Kind: TypeAlias = Literal["function", "coroutine function", "generator function", "class"]


def kind_of(function: object) -> Kind:
    """Return what a call of ``function`` does, as far as can be seen.

    Raises:
        BadArgumentsError: it cannot be called.
    """
    while (inner := _of_partial(function)) is not None:
        function = inner
    if inspect.isclass(function):
        return "class"
    if not callable(function):
        raise BadArgumentsError(f"expected a function, found {function!r:.100}")
    for each in (function, type(function).__call__):
        if inspect.iscoroutinefunction(each):
            return "coroutine function"
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            return "generator function"
    return "function"


def expect_function(what: str, function: object, *, may_wait: bool) -> None:
    """Raise BadArgumentsError if ``what`` cannot run ``function``; ``may_wait``: in an event loop.

    Called before a lock or a record is touched.
    """
    try:
        kind = kind_of(function)
    except BadArgumentsError as error:
        raise BadArgumentsError(f"{what}: {error.message}") from None
    if kind == "function" or (kind == "coroutine function" and may_wait):
        return
    expected = "a function or a coroutine function" if may_wait else "a plain function"
    raise BadArgumentsError(
        f"{what}: expected {expected}, found the {kind} {_name_of(function)}, {_WHY[kind]}"
    )


def expect_result(function: object, result: object) -> None:
    """Raise if ``function`` returned no result, but something that would still have to run.

    Raises:
        BadArgumentsError: ``has_run`` is False in its fields if certainly nothing of it has run; a
            coroutine is closed.
    """
    if inspect.iscoroutine(result):
        result.close()
    elif not inspect.isgenerator(result) and not inspect.isasyncgen(result):
        if not inspect.isawaitable(result):
            return
        raise BadArgumentsError(
            f"{_name_of(function)}: expected a result, found that it returned a "
            f"{type(result).__name__}, which would have to be awaited, and that it may still run"
        )
    raise BadArgumentsError(
        f"{_name_of(function)}: expected a result, found that it returned a "
        f"{type(result).__name__.replace('_', ' ')}, of which nothing has run",
        has_run=False,
    )


_WHY: dict[Kind, str] = {
    "coroutine function": (
        "which an event loop runs: use an AsyncClient (`async with connect(...) as client:`)"
    ),
    "generator function": "of which a call runs nothing",
    "class": "of which a call makes an object",
}


def _name_of(function: Any) -> str:
    while (inner := getattr(function, "__wrapped__", None) or _of_partial(function)) is not None:
        function = inner
    return str(getattr(function, "__qualname__", type(function).__qualname__))[:100]


def _of_partial(function: object) -> Any:
    return function.func if isinstance(function, functools.partial) else None
