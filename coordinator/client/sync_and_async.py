"""One method for both clients: it waits with a Client and is awaited with an AsyncClient.

A recipe writes each of its methods once, as a coroutine that uses ``client.core``, and offers it
with ``both``. What a caller gets depends on the client it was made with, and type checkers know::

    class Counter(Generic[ClientT]):
        def __init__(self, client: ClientT) -> None:
            self.client = client

        @both
        async def increment(self) -> int: ...

    Counter(sync_client).increment()           # int
    await Counter(async_client).increment()    # int

What calls a program's own functions in between, which run in the caller's thread, is written once
with ``run_either``, ``settled``, ``returned`` and ``entered``.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from coordinator.client.async_client import AsyncClient
from coordinator.client.calling.deadline import limit_ms_of, within
from coordinator.client.running import callables
from coordinator.client.running.settling import called, run_here, settled
from coordinator.client.sync import Client
from coordinator.errors import BadArgumentsError

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # Covariant: a lock of what ``connect`` returns is a Lock[Client]. With a default: a bare
    # ``Grant`` in an annotation is that of either client.
    ClientT = TypeVarWithDefault("ClientT", bound=AsyncClient | Client, default=Any, covariant=True)
else:
    ClientT = TypeVar("ClientT", bound=AsyncClient | Client)
ClientT_co = TypeVar("ClientT_co", bound=AsyncClient | Client, covariant=True)
AnyClientT = TypeVar("AnyClientT", bound=AsyncClient | Client)
"""``ClientT`` where it is the argument of a function."""
SelfT = TypeVar("SelfT")
P = ParamSpec("P")
T = TypeVar("T")


class WithClient(Protocol[ClientT_co]):
    """Anything made with a client."""

    @property
    def client(self) -> ClientT_co:
        """The client that it was made with."""


def _both(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
    undo: Callable[[Any, T], Coroutine[Any, Any, object]] | None = None,
    *,
    has_own_time: bool = False,
) -> Any:
    """Offer a coroutine method to both clients.

    ``undo`` is another coroutine method of the object: it gives back what ``method`` returned when
    a sync caller was interrupted in the instant in which it was done.

    All calls of the method end within the seconds of its argument ``timeout``, without one within
    the client's timeout (``deadline``); with ``has_own_time`` it sees to that.
    """
    timeout_of = None if has_own_time else _argument(method, "timeout")

    @wraps(method)
    def function(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        undoing = None if undo is None else partial(undo, self)
        if timeout_of is None:
            return self.client.call(method(self, *args, **kwargs), undoing)

        async def in_time() -> T:
            core, timeout = self.client.core, timeout_of(args, kwargs)
            limit_ms = core.settings.timeout_ms if timeout is _NONE else limit_ms_of(timeout)
            with within(core.clock, limit_ms):
                return await method(self, *args, **kwargs)

        return self.client.call(in_time(), undoing)

    # Of ``acquire = both(_acquire)`` the world sees the name without the underscore.
    function.__name__ = method.__name__.lstrip("_")
    function.__qualname__ = method.__qualname__.replace(method.__name__, function.__name__)
    return function


_NONE = object()


def _argument(
    method: Callable[..., Any], name: str
) -> Callable[[Sequence[Any], Mapping[str, Any]], object]:
    """Return what finds the argument ``name`` of a call, _NONE if ``method`` has none."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    places = {each.name: place for place, each in enumerate(parameters)}
    place = places.get(name)
    if place is None:
        return lambda args, kwargs: _NONE
    default = parameters[place].default
    return lambda args, kwargs: args[place] if place < len(args) else kwargs.get(name, default)


if TYPE_CHECKING:

    class both(Generic[SelfT, P, T]):
        """``_both`` as type checkers see it: by the client, the result or an awaitable."""

        def __init__(
            self,
            method: Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]],
            # Apart from T: pyright would make Any of what two classes have in common. So an undo
            # of its own class says ``Any``, and not ``ClientT``, of what it takes.
            undo: Callable[..., Coroutine[Any, Any, object]] | None = None,
            *,
            has_own_time: bool = False,
        ) -> None: ...

        @overload
        def __get__(
            self, item: None, owner: type
        ) -> Callable[Concatenate[SelfT, P], T | Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, item: WithClient[Client], owner: type) -> Callable[P, T]: ...
        @overload
        def __get__(
            self, item: WithClient[AsyncClient], owner: type
        ) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, item: Any, owner: type) -> Any: ...

else:
    both = _both  # a plain function, so that help, inspect and mock see an ordinary method


def run_either(client: AsyncClient | Client, steps: Coroutine[Any, Any, T]) -> Any:
    """Run ``steps`` here for a Client; return them, to be awaited, for an AsyncClient.

    They await nothing but what is ``settled``, ``returned`` or ``entered``; so with a Client they
    wait in the thread that calls, and never suspend.
    """
    return run_here(steps) if isinstance(client, Client) else steps


async def returned(
    client: AsyncClient | Client, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
) -> Any:
    """Call a program's function; return its result, with an AsyncClient once it is awaited.

    Raises:
        BadArgumentsError: what it returned would still have to run (``callables``).
        What it raises.
    """
    if isinstance(client, Client):
        result = called(function, *args, **kwargs)
    else:
        result = await settled(function(*args, **kwargs))
    callables.expect_result(function, result)
    return result


def expect_function(client: AsyncClient | Client | None, what: str, function: object) -> None:
    """Raise BadArgumentsError if ``what`` cannot run ``function`` with this client, or any."""
    callables.expect_function(what, function, may_wait=not isinstance(client, Client))


@asynccontextmanager
async def entered(client: AsyncClient | Client, context: Any) -> AsyncIterator[Any]:
    """Enter ``context`` by ``with`` for a Client, by ``async with`` for an AsyncClient."""
    if isinstance(client, Client):
        with context as given:
            yield given
    else:
        async with context as given:
            yield given


_MADE_BY = {
    Client: "`client = connect(...)` or `with connect(...) as client:`",
    AsyncClient: "`client = await connect(...)` or `async with connect(...) as client:`",
}


def expect_client(client: object, kind: type[AsyncClient | Client], statement: str) -> None:
    """Raise BadArgumentsError if ``statement`` needs the other client."""
    if not isinstance(client, kind):
        raise BadArgumentsError(
            f"{statement}: expected a recipe made with {_a(kind)} ({_MADE_BY[kind]}), "
            f"found one made with {_a(Client if isinstance(client, Client) else type(client))}"
        )


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__.startswith('A') else 'a'} {kind.__name__}"
