"""What a failed call leaves is freed at once: nothing of it waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import pytest

from coordinator.client import AsyncClient
from coordinator.client.locks import AcquireRequest
from coordinator.errors import BadArgumentsError, LockTimeoutError, SessionExpiredError
from coordinator.recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory

Fail: TypeAlias = Callable[[AsyncClient], Awaitable[object]]


class Mine(Exception):
    """Raised by a callback of the program."""


async def _tried(client: AsyncClient) -> None:
    await Lock(client, "held", timeout=0).acquire()


async def _waited(client: AsyncClient) -> None:
    await Lock(client, "held", timeout=2).acquire()


async def _refused(client: AsyncClient) -> None:
    queue = client.core.lock_queue("held")
    await queue.acquire(AcquireRequest(max_hold_ms=-1), wait_ms=1_000)


async def _cancelled(client: AsyncClient) -> None:
    acquiring = asyncio.create_task(Lock(client, "held", timeout=9).acquire())
    await asyncio.sleep(1)
    acquiring.cancel()
    await acquiring


async def _called_back(client: AsyncClient) -> None:
    def fail(_: int) -> None:
        raise Mine

    queue = client.core.lock_queue("held")
    await queue.acquire(AcquireRequest(), wait_ms=9_000, on_position=fail)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("has_session", [False, True])
@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (_tried, LockTimeoutError),
        (_waited, LockTimeoutError),
        (_refused, BadArgumentsError),
        (_cancelled, asyncio.CancelledError),
        (_called_back, Mine),
    ],
)
def test_what_an_acquire_raises_is_in_no_cycle(
    fail: Fail, expected: type[BaseException], has_session: bool, no_collector: None
) -> None:
    @in_memory
    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as holder, world.client() as client, Lock(holder, "held"):
            if has_session:
                await client.session()
            left: weakref.ref[BaseException] | None = None
            try:
                await fail(client)
            except expected as error:
                left = weakref.ref(error)
            await asyncio.sleep(1)

            assert left is not None
            assert left() is None

    scenario()


@in_memory
async def test_what_ends_a_session_is_in_no_cycle(world: MemoryCluster) -> None:
    """As who waits while it lives hears it."""
    async with world.client() as client:
        session = await client.session()

        async def work() -> None:
            raise SessionExpiredError("it ended", session_id="of another")

        gc.disable()
        try:
            left: weakref.ref[BaseException] | None = None
            try:
                await session.while_alive(work())
            except SessionExpiredError as error:
                left = weakref.ref(error)

            assert left is not None
            assert left() is None
        finally:
            gc.enable()
