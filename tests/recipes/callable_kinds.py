"""The kinds of callables that a program may hand over, each of which counts that it has run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any


class Ran:
    """Counts what has run; ``on_run`` is called each time."""

    def __init__(self, result: Any = True) -> None:
        self.times = 0
        self.on_run: Callable[[], object] = lambda: None
        self._result = result

    def run(self) -> Any:
        self.times += 1
        self.on_run()
        return self._result


class _Made:
    """A class, of which a call makes an object and runs nothing."""

    def __init__(self, *_: Any) -> None:
        self.is_made = True


def plain_kinds(ran: Ran) -> dict[str, Any]:
    """Return what any client can run."""

    def plain(*_: Any) -> Any:
        return ran.run()

    class Plain:
        def __call__(self, *_: Any) -> Any:
            return ran.run()

    return {
        "a function": plain,
        "an object": Plain(),
        "a partial": partial(plain, 1),
        "a partial of a partial of an object": partial(partial(Plain(), 1), 2),
    }


def async_kinds(ran: Ran) -> dict[str, Any]:
    """Return what an AsyncClient alone can run, and what says so beforehand."""

    async def coroutine_function(*_: Any) -> Any:
        return ran.run()

    class Async:
        async def __call__(self, *_: Any) -> Any:
            return ran.run()

        async def method(self, *_: Any) -> Any:
            return ran.run()

    return {
        "a coroutine function": coroutine_function,
        "an object with async __call__": Async(),
        "a coroutine method": Async().method,
        "a partial of a coroutine function": partial(coroutine_function, 1),
        "a partial of an object with async __call__": partial(Async(), 1),
    }


def never_kinds(ran: Ran) -> dict[str, Any]:
    """Return what nobody can run."""

    def generator_function(*_: Any) -> Iterator[Any]:
        yield ran.run()

    async def async_generator_function(*_: Any) -> AsyncIterator[Any]:
        yield ran.run()

    class Generating:
        def __call__(self, *_: Any) -> Iterator[Any]:
            yield ran.run()

    return {
        "a generator function": generator_function,
        "an async generator function": async_generator_function,
        "an object with a generator": Generating(),
        "a partial of a generator function": partial(generator_function, 1),
        "a class": _Made,
        "a text": "a text",
    }


def returning_kinds(ran: Ran) -> dict[str, Any]:
    """Return functions that return what nobody runs."""
    never = never_kinds(ran)
    return {
        "a lambda that returns a generator": lambda *_: never["a generator function"](),
        "a lambda that returns an async generator": (
            lambda *_: never["an async generator function"]()
        ),
    }


def returning_coroutine(ran: Ran) -> dict[str, Any]:
    """Return a function that returns what an event loop can run."""
    return {
        "a lambda that returns a coroutine": (lambda *_: async_kinds(ran)["a coroutine function"]())
    }
