"""What a program is told while it waits and holds; its mistakes there are its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import SessionState
from coordinator.errors import (
    BadArgumentsError,
    LockTimeoutError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes import Lock, MultiLock, TreeLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving


def fails_with(error: BaseException) -> Callable[[], None]:
    """Return a callback with a mistake in it."""

    def callback() -> None:
        raise error

    return callback


@pytest.mark.parametrize(
    "error", [ValueError("mine"), asyncio.CancelledError()], ids=["error", "cancelled"]
)
@in_memory
async def test_a_failing_callback_costs_the_other_holds_nothing(
    world: MemoryCluster, error: BaseException
) -> None:
    """The session goes on, the other callbacks are called, and the mistake is reported."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: reported.append(context["exception"])
    )
    async with world.client() as client, world.client() as operator:
        taken, kept = [await Lock(client, name).acquire() for name in ("a", "b")]
        received: list[str] = []
        taken.on_lost(fails_with(error))
        taken.on_lost(lambda: received.append("the other callback"))
        kept.on_lost(lambda: received.append("of the other lock"))

        await operator.revoke("a", by="ops", reason="stuck")
        await asyncio.sleep(60)

        assert received == ["the other callback"]
        assert reported == [error]
        kept.check()
        assert (await client.session()).state is SessionState.CONNECTED


@in_memory
async def test_a_failing_callback_leaves_the_others_informed_of_a_lost_session(
    world: MemoryCluster,
) -> None:
    """All callbacks of all grants are called, of the session's own state too."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: reported.append(context["exception"])
    )
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        session = await client.session()
        grants = [await Lock(client, name).acquire() for name in ("a", "b")]
        received: list[str] = []
        session.on_state(lambda state: fails_with(asyncio.CancelledError())())
        for grant in grants:
            grant.on_lost(fails_with(asyncio.CancelledError()))
            grant.on_lost(lambda name=grant.lock: received.append(name))  # type: ignore[misc]

        network.is_cut = True
        await asyncio.sleep(5)

        assert received == ["a", "b"]
        assert len(reported) == 4  # suspended, then lost


@pytest.mark.parametrize(
    "error",
    [
        LockTimeoutError("the queue is too long for me"),
        BadArgumentsError("no"),
        UnavailableError("no"),
        SessionExpiredError("no"),
        TimeoutError("no"),
        ValueError("no"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", [Lock, MultiLock, TreeLock])
@in_memory
async def test_a_failing_on_position_ends_the_wait_and_leaves_nothing(
    world: MemoryCluster, kind: type[Any], error: Exception
) -> None:
    """It comes through as it is, and is not taken for what a member says."""
    seen: list[int] = []

    def on_position(position: int) -> None:
        seen.append(position)
        raise error

    async with (
        world.client(label="holder") as holder,
        world.client(label="waiter") as waiter,
        Lock(holder, "daily", label="holder"),
    ):
        with pytest.raises(type(error)) as raised:
            await kind(waiter, "daily", timeout=60).acquire(on_position=on_position)
        await asyncio.sleep(1)

        assert raised.value is error
        assert seen == [1]
        assert await world.queue(holder, "daily") == ["holder"]
        assert not (await waiter.session()).is_lost


def test_who_asks_for_the_loss_when_the_sync_client_is_closed_is_told_at_once() -> None:
    """There is no event loop any more that could tell it; a mistake of a callback is its own."""
    received: list[str] = []
    with serving() as url:
        with connect(url) as client:
            lost, released = Lock(client, "lost").acquire(), Lock(client, "released").acquire()
            released.release()

        lost.on_lost(fails_with(ValueError("mine")))
        stop = lost.on_lost(lambda: received.append("lost"))
        stop()
        released.on_lost(lambda: received.append("released"))

        assert received == ["lost"]
