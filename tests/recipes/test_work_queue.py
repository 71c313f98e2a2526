"""Work queues: nothing is lost, and twice is only what a worker did not bring to its end."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from contextlib import nullcontext

import pytest

from coordinator.client import AsyncClient, Create, IfHeld, connect
from coordinator.client.calling.transport import Request
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    LockLostError,
    NodeExistsError,
    OutcomeUnknownError,
    QuotaExceededError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes import WorkQueue
from coordinator.recipes.work_queue import QueueStats
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.storm import Life, Storm, left_below, storm


async def bodies(queue: WorkQueue[AsyncClient]) -> list[bytes]:
    """Take and acknowledge all that is free now."""
    found = []
    while (delivery := await queue.take()) is not None:
        found.append(delivery.body)
        assert await delivery.ack()
    return found


def test_threads_put_and_take() -> None:
    """With a sync client; ``with`` acknowledges, or returns the item with the reason."""
    with serving() as url, connect(url) as client, connect(url) as other:
        queue = WorkQueue(client, "mails")
        later = threading.Timer(0.2, lambda: WorkQueue(other, "mails").put(b"late"))
        later.start()
        delivery = queue.take(timeout=20)
        assert delivery is not None
        with pytest.raises(KeyError), delivery:
            raise KeyError("mine")
        again = queue.take()
        assert again is not None
        assert (again.body, again.attempt, again.item.reason) == (b"late", 2, "KeyError: 'mine'")
        assert again.fencing_token > delivery.fencing_token
        with again:
            pass
        assert not again.ack()
        assert not delivery.ack()
        assert queue.take() is None
        assert queue.stats().ready == 0
        later.join()


@pytest.mark.parametrize("error", [None, KeyError("mine")], ids=["body ends", "body fails"])
def test_a_settled_delivery_asks_nothing_at_the_end_of_with(error: KeyError | None) -> None:
    """What is acknowledged is done, though the client is closed before the body ends."""
    with serving() as url, connect(url) as client, connect(url) as other:
        queue = WorkQueue(client, "mails")
        queue.put(b"first")
        delivery = queue.take()
        assert delivery is not None
        with nullcontext() if error is None else pytest.raises(KeyError), delivery:
            assert delivery.ack()
            client.close()
            if error is not None:
                raise error
        assert WorkQueue(other, "mails").stats().ready == 0


@in_memory
async def test_items_come_by_priority_then_as_they_were_put(world: MemoryCluster) -> None:
    """Due ones first among their priority; a batch keeps its order."""
    async with world.client() as client:
        queue = WorkQueue(client, "q")
        await queue.put(b"d1", delay=2)
        await queue.put(b"n1", b"n2", b"n3")
        await queue.put(b"low", priority=9)
        await queue.put(b"high", priority=0)

        assert (await queue.stats()).delayed == 1
        assert await bodies(queue) == [b"high", b"n1", b"n2", b"n3", b"low"]
        await queue.put(b"n4")
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(3)
        assert await bodies(queue) == [b"d1", b"n4"]
        assert asyncio.get_running_loop().time() - began >= 2


@in_memory
async def test_a_delay_is_never_too_short(world: MemoryCluster) -> None:
    """A worker that waits is woken when the leader takes the delay away."""
    async with world.client() as client:
        queue = WorkQueue(client, "q")
        await queue.put(b"x")
        first = await queue.take()
        assert first is not None
        assert await first.nack("busy", delay=5)
        began = asyncio.get_running_loop().time()

        again = await queue.take(timeout=20)

        assert again is not None
        assert 5 <= asyncio.get_running_loop().time() - began < 6
        assert again.item.reason == "busy"


@in_memory
async def test_what_always_fails_becomes_a_dead_letter(world: MemoryCluster) -> None:
    """With the last reason; it can be delivered again."""
    async with world.client() as client:
        queue = WorkQueue(client, "q", attempts_max=2)
        await queue.put(b"a", b"b", b"c")
        for _ in range(2):
            delivery = await queue.take()
            assert delivery is not None
            assert await delivery.nack("refused")
        delivery = await queue.take()
        assert delivery is not None
        assert await delivery.reject("no such address")
        assert await queue.take() is not None

        letters = {each.body: (each.attempts, each.reason) for each in await queue.dead()}
        assert letters == {b"a": (2, "refused"), b"b": (1, "no such address")}
        assert await queue.stats() == QueueStats(
            ready=0, in_flight=1, delayed=0, dead=2, oldest_ready_ms=0
        )
        (name,) = [each.name for each in await queue.dead() if each.body == b"b"]
        assert await queue.revive(name)
        assert not await queue.revive(name)
        assert await bodies(queue) == [b"b"]


@in_memory
async def test_a_worker_that_dies_leaves_its_item_to_the_next(world: MemoryCluster) -> None:
    """At the end of its session; after too many deaths the item is a dead letter."""
    async with world.client() as client:
        queue = WorkQueue(client, "q", attempts_max=3)
        await queue.put(b"x")
        tokens = []
        for attempt in (1, 2, 3):
            network = world.network()
            async with world.client(network, session_timeout=2) as worker:
                delivery = await WorkQueue(worker, "q", attempts_max=3).take(timeout=20)
                assert delivery is not None
                assert delivery.attempt == attempt
                tokens.append(delivery.fencing_token)
                network.is_cut = True
                await asyncio.sleep(3)
                assert delivery.is_lost
                with pytest.raises(SessionExpiredError):
                    delivery.check()
        assert tokens == sorted(set(tokens))
        assert await queue.take(timeout=1) is None
        (letter,) = await queue.dead()
        assert letter.reason == "delivered 3 times, and never acknowledged"


@in_memory
async def test_a_worker_that_wakes_late_changes_nothing(world: MemoryCluster) -> None:
    """Its item is another's, or done: each verb says that it is not ours."""
    network = world.network()
    async with world.client(network, session_timeout=2) as late, world.client() as client:
        queue = WorkQueue(client, "q")
        await queue.put(b"x")
        old = await WorkQueue(late, "q").take()
        assert old is not None
        network.is_cut = True
        new = await queue.take(timeout=20)
        assert new is not None
        network.is_cut = False

        assert not await old.ack([Create("/charged")])
        assert not await old.nack()
        assert not await old.reject("late")
        with pytest.raises(SessionExpiredError, match="not ours any more"):
            async with old:
                pass
        assert await client.exists("/charged") is None
        assert await new.ack([Create("/charged")])
        assert await client.exists("/charged") is not None


@in_memory
async def test_a_lost_answer_is_asked_for_again(world: MemoryCluster) -> None:
    """Put, take and ack are done once; an ack of unknown end may be repeated."""
    network = world.network()
    async with world.client(network, timeout=2) as client:
        queue = WorkQueue(client, "q")
        for verb in ("put", "take", "ack"):
            network.lose_one_reply("POST", "/v1/multi")
            if verb == "put":
                await queue.put(b"x")
            elif verb == "take":
                delivery = await queue.take()
                assert delivery is not None
            else:
                assert await delivery.ack()
        await queue.put(b"y", b"z")
        one, two = await queue.take(), await queue.take()
        assert one is not None
        assert two is not None
        for delivery in (one, two):
            network.loses_reply_of = lambda request: "multi" in request.target
            with pytest.raises((OutcomeUnknownError, UnavailableError)):
                await delivery.ack()
            network.loses_reply_of = lambda request: False
        assert await one.ack()
        assert not await two.nack("another verb was not done")
        assert await bodies(queue) == []


@in_memory
async def test_an_attempt_of_another_worker_in_between_is_counted(world: MemoryCluster) -> None:
    """It took the item and returned it after this one had read it."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        await WorkQueue(other, "q").put(b"x")
        returned: list[bool] = []

        async def between(request: Request) -> None:
            if "multi" in request.target and not returned:
                network.before = nothing_before
                delivery = await WorkQueue(other, "q").take()
                assert delivery is not None
                returned.append(await delivery.nack("broken"))

        nothing_before, network.before = network.before, between
        delivery = await WorkQueue(client, "q").take(timeout=20)

        assert returned == [True]
        assert delivery is not None
        assert (delivery.attempt, delivery.item.reason) == (2, "broken")


@in_memory
async def test_an_ack_of_unknown_end_stays_unknown_once_the_session_has_ended(
    world: MemoryCluster,
) -> None:
    """The claim has gone, with the ack or with the session: here it was the session."""
    network = world.network()
    async with (
        world.client(network, session_timeout=2, timeout=1) as late,
        world.client() as client,
    ):
        queue = WorkQueue(client, "q")
        await queue.put(b"x")
        delivery = await WorkQueue(late, "q").take()
        assert delivery is not None
        network.is_cut = True
        with pytest.raises(OutcomeUnknownError):
            await delivery.ack()
        await asyncio.sleep(5)
        network.is_cut = False

        with pytest.raises(OutcomeUnknownError, match="the session has ended since"):
            await delivery.ack()
        assert await bodies(queue) == [b"x"]


@in_memory
async def test_an_ack_goes_on_when_its_caller_is_cancelled(world: MemoryCluster) -> None:
    """Whether its request has been sent or not; with what it does besides, once."""
    async with world.client(world.network(way_passes=3)) as client:
        await client.create("/done")
        queue = WorkQueue(client, "q")
        for passes in (1, 2, 4, 8):
            await queue.put(b"a")
            delivery = await queue.take()
            assert delivery is not None
            count = Create("/done/n-", mode="persistent_sequential")
            acking = asyncio.create_task(delivery.ack([count]))
            for _ in range(passes):
                await asyncio.sleep(0)
            acking.cancel()
            await asyncio.wait({acking})
            await asyncio.sleep(1)

            assert acking.cancelled()
            assert await queue.stats() == QueueStats(
                ready=0, in_flight=0, delayed=0, dead=0, oldest_ready_ms=0
            )
            assert await delivery.ack()
        assert len((await client.children("/done")).names) == 4


@in_memory
async def test_a_cancelled_ack_that_is_refused_returns_the_item(world: MemoryCluster) -> None:
    """What it would do besides cannot be done, and nobody is there to hear that."""
    async with world.client(world.network(way_passes=3)) as client:
        queue = WorkQueue(client, "q")
        await queue.put(b"a")
        delivery = await queue.take()
        assert delivery is not None
        acking = asyncio.create_task(delivery.ack([Create("/queues")]))
        await asyncio.sleep(0)
        acking.cancel()
        await asyncio.sleep(1)

        assert (await queue.stats()).ready == 1


@in_memory
async def test_an_item_is_put_with_other_writes_or_not_at_all(world: MemoryCluster) -> None:
    """The outbox: the order and its mail in one command, and only once."""
    async with world.client() as client:
        queue = WorkQueue(client, "mails")
        order = [Create("/order-7", b"paid"), *queue.operations(b"thank you", delay=0)]
        await client.multi(order)
        with pytest.raises(NodeExistsError):
            await client.multi(order)
        with pytest.raises(LockLostError):
            await queue.put(b"x", if_held=IfHeld("ops", 7))

        assert await bodies(queue) == [b"thank you"]


@in_memory
async def test_a_full_queue_lets_nobody_put_until_there_is_room(world: MemoryCluster) -> None:
    """It waits for that, or says that nothing was put."""
    async with world.client() as client:
        queue = WorkQueue(client, "q", length_max=2)
        await queue.put(b"a")
        with pytest.raises(QuotaExceededError, match="room for 2 more of 2 items"):
            await queue.put(b"b", b"c")  # there is room for one of them
        await queue.put(b"b")
        with pytest.raises(QuotaExceededError, match="nothing was put"):
            await queue.put(b"c")
        waiting = asyncio.create_task(queue.put(b"c", timeout=60))
        await asyncio.sleep(1)
        assert not waiting.done()
        delivery = await queue.take()
        assert delivery is not None
        await asyncio.sleep(1)
        assert not waiting.done()
        await delivery.ack()
        await waiting
        stats = await queue.stats()
        assert (stats.ready, stats.in_flight, stats.delayed, stats.dead) == (2, 0, 0, 0)


@in_memory
async def test_of_many_that_wait_one_looks(world: MemoryCluster) -> None:
    """A new item wakes one worker; they get items in the order in which they came."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        queue = WorkQueue(client, "q")
        got: list[tuple[int, bytes]] = []

        async def take(number: int) -> None:
            delivery = await queue.take(timeout=60)
            assert delivery is not None
            got.append((number, delivery.body))
            await delivery.ack()

        waiting = []
        for number in range(20):
            waiting.append(asyncio.create_task(take(number)))
            await asyncio.sleep(0.1)
        before = network.count("GET", "children")
        await WorkQueue(other, "q").put(b"0")
        await asyncio.sleep(1)
        assert network.count("GET", "children") - before < 10
        for number in range(1, 20):
            await WorkQueue(other, "q").put(str(number).encode())
        await asyncio.gather(*waiting)

        assert got == [(number, str(number).encode()) for number in range(20)]


@in_memory
async def test_arguments_are_refused_and_foreign_znodes_are_items(world: MemoryCluster) -> None:
    """An item may be put with curl: all its data is the body."""
    async with world.client() as client:
        queue = WorkQueue(client, "q")
        for bad in ({"attempts_max": 0}, {"length_max": True}):
            with pytest.raises(BadArgumentsError, match="expected an integer from 1"):
                WorkQueue(client, "q", **bad)
        with pytest.raises(BadArgumentsError, match="priority: expected 0"):
            await queue.put(b"x", priority=10)
        with pytest.raises(BadArgumentsError, match="delay: expected seconds"):
            await queue.put(b"x", delay=-1)
        with pytest.raises(BadArgumentsError, match="bodies: expected 1 to 300"):
            await queue.put()
        foreign = (b"", b"plain", b'{"queue_item": 1}\nx', b"[1]\ny", b"\xff\n")
        for number, data in enumerate(foreign):
            await client.create(f"/queues/q/items/5-{number}", data, parents="persistent")

        assert await bodies(queue) == list(foreign)


@pytest.mark.parametrize(
    "seed",
    [
        1,
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12)),
    ],
)
def test_nothing_is_lost_and_twice_is_only_what_was_not_acknowledged(seed: int) -> None:
    """Workers are killed at random, at any step; each item is acknowledged once in the end."""
    put: set[bytes] = set()
    acked: dict[bytes, int] = defaultdict(int)
    begun: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    unsure: set[tuple[bytes, int]] = set()
    """By delivery: one that comes too late and is told so says nothing of another's."""

    async def produce(life: Life) -> None:
        queue = WorkQueue(life.client, "q", length_max=30)
        number = 0
        while not life.storm.is_over:
            number += 1
            body = f"{life.name}-{number}".encode()
            try:
                await queue.put(body, timeout=3, priority=life.random.choice([0, 5]))
                put.add(body)
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random())

    async def consume(life: Life) -> None:
        queue = WorkQueue(life.client, "q", attempts_max=1_000)
        while True:
            try:
                delivery = await queue.take(timeout=life.random.choice([0, 2, 30]))
                if delivery is None:
                    if life.storm.is_over:
                        return
                    continue
                body = delivery.body
                assert not acked[body], "it was acknowledged"
                begun[body].append((delivery.fencing_token, delivery.attempt))
                await asyncio.sleep(life.random.random() * 2)
                if life.random.random() < 0.2:
                    await delivery.nack("once more", delay=life.random.choice([0, 2]))
                    continue
                unsure.add((body, delivery.fencing_token))
                if await delivery.ack():
                    acked[body] += 1
                unsure.discard((body, delivery.fencing_token))
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1

    async def work(life: Life) -> None:
        await (produce if life.number == 0 else consume)(life)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        queue = WorkQueue(observer, "q", attempts_max=1_000)
        for body in await bodies(queue):  # what its last worker died with
            acked[body] += 1
        assert await left_below(observer, "/queues") == []
        stats = await queue.stats()
        assert (stats.ready, stats.in_flight, stats.dead) == (0, 0, 0)
        for body in put:
            assert acked[body] == 1 or body in {each for each, _ in unsure}, body
        assert max(acked.values()) == 1
        for body, deliveries in begun.items():
            assert deliveries == sorted(deliveries), body
            blown.met["again"] += len(deliveries) > 1
        blown.met["done"] = len(acked)

    storm(seed, work, judge=judge, clients=5).check(done=20, again=3, kill=1)
