"""The room for waiters: what one client's waiters leave to the others, and to what is free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from coordinator.errors import LockTimeoutError, ThrottledError
from coordinator.node.config import Config, MemberLimits
from coordinator.service.base.turns import KEY
from tests.service.fake_cluster import cluster, settle, soon
from tests.service.locks.lock_scenes import acquired, acquiring, opened, release

FOUR = Config(limits=replace(MemberLimits(), lock_waiters_max=4))


@contextmanager
def client(key: str) -> Iterator[None]:
    """What is asked within is asked by this client."""
    token = KEY.set(key)
    try:
        yield
    finally:
        KEY.reset(token)


async def test_the_waiters_of_one_client_keep_nobody_from_a_lock() -> None:
    """It may take half of all places; another one acquires, tries, waits and is granted."""
    async with cluster(config=FOUR) as world:
        greedy, other = await opened(world), await opened(world)
        with client("greedy"):
            await soon(acquired(world, greedy, name="own"))
            waiting = [acquiring(world, greedy, name="own") for _ in range(2)]
            await settle()
            before = len(world.log)
            with pytest.raises(ThrottledError, match=r"at most 1 attempts .* of one client"):
                await soon(acquired(world, greedy, name="own"))
            assert len(world.log) == before, "nothing was proposed"
        with client("other"):
            held = await soon(acquired(world, other, name="theirs"))
            with pytest.raises(LockTimeoutError):
                await soon(acquired(world, other, name="own", is_try=True, wait_deadline_ms=0))
            behind = acquiring(world, other, name="theirs")
            await settle()
            await release(world, held)

        assert (await soon(behind)).session_id == other
        for each in waiting:
            each.cancel()


async def test_a_free_lock_is_acquired_where_no_place_is_left() -> None:
    """By whoever needs none, the one that waits elsewhere too; who must wait is refused."""
    async with cluster(config=FOUR) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id, name="own"))
        waiting = [acquiring(world, session_id, name="own") for _ in range(4)]
        await settle()
        with client("other"):
            held = await soon(acquired(world, session_id, name="free"))
            with pytest.raises(ThrottledError, match="at most 4 attempts"):
                await soon(acquired(world, session_id, name="free"))
            await release(world, held)
            await soon(acquired(world, session_id, name=("free", "another")))

        for each in waiting:
            each.cancel()
