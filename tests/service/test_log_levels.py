"""The level of logging, set for all members by any of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from coordinator.errors import BadArgumentsError, NoAuthError
from coordinator.model.access import NOBODY
from coordinator.service.reporting.log_levels import REQUEST_KIND
from tests.service.fake_cluster import cluster, soon


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Log as much as before, afterwards: the members here share this process."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


async def test_all_members_log_what_one_is_asked_for() -> None:
    """Each is asked by the one that was."""
    async with cluster() as world:
        reply = await soon(world.follower.log_levels.set("debug", None, NOBODY))

        assert (reply.set, reply.not_set) == (tuple(sorted(world.members)), {})
        asked = [receiver for _, receiver, kind in world.requests if kind == REQUEST_KIND]
        assert len(asked) == len(world.members) - 1
        assert logging.getLogger().level == logging.DEBUG


async def test_one_member_alone_can_be_asked_for() -> None:
    """Where it is done is said, and why it is not where nobody answers."""
    async with cluster() as world:
        world.fault = lambda _, receiver, __: "unsent" if receiver == "3" else None
        one = await soon(world.members["1"].log_levels.set("error", "2", NOBODY))
        gone = await soon(world.members["1"].log_levels.set("error", "3", NOBODY))

    assert one.set == ("2",)
    assert gone.set == ()
    assert set(gone.not_set) == {"3"}


async def test_what_is_neither_a_level_nor_a_member_is_refused() -> None:
    """Nothing is set then."""
    level = logging.getLogger().level
    async with cluster() as world:
        for wrong, member_id in (("loud", None), ("debug", "9")):
            with pytest.raises(BadArgumentsError):
                await soon(world.leader.log_levels.set(wrong, member_id, NOBODY))
    assert logging.getLogger().level == level


async def test_it_is_for_operators() -> None:
    """At level debug a member logs much."""
    async with cluster() as world:
        world.leader._replica.machine.access.is_on = True
        with pytest.raises(NoAuthError):
            await soon(world.leader.log_levels.set("debug", None, NOBODY))
