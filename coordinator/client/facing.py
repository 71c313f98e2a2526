"""One method, both faces: it waits on a sync client and is awaited on an asyncio client.

A recipe writes each of its methods once, as a coroutine that uses ``client.core``, and offers it
with ``both``. What a caller gets depends on the client it was made with, and type checkers know::

    class Counter(Generic[ClientT]):
        def __init__(self, client: ClientT) -> None:
            self.client = client

        @both
        async def increment(self) -> int: ...

    Counter(sync_client).increment()           # int
    await Counter(async_client).increment()    # int
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from coordinator.client.async_client import AsyncClient
from coordinator.client.sync_client import Client
from coordinator.errors import BadArgumentsError

ClientT = TypeVar("ClientT", bound=AsyncClient | Client)
ClientT_co = TypeVar("ClientT_co", bound=AsyncClient | Client, covariant=True)
SelfT = TypeVar("SelfT")
P = ParamSpec("P")
T = TypeVar("T")


class WithClient(Protocol[ClientT_co]):
    """Anything made with a client."""

    @property
    def client(self) -> ClientT_co: ...


class both(Generic[SelfT, P, T]):
    """Offer a coroutine method on both faces.

    ``undo`` is another coroutine method of the object: it gives back what ``method`` returned when
    a sync caller was interrupted in the instant in which it was done.
    """

    def __init__(
        self,
        method: Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]],
        undo: Callable[[SelfT, T], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        self._method = method
        self._undo = undo
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, item: None, owner: type) -> both[SelfT, P, T]: ...
    @overload
    def __get__(self, item: WithClient[Client], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, item: WithClient[AsyncClient], owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, item: Any, owner: type) -> Any:
        if item is None:
            return self

        undo = None if self._undo is None else partial(self._undo, item)

        @wraps(self._method)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return item.client.call(self._method(item, *args, **kwargs), undo)

        return method


def expect_face(client: object, face: type, statement: str) -> None:
    """Raise BadArgumentsError when ``client`` is of the other face than ``statement`` needs."""
    if not isinstance(client, face):
        raise BadArgumentsError(
            f"{statement}: expected a recipe made with {face.__name__}, "
            f"found one made with {type(client).__name__}"
        )
