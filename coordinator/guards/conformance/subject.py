"""The subject of an examination: handles on one guarded value, as separate processes have them.

You write a factory: ``open_value(name)`` opens the value ``name`` in your store, creating it if it
is new, and returns a handle. Called again with the same name it opens a second handle on the same
value. The methods may be plain or coroutines; so may the factory.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class GuardedValue(Protocol):
    """One handle on one value behind the guard. ``close()`` is called if it is there.

    A guard that knows write numbers has ``write_numbered(token, number, value)`` as well, which
    raises StaleWriteError unless the number is above all that this token has written with.
    """

    def write(self, token: int, value: str, /) -> Any:
        """Replace the value under ``token``; StaleTokenError if a higher one has been seen."""
        ...

    def read(self) -> Any:
        """Return the value, None before the first write."""
        ...

    def raise_to(self, token: int, /) -> Any:
        """Refuse from now on every token lower than ``token``."""
        ...


Factory = Callable[[str], GuardedValue | Awaitable[GuardedValue]]


class Handle:
    """A handle whose methods wait, whatever those of the value behind it do."""

    def __init__(self, factory: Factory, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.value: GuardedValue = self._wait(factory(name))

    def write(self, token: Any, value: str) -> None:
        """Write ``value`` under ``token``."""
        self._wait(self.value.write(token, value))

    @property
    def knows_numbers(self) -> bool:
        """Whether the guard knows write numbers."""
        return hasattr(self.value, "write_numbered")

    def write_numbered(self, token: int, number: Any, value: str) -> None:
        """Write ``value`` under ``token`` as the write ``number``."""
        numbered: Any = self.value
        self._wait(numbered.write_numbered(token, number, value))

    def read(self) -> str | None:
        """Return the value, None before the first write."""
        value = self._wait(self.value.read())
        return value.decode() if isinstance(value, bytes) else value

    def raise_to(self, token: Any) -> None:
        """Raise the guard to ``token``."""
        self._wait(self.value.raise_to(token))

    def close(self) -> None:
        """Close the handle, where it can be closed."""
        close = getattr(self.value, "close", None)
        if close is not None:
            self._wait(close())
        if self._loop is not None:
            self._loop.close()

    def _wait(self, answer: Any) -> Any:
        if not inspect.isawaitable(answer):
            return answer
        # A loop for each handle: stopped in the middle of a call, it stops no other.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def awaited() -> Any:
            return await answer

        return self._loop.run_until_complete(awaited())
