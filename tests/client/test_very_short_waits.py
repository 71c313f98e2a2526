"""Waits for a held lock that are over at once, over real sockets."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from coordinator import connect
from coordinator.errors import LockTimeoutError
from coordinator.node.config import Config, HttpConfig
from coordinator.node.server import Server
from coordinator.recipes import Lock
from tests.patience import patient


@pytest.mark.parametrize("transport", ["stream", "http"])
async def test_a_member_that_says_that_a_lock_is_held_has_answered(
    transport: Literal["stream", "http"],
) -> None:
    """The wait times out with its holder; the member is not taken for one that is silent."""
    server = Server.in_memory(Config(http=HttpConfig(bind_port=0)))
    await server.start()

    def wait_for_it() -> list[LockTimeoutError]:
        found = []
        with (
            connect([server.url], transport=transport) as client,
            Lock(client, "daily"),
            connect([server.url], transport=transport) as waiter,
        ):
            Lock(waiter, "another").acquire()  # so it has a session
            for timeout in (0.03, 0.06, 0.09):
                with pytest.raises(LockTimeoutError) as raised:
                    Lock(waiter, "daily", timeout=patient(timeout)).acquire()
                found.append(raised.value)
        return found

    found = await asyncio.to_thread(wait_for_it)
    await server.stop()

    assert all("holder" in each.fields for each in found)
