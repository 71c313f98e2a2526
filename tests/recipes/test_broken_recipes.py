"""A connection that breaks after any byte, and what the verbs of recipes say of it.

As ``tests/client/test_broken_connections.py``, for what is made of several requests: a verb that
returns was done once, one that raises a definite error was not done and is not done later.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import NoNodeError
from coordinator.recipes import (
    Barrier,
    CachedValue,
    CommitLog,
    CommitSite,
    Condition,
    Configuration,
    Counter,
    Delivery,
    DoubleBarrier,
    Election,
    Flag,
    Group,
    Job,
    Jobs,
    Latch,
    ManualLock,
    Membership,
    Once,
    Pool,
    ReentrantLock,
    RWLock,
    Semaphore,
    TokenBucket,
    Transaction,
    WorkQueue,
    execute_exclusive,
)
from coordinator.recipes.manual_lock import HeldByHand
from tests.client.breaking_verbs import TransportName, Verb, examine

BURST = 1_000


async def holders(truth: AsyncClient, key: str) -> int:
    return len((await truth.lock(key)).holders)


async def candidates(truth: AsyncClient, key: str) -> int:
    return int((await truth.election(key)).elected is not None)


async def items(truth: AsyncClient, key: str) -> int:
    return (await WorkQueue(truth, key).stats()).ready


async def claims(truth: AsyncClient, key: str) -> int:
    return (await WorkQueue(truth, key).stats()).in_flight


async def is_empty(truth: AsyncClient, key: str) -> int:
    stats = await WorkQueue(truth, key).stats()
    return int(stats.ready + stats.in_flight == 0)


async def an_item(client: AsyncClient, key: str) -> None:
    await WorkQueue(client, key).put(b"x")


async def a_delivery(client: AsyncClient, key: str) -> Delivery[AsyncClient]:
    await an_item(client, key)
    delivery = await WorkQueue(client, key).take()
    assert delivery is not None
    return delivery


async def take(client: AsyncClient, key: str) -> None:
    assert await WorkQueue(client, key).take() is not None


async def counted(truth: AsyncClient, key: str) -> int:
    return await Counter(truth, key).value()


async def taken(truth: AsyncClient, key: str) -> int:
    return BURST - await TokenBucket(truth, key, rate=1e-9, burst=BURST).available()


async def is_set(truth: AsyncClient, key: str) -> int:
    return int(await Flag(truth, key).value() is not None)


async def is_closed(truth: AsyncClient, key: str) -> int:
    return int(not await Barrier(truth, key).wait(0))


async def is_open(truth: AsyncClient, key: str) -> int:
    return int(await Barrier(truth, key).wait(0))


async def close(client: AsyncClient, key: str) -> None:
    await Barrier(client, key).close()


async def notified(truth: AsyncClient, key: str) -> int:
    return int(await Condition(truth, key).last() > 0)


async def counted_down(truth: AsyncClient, key: str) -> int:
    return 5 - await Latch(truth, key, 5).left()


async def is_in(truth: AsyncClient, key: str) -> int:
    found = 0
    try:
        for each in (await truth.children(f"/double-barriers/{key}")).names:
            below = f"/double-barriers/{key}/{each}"
            stat = await truth.exists(below)
            found += stat.num_children if stat is not None else 0
    except NoNodeError:
        pass
    return found


async def members(truth: AsyncClient, key: str) -> int:
    return len(await Group(truth, key).members())


async def a_member(client: AsyncClient, key: str) -> Membership[AsyncClient]:
    return await Group(client, key).join("me", metadata={"n": 0})


async def is_updated(truth: AsyncClient, key: str) -> int:
    return sum(each.metadata == {"n": 1} for each in await Group(truth, key).members())


async def lent(truth: AsyncClient, key: str) -> int:
    return len(await Pool(truth, key, ["a", "b"]).borrowed())


async def written(truth: AsyncClient, key: str) -> int:
    try:
        return int((await truth.get(f"/values/{key}/value")).data == b"new")
    except NoNodeError:
        return 0


async def changes(truth: AsyncClient, key: str) -> int:
    return (await Configuration(truth, key).get()).version


async def by_hand(truth: AsyncClient, key: str) -> int:
    return int(await ManualLock(truth, key).holder() is not None)


async def not_by_hand(truth: AsyncClient, key: str) -> int:
    return 1 - await by_hand(truth, key)


async def a_hold(client: AsyncClient, key: str) -> HeldByHand:
    held = await ManualLock(client, key).acquire("to see", timeout=20)
    # The end of its turn, which would be broken first.
    await asyncio.gather(*client.background._tasks)
    return held


RAN: dict[str, int] = {}
"""How often the task of each key has run."""


async def ran(_truth: AsyncClient, key: str) -> int:
    return RAN.get(key, 0)


async def run_exclusively(client: AsyncClient, key: str) -> None:
    async def task(_: object) -> None:
        RAN[key] = RAN.get(key, 0) + 1

    await execute_exclusive(client, key, task)


async def is_done(truth: AsyncClient, key: str) -> int:
    return int(await Once(truth).look(key) is not None)


async def run_once(client: AsyncClient, key: str) -> None:
    async def work(_: object) -> None: ...

    await Once(client).run(key, work)


async def job_runs(truth: AsyncClient, key: str) -> int:
    view = await Jobs(truth).look(key)
    return 0 if view is None else sum(each.state == "done" for each in view.runs)


async def run_job(client: AsyncClient, key: str) -> None:
    async def work(_: object) -> None: ...

    reply = await Job(client, key, every="8760h", timeout=20).run(work)
    assert reply.state == "ran"


async def open_or_decided(truth: AsyncClient, key: str) -> int:
    return int(await CommitLog(truth, key).look("order") is not None)


async def a_leader_and_a_candidate(client: AsyncClient, key: str) -> Election[AsyncClient]:
    leading, other = Election(client, key), Election(client, key, timeout=60)
    await leading.campaign()
    candidacy = client.background.start(other.campaign(), "a candidate")
    while not (await leading.who()).candidates:
        assert not candidacy.done()
        await asyncio.sleep(0.01)
    return leading


async def is_handed_over(truth: AsyncClient, key: str) -> int:
    view = await truth.election(key)
    return int(view.elected is not None and not view.candidates)


async def commit(client: AsyncClient, key: str) -> None:
    done = await CommitLog(client, key, timeout=20).run("order", ["one"], timeout=0)
    assert done.state == "aborted", "no site voted"


Voting = tuple[CommitSite[AsyncClient], Transaction, "asyncio.Task[Transaction]"]


async def an_open_transaction(client: AsyncClient, key: str) -> Voting:
    running = client.background.start(
        CommitLog(client, key, timeout=20).run("order", ["one"], timeout=20), "a transaction"
    )
    site = CommitSite(client, key, "one")
    (transaction,) = await site.due(20)
    return site, transaction, running


async def vote(client: AsyncClient, key: str, given: Voting) -> None:
    site, transaction, running = given
    try:
        await site.vote(transaction, True)
    finally:
        running.cancel()


async def voted(truth: AsyncClient, key: str) -> int:
    found = await CommitLog(truth, key).look("order")
    assert found is not None
    return int(found.sites["one"] != "asked")


HELD: dict[str, Any] = {"withdraws": True, "timeout_s": 1.0}
VERBS: dict[str, Verb] = {
    "WorkQueue.put": Verb(lambda client, key, _: WorkQueue(client, key).put(b"x"), items),
    "WorkQueue.take": Verb(lambda client, key, _: take(client, key), claims, an_item, **HELD),
    "Delivery.ack": Verb(
        lambda client, key, delivery: delivery.ack(), is_empty, a_delivery, returns=True
    ),
    "Delivery.nack": Verb(
        lambda client, key, delivery: delivery.nack("no"), items, a_delivery, returns=True
    ),
    "Counter": Verb(
        lambda client, key, _: Counter(client, key).add(),
        lambda truth, key: Counter(truth, key).value(),
    ),
    "TokenBucket": Verb(
        lambda client, key, _: TokenBucket(client, key, rate=1e-9, burst=BURST).take(),
        taken,
        returns=True,
    ),
    "Flag": Verb(lambda client, key, _: Flag(client, key).set(b"x"), is_set),
    "Barrier.close": Verb(lambda client, key, _: Barrier(client, key).close(), is_closed),
    "Barrier.open": Verb(lambda client, key, _: Barrier(client, key).open(), is_open, close),
    "Condition": Verb(lambda client, key, _: Condition(client, key).notify(), notified),
    "Latch": Verb(lambda client, key, _: Latch(client, key, 5).count_down(), counted_down),
    "DoubleBarrier": Verb(
        lambda client, key, _: DoubleBarrier(client, key, 1).enter(1), is_in, **HELD
    ),
    "Group": Verb(lambda client, key, _: Group(client, key).join("me", timeout=1), members, **HELD),
    "Membership": Verb(
        lambda client, key, me: me.update({"n": 1}), is_updated, a_member, returns=True
    ),
    "Pool": Verb(lambda client, key, _: Pool(client, key, ["a", "b"]).borrow(), lent, **HELD),
    "CachedValue": Verb(
        lambda client, key, _: CachedValue(client, key).set(b"new"), written, timeout_s=1.0
    ),
    "Configuration": Verb(
        lambda client, key, _: Configuration(client, key).change({"a": 1}), changes
    ),
    "ManualLock.acquire": Verb(
        lambda client, key, _: ManualLock(client, key).acquire("to see"), by_hand, **HELD
    ),
    "ManualLock.release": Verb(
        lambda client, key, held: ManualLock(client, key).release(held.fencing_token),
        not_by_hand,
        a_hold,
        returns=True,
    ),
    "Once": Verb(lambda client, key, _: run_once(client, key), is_done, **HELD),
    "Job": Verb(lambda client, key, _: run_job(client, key), job_runs, **HELD),
    "exclusive": Verb(lambda client, key, _: run_exclusively(client, key), ran, **HELD),
    "ReentrantLock": Verb(
        lambda client, key, _: ReentrantLock(client, key).acquire(), holders, **HELD
    ),
    "RWLock": Verb(lambda client, key, _: RWLock(client, key).read().acquire(), holders, **HELD),
    "Semaphore": Verb(lambda client, key, _: Semaphore(client, key, 3).acquire(), holders, **HELD),
    "a weighed Election": Verb(
        lambda client, key, _: Election(client, key, weight=3).campaign(), candidates, **HELD
    ),
    "Election.hand_over": Verb(
        lambda client, key, election: election.hand_over(), is_handed_over, a_leader_and_a_candidate
    ),
    "CommitLog": Verb(lambda client, key, _: commit(client, key), open_or_decided, **HELD),
    "CommitSite.vote": Verb(vote, voted, an_open_transaction),
}
"""Each leaves something that can be counted."""


@pytest.mark.check
@pytest.mark.parametrize("name", VERBS)
async def test_what_a_recipe_says_of_a_broken_connection_is_never_wrong(name: str) -> None:
    """Whatever was passed on of any of its requests and answers."""
    await examine(VERBS[name], step=61, transport="http")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "stream"])
@pytest.mark.parametrize("name", VERBS)
async def test_it_is_never_wrong_after_any_byte(name: str, transport: TransportName) -> None:
    """The same, after each seventh byte, and by the stream."""
    await examine(VERBS[name], step=7, transport=transport)
