"""Thousands of locks at once: no queue meets another, and nothing of them stays."""

from __future__ import annotations

import pytest

from coordinator.node.config import Config, MemberLimits, SessionConfig
from coordinator.service.reads.reads import LINEARIZABLE
from tests.service.fake_cluster import cluster, soon
from tests.service.locks.lock_scenes import acquired, looked, opened

CONFIG = Config(
    sessions=SessionConfig(timeout_ms_default=600_000), limits=MemberLimits(reap_interval_ms=1_000)
)


@pytest.mark.parametrize("names", [500, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_many_names_do_not_meet_and_clean_up_after_themselves(names: int) -> None:
    """Each is granted at once while all the others are held; no empty parent is left."""
    async with cluster(config=CONFIG) as world:
        holder = await opened(world)
        for number in range(names):
            await acquired(world, holder, f"orders/{number}", is_try=True)
        view = await looked(world, f"orders/{names - 1}")
        assert view.holder is not None
        assert view.queue == ()

        await soon(world.leader.close_session(holder, None, world.deadline()))
        for _ in range(names // 1_000 + 6):  # a thousand at a look
            await world.advance(1_000)

        root = (await soon(world.leader.children("/", LINEARIZABLE, world.deadline()))).value
        assert root.names == ()  # not even the parent of them all
