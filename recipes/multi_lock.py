"""Several locks at once, always taken in one order, so that two programs never wait in a circle.

::

    with MultiLock(client, "account-a", "account-b") as (a, b):
        transfer(token_a=a.fencing_token, token_b=b.fencing_token)

1. The locks are taken in the order of their names, in whatever order they are given (S083). This
   helps only against programs that do the same.
2. ``timeout`` is one overall deadline for all of them; if one is not had, those had are given back.
3. The grants come in the order in which the names were given.
4. When any of them is lost, all of them end: the body is left as that of a ``Lock`` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import Generic

from coordinator.client import AsyncClient, Client
from coordinator.client.facing import ClientT, expect_face
from coordinator.errors import BadArgumentsError, DeadlockError
from recipes.grant import Grant
from recipes.lock import Lock
from recipes.terms import WhenUnsure
from recipes.waiting import DEFAULT_TIMEOUT_S, FOREVER, Timeout, wait_ms_of


class MultiLock(Generic[ClientT]):
    """One contender for all the locks ``names``; see ``Lock`` for the other arguments."""

    def __init__(
        self,
        client: ClientT,
        *names: str,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        when_unsure: WhenUnsure = "stop",
        label: str = "",
    ) -> None:
        if not names or len(set(names)) != len(names):
            raise BadArgumentsError(
                f"MultiLock: expected one name or more, each once; found {names!r}"
            )
        self.client = client
        self.names = names
        self._wait_ms = wait_ms_of(timeout)
        self._when_unsure: WhenUnsure = when_unsure
        self._label = label
        self._stack: ExitStack | None = None
        self._async_stack: AsyncExitStack | None = None

    def __enter__(self: MultiLock[Client]) -> tuple[Grant[Client], ...]:
        expect_face(self.client, Client, "with")
        self._refuse_second(self._stack)
        grants: dict[str, Grant[Client]] = {}
        with ExitStack() as stack:
            for name, timeout in self._in_order():
                grants[name] = stack.enter_context(self._lock(name, timeout))
            self._stack = stack.pop_all()
        return tuple(grants[name] for name in self.names)

    def __exit__(
        self: MultiLock[Client],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack, self._stack = self._stack, None
        assert stack is not None, "left a body that was not entered"
        stack.__exit__(kind, error, traceback)

    async def __aenter__(self: MultiLock[AsyncClient]) -> tuple[Grant[AsyncClient], ...]:
        expect_face(self.client, AsyncClient, "async with")
        self._refuse_second(self._async_stack)
        grants: dict[str, Grant[AsyncClient]] = {}
        async with AsyncExitStack() as stack:
            for name, timeout in self._in_order():
                grants[name] = await stack.enter_async_context(self._lock(name, timeout))
            self._async_stack = stack.pop_all()
        return tuple(grants[name] for name in self.names)

    async def __aexit__(
        self: MultiLock[AsyncClient],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack, self._async_stack = self._async_stack, None
        assert stack is not None, "left a body that was not entered"
        await stack.__aexit__(kind, error, traceback)

    def _in_order(self) -> Iterator[tuple[str, Timeout]]:
        """Yield each name in the one order, with the time that is left when it is its turn."""
        clock = self.client.clock
        began_ms = clock.monotonic_ms()
        for name in sorted(self.names):
            if self._wait_ms is None:
                yield name, FOREVER
            else:
                yield name, max(0, began_ms + self._wait_ms - clock.monotonic_ms()) / 1000

    def _lock(self, name: str, timeout: Timeout) -> Lock[ClientT]:
        return Lock(
            self.client,
            name,
            timeout=timeout,
            when_unsure=self._when_unsure,
            label=self._label,
        )

    def _refuse_second(self, held: object) -> None:
        if held is not None:
            raise DeadlockError(f"MultiLock {self.names!r}: this very object holds them already")
