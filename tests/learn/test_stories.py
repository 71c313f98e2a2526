"""Stories are right on any machine: whoever is late, and whatever an actor says instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import UnavailableError
from coordinator.learn.crowds import herd
from coordinator.learn.stage import Stage, Venue
from coordinator.learn.troupe import Actor
from coordinator.testing import local_cluster


@pytest.mark.parametrize("late", ["exists", "children", "create"])
async def test_every_wake_up_is_counted_whoever_is_late(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second client is slower than the holder is with all that it does."""
    real, calls = getattr(AsyncClient, late), 0

    async def slow(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 2:
            await asyncio.sleep(0.02)
        return await real(*arguments, **options)

    with local_cluster(members=1) as cluster:
        place = Venue(cluster.endpoints, urls={"1": cluster.url("1")}, dying=lambda: None)
        async with Stage(place, "the herd", lock="herd", has_actors=False) as stage:
            monkeypatch.setattr(AsyncClient, late, slow)
            await asyncio.wait_for(herd(stage), 30.0)

    assert stage.state["counts"] == {"waiters": 8, "herd": 28, "predecessor": 7}


async def test_a_refusal_fails_a_story_at_once_with_its_words() -> None:
    actor = Actor("B", lambda _actor, _line: None)
    waiting = asyncio.create_task(actor.expect("holds", within_s=3_600))
    await asyncio.sleep(0)

    actor.note({"what": "refused", "code": "Unavailable", "message": "no heartbeat was in time"})

    with pytest.raises(UnavailableError, match=r"a refusal.*no heartbeat was in time"):
        await asyncio.wait_for(waiting, 30.0)


async def test_a_refusal_that_a_story_waits_for_is_its_answer() -> None:
    actor = Actor("A", lambda _actor, _line: None)
    actor.note({"what": "refused", "code": "StaleToken", "message": "33 is stale"})
    actor.note({"what": "lost", "why": "no heartbeat"})

    assert (await actor.expect("wrote", "refused"))["code"] == "StaleToken"
    assert (await actor.expect("lost"))["why"] == "no heartbeat"
