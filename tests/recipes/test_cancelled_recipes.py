"""Cancelled at any step, what waits or is registered leaves no znode of its session behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.recipes import (
    Barrier,
    CachedValue,
    CommitLog,
    CommitSite,
    Condition,
    Configuration,
    Counter,
    DoubleBarrier,
    Election,
    Flag,
    Group,
    Job,
    Jobs,
    Latch,
    Lock,
    ManualLock,
    Once,
    Owned,
    Partitioner,
    Pool,
    Revoker,
    Run,
    TokenBucket,
    Transaction,
    TreeCache,
    WorkQueue,
    execute_exclusive,
)
from tests.client.memory_cluster import MemoryCluster
from tests.recipes.cancelling import (
    NEAR_AND_FAR,
    a_second_after_the_cancellation,
    cancelled_at,
    run_counting,
)
from tests.recipes.storm import left_below

Work = Callable[[AsyncClient], Coroutine[Any, Any, Any]]


async def in_pairs(client: AsyncClient) -> None:
    """Begin and end a round with another member of the same client."""

    async def come_and_go() -> None:
        gate = DoubleBarrier(client, "gate", 2)
        if await gate.enter(60):
            await gate.leave(0)

    other = asyncio.create_task(come_and_go())
    try:
        await come_and_go()
        await other
    finally:
        other.cancel()


async def registered(client: AsyncClient) -> None:
    """Register, publish, leave."""
    async with await Group(client, "web").join() as me:
        await me.update({"n": 1})


async def sharing(client: AsyncClient) -> None:
    """Take two partitions, and leave."""
    jobs = Partitioner(client, "jobs", 2)

    async def work(owned: Owned[AsyncClient]) -> None:
        if owned.number == 1:
            await jobs.stop()

    await jobs.run(work)


async def put_and_taken(client: AsyncClient) -> None:
    """Put an item, wait for it, acknowledge it; what is given back was not delivered."""
    queue = WorkQueue(client, "mails", attempts_max=1)
    await queue.put(b"x")
    while (delivery := await queue.take(timeout=0.05)) is not None:
        await delivery.ack()


async def waited_for_an_item(client: AsyncClient) -> None:
    """Wait for an item that is put later."""
    queue = WorkQueue(client, "late", attempts_max=1)
    taking = asyncio.create_task(queue.take(timeout=5))
    try:
        await asyncio.sleep(0.05)
        await queue.put(b"x")
        if (delivery := await taking) is not None:
            await delivery.ack()
    finally:
        taking.cancel()


async def lent(client: AsyncClient) -> None:
    """Borrow a resource, and give it back."""
    async with await Pool(client, "gpus", ["x"]).borrow():
        pass


async def cached(client: AsyncClient) -> None:
    """Read a value, write it, read it, and give the copy up."""
    value = CachedValue(client, "v")
    try:
        await value.get()
        await value.set(b"1")
        await value.get()
    finally:
        await value.forget()


async def configured(client: AsyncClient) -> None:
    """Change a configuration, and wait for another change; what there is, is there whole."""
    web = Configuration(client, "web", versions=2)
    found = await web.get()
    await web.change({"left": found.version, "right": found.version})
    found = await web.get()
    assert found.values["left"] == found.values["right"]
    assert found == (await web.history())[0]
    seen = web.watch()
    await seen.next(0)
    await seen.next(0.05)


async def worked(client: AsyncClient) -> None:
    """Run a job, see that it is done, wait a moment for the next interval."""

    async def work(run: Run[AsyncClient]) -> None:
        await client.set("/worked", b"", if_held=run.grant)

    job = Job(client, "job", every="8760h", attempts_max=1_000_000, timeout=5)
    await job.run(work)
    assert (await job.run(work)).state == "done"
    await job.wait(0.05)
    await Jobs(client).forget("job")


async def handed_over(client: AsyncClient) -> None:
    """Be elected, hand over to another candidate of the same client, which resigns."""
    light, heavy = Election(client, "web", weight=1), Election(client, "web", weight=1)
    standing = None
    try:
        async with light:
            standing = asyncio.create_task(heavy.campaign())
            await asyncio.sleep(0.05)
            await light.hand_over()
        await standing
        await heavy.resign()
    finally:
        if standing is not None:
            standing.cancel()
            await asyncio.wait({standing})
            if not standing.cancelled() and standing.exception() is None:
                await heavy.resign()


async def by_hand(client: AsyncClient) -> None:
    """Hold a lock by hand, and release it. Cancelled before it is held, it leaves no hold; later
    the hold is its caller's, and stays."""
    lock, known = ManualLock(client, "deploys"), "/known"
    if (left := await lock.holder()) is not None:
        assert (await client.get(known)).data == str(left.fencing_token).encode()
        await lock.release(left.fencing_token)
    held = await lock.acquire("x", timeout=5)
    try:
        await lock.release(held.fencing_token)
    except asyncio.CancelledError:
        await client.set(known, str(held.fencing_token).encode())
        raise


async def weighed(client: AsyncClient) -> None:
    """Say a weight, be elected, resign."""
    async with Election(client, "web", weight=3):
        pass


async def copied(client: AsyncClient) -> None:
    """Make a copy of the tree, follow a change of it, end it."""
    async with TreeCache(client, "/") as cache:
        changes = cache.changes()
        await client.create("/seen-", mode="persistent_sequential")
        await changes.next(5)
        await cache.sync()


async def agreed(client: AsyncClient) -> None:
    """Run a transaction whose one site votes, and applies; whatever was left before is decided."""
    log, site = CommitLog(client, "pay", timeout=5, keep=1), CommitSite(client, "pay", "one")

    async def prepare(_: Transaction) -> bool:
        return True

    async def apply(_: Transaction) -> None:
        await client.get("/worked")

    running = asyncio.create_task(log.run("order", ["one"], timeout=5))
    try:
        while not running.done():
            await site.attend(prepare, apply, timeout=0.05)
        await running
        await site.attend(prepare, apply, timeout=0)
        found = await log.look("order")
        assert found is not None
        assert found.is_finished
    finally:
        running.cancel()
        await asyncio.wait({running})


async def asked_for_a_lock(client: AsyncClient) -> None:
    """Hold a lock, listen, ask for it, and be refused."""
    async with Lock(client, "held") as grant:
        grant.on_asked(lambda request: request.refuse("no"))
        answer = await Revoker(client, "held").ask("x", within=1)
        assert answer.outcome == "refused"


async def extended(client: AsyncClient) -> None:
    """Hold a lock for a bounded time, and move its end both ways."""
    async with Lock(client, "extended", max_hold=30) as grant:
        await grant.extend_by(5)
        await grant.renew_to(60)


async def exclusively(client: AsyncClient) -> None:
    """Run a function under a lock."""

    async def task(_: object) -> None:
        await client.get("/worked")

    await execute_exclusive(client, "exclusive", task)


async def worked_once(client: AsyncClient) -> None:
    """Do the work of a key, see that it is done, forget it."""

    async def one(_: object) -> str:
        await client.get("/worked")
        return "done"

    once = Once(client)
    assert (await once.run("key", one)).result == "done"
    assert (await once.run("key", one)).result == "done"
    await once.forget("key")


async def spent(client: AsyncClient) -> None:
    """Take permits, and a chunk of them, and return what is left."""
    bucket = TokenBucket(client, "mail", rate=1_000, burst=1_000)
    await bucket.take(timeout=5)
    async with bucket.chunk(10) as permits:
        assert await permits.take(3, timeout=5)
        assert permits.left == 7


async def counted(client: AsyncClient) -> None:
    """Add one, and set back."""
    counter = Counter(client, "n")
    number = await counter.add()
    assert number is not None
    assert await counter.compare_and_set(number, number + 5)


WAITS: dict[str, Work] = {
    "Flag": lambda client: Flag(client, "never").wait(0.05),
    "Barrier": lambda client: Barrier(client, "closed").wait(0.05),
    "Condition": lambda client: Condition(client, "never").wait(0, 0.05),
    "Latch": lambda client: Latch(client, "never", 2).wait(0.05),
    "alone at a DoubleBarrier": lambda client: DoubleBarrier(client, "alone", 2).enter(0.05),
    "Group": registered,
    "Partitioner": sharing,
    "WorkQueue": put_and_taken,
    "a wait at a WorkQueue": waited_for_an_item,
    "Pool": lent,
    "CachedValue": cached,
    "Configuration": configured,
    "Job": worked,
    "CommitLog": agreed,
    "TreeCache": copied,
    "exclusive": exclusively,
    "Once": worked_once,
    "TokenBucket": spent,
    "Counter": counted,
    "a pair at a DoubleBarrier": in_pairs,
    "ManualLock": by_hand,
    "Revoker": asked_for_a_lock,
    "an extended Lock": extended,
    "a weighed Election": weighed,
    "an Election handed over": handed_over,
}
"""Each comes to its end by itself, if it is not cancelled."""
SHORT = {"Barrier", "Group", "Counter"}
"""Those of few steps; ``make check`` tries the others."""


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(work, id=name, marks=[] if name in SHORT else [pytest.mark.check])
        for name, work in WAITS.items()
    ],
)
def test_cancelled_at_any_step_it_leaves_nothing(work: Work) -> None:
    """No ephemeral znode, no task of the client, a second later, also while requests travel."""

    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as client, world.client() as observer:
            await Barrier(observer, "closed").close()
            await observer.create("/worked")
            await observer.create("/known")
            await client.session()
            for step in itertools.count(1):
                assert step < 2_000, "it never ends"
                task = await cancelled_at(work(client), step)
                await a_second_after_the_cancellation()
                assert await left_below(observer, "") == [], step
                assert not client.background._tasks, step
                for name in ("mails", "late"):
                    assert await WorkQueue(observer, name).dead() == (), step
                if not task.cancelled():
                    assert task.exception() is None
                    return

    met = run_counting(scenario, NEAR_AND_FAR)

    assert met["cancelled"] > 10
