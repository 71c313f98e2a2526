"""The list of locks that are not free: held, held by hand, or closed after an unclean loss."""

from __future__ import annotations

from typing import Any

from coordinator.model.access import NOBODY, Caller, Rule, Verb
from coordinator.model.acquire import AcquireRequest
from coordinator.model.manual_holds import ROOT, ManualHold
from coordinator.model.views import LockSummary
from coordinator.service.reads.reads import STALE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import AddToken, Create, InitAccess, PutIdentity, PutRole
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import WITHOUT_LEASES, acquired, opened

PAGE = 2


async def listed(world: World, caller: Caller = NOBODY, **more: Any) -> list[LockSummary]:
    """Return all of them, read in small pages."""
    found: list[LockSummary] = []
    after: str | None = None
    while True:
        page = (
            await world.follower.lock_views.list_locks(
                STALE, world.deadline(), after=after, limit=PAGE, caller=caller, **more
            )
        ).value
        found += page.locks
        after = page.next
        if after is None:
            return found


async def hold(world: World, name: str, **more: Any) -> None:
    """Hold a lock by hand: its queue is not there any more."""
    data = ManualHold(by="ann", note="a crane", **more).to_bytes()
    paths = [(ROOT, b""), (f"{ROOT}/{name}", data)]
    for path, value in paths:
        if world.leader._replica.machine.stat(path) is None:
            await world.leader.proposer.submit(
                Create(path, value), RequestContext(None, world.deadline())
            )


async def test_what_is_held_by_hand_is_listed_among_the_others() -> None:
    """In the order of names, whatever the pages, though no queue of it is there."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        for name in ("b", "d", "f"):
            await soon(acquired(world, session_id, name=name))
        for name in ("a", "c", "e", "g"):
            await hold(world, name)
        found = await listed(world)

    assert [each.lock for each in found] == list("abcdefg")
    assert [each.by_hand for each in found][:2] == ["it is held by hand by 'ann': 'a crane'", None]
    assert [each.holder is None for each in found] == [True, False] * 3 + [True]
    assert [each.holder_count for each in found] == [0, 1] * 3 + [0]


async def test_how_long_it_is_held_by_hand_counts() -> None:
    """``held_ms_min`` leaves out what is held for less; an alarm that is over is said."""
    async with cluster(config=WITHOUT_LEASES) as world:
        await hold(world, "old", alarm_after_ms=1_000)
        await world.advance(5_000)
        await hold(world, "new", alarm_after_ms=1_000)
        found = await listed(world, held_ms_min=4_000)
        everything = await listed(world)
        view = (await world.follower.lock_views.query("old", STALE, world.deadline())).value

    assert [(each.lock, each.held_ms, each.is_overdue) for each in found] == [("old", 5_000, True)]
    assert [(each.lock, each.is_overdue) for each in everything] == [("new", False), ("old", True)]
    assert view.is_overdue


async def test_nobody_sees_a_hold_of_a_lock_that_it_may_not_look_at() -> None:
    """Not by its line, nor by where a page goes on; the rights are those of the lock."""
    async with cluster(config=WITHOUT_LEASES) as world:
        for name in ("a", "b", "c", "theirs", "z"):
            await hold(world, name)
        for operation in (
            PutRole("one", (Rule("/locks/theirs", (Verb.LOCK,)),)),
            PutIdentity("one", ("one",)),
            AddToken("one", token_id="tokenone1", digest=b"d" * 32),
            InitAccess("ops", token_id="opstoken1", digest=b"e" * 32),
        ):
            await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))
        token = world.follower._replica.machine.access.token("tokenone1")
        assert token is not None
        found = await listed(world, token.caller)

    assert [(each.lock, each.by_hand) for each in found] == [("theirs", "it is held by hand")]


async def test_a_lock_that_is_closed_after_a_loss_is_listed() -> None:
    """Nobody holds it, and nobody is granted it: it is not free."""
    async with cluster() as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id, wish=AcquireRequest(lock_delay_ms=60_000)))
        await soon(world.leader.close_session(session_id, None, world.deadline(), failure="ill"))
        await settle()
        [found] = await listed(world)
        long_held = await listed(world, held_ms_min=1)

    assert (found.holder, found.holder_count) == (None, 0)
    assert found.closed is not None
    assert found.closed.delay_ms == 60_000
    assert long_held == []
