"""Counters, flags, latches and barriers: threads, arguments, and what a lost answer does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from coordinator.client import AsyncClient, Create, IfHeld, Request, SetData, connect
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    NotOwnerError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes import (
    Barrier,
    Condition,
    Configuration,
    Counter,
    DoubleBarrier,
    Flag,
    Group,
    Latch,
    Lock,
    WorkQueue,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.ephemeral import make
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.client.virtual_time import LoopClock


def test_threads_wait_as_tasks_do() -> None:
    """With a sync client, each verb waits in the thread that calls it."""
    with serving() as url, connect(url) as client, connect(url) as other:
        later = threading.Timer(0.2, Flag(other, "go").set, [b"now"])
        later.start()
        assert Flag(client, "go").wait(20) == b"now"
        assert Counter(client, "n").add(3) == 3
        assert Barrier(client, "b").wait(0)
        gates = [DoubleBarrier(each, "g", 2) for each in (client, other)]
        entering = threading.Thread(target=gates[1].enter, args=[20])
        entering.start()
        assert gates[0].enter(20)
        entering.join()
        assert gates[0].is_in
        assert not gates[0].leave(0)
        assert gates[1].leave(20)
        assert gates[0].leave(20)
        assert Latch(client, "l", 1).count_down("a") == 0
        changed, seen = Condition(client, "c"), [0]

        def look() -> bool:
            seen[0] += 1
            if seen[0] == 1:
                Condition(other, "c").notify()
            return seen[0] == 2

        assert changed.wait_for(look, 20)
        assert not changed.wait_for(lambda: False, 0.1)
        later.join()


@in_memory
async def test_a_lost_answer_counts_once(world: MemoryCluster) -> None:
    """The addition, the count and the place are asked for again under the same number."""
    network = world.network()
    async with world.client(network) as client:
        counter, latch = Counter(client, "n"), Latch(client, "l", 3)
        for total in (1, 2, 3):
            network.lose_one_reply("POST", "/v1/multi")
            assert await counter.add() == total
        network.lose_one_reply("POST", "/v1/multi")
        assert await latch.count_down() == 2
        network.lose_one_reply("POST", "/v1/multi")
        assert not await DoubleBarrier(client, "g", 2).enter(0.5)
        assert (await client.children("/double-barriers/g/round-0000000000")).names == ()


@in_memory
async def test_a_counter_that_was_deleted_begins_again(world: MemoryCluster) -> None:
    """Who has added before does not take the next one for it, though its version is the same."""
    async with world.client() as client, world.client() as other:
        counter = Counter(client, "n")
        assert await counter.add(5) == 5
        await other.delete("/counters/n")
        assert await Counter(other, "n").add(100) == 100

        assert await counter.add(1) == 101


@in_memory
async def test_what_was_made_too_late_is_taken_away_again(world: MemoryCluster) -> None:
    """Its caller was told that nothing is left, and its session lives on."""
    network = world.network()
    async with world.client(network, timeout=1) as client, world.client() as other:
        session = await client.session()
        network.loses_reply_of = lambda request: "multi" in request.target
        create = Create(
            "/x/a", data=b"", mode="ephemeral", session_id=session.session_id, parents="container"
        )
        with pytest.raises(UnavailableError, match="it is taken away again"):
            await make(client, session, "/x/a", [], [create])
        assert await other.exists("/x/a") is not None
        network.loses_reply_of = lambda request: False
        await asyncio.sleep(10)

        assert await other.exists("/x/a") is None
        assert not session.is_lost


@in_memory
async def test_who_is_cancelled_while_it_is_made_undoes_what_came_with_it(
    world: MemoryCluster,
) -> None:
    """So the attempt of a worker that never got its item is not counted."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        await other.create("/x", b"0")
        session = await client.session()
        network.delays_s = lambda request: 0.3
        create = Create("/x/claim", data=b"", mode="ephemeral", session_id=session.session_id)
        counted, not_counted = SetData("/x", b"1"), SetData("/x", b"0")
        making = asyncio.create_task(
            make(client, session, "/x/claim", [], [counted, create], undo=[not_counted])
        )
        await asyncio.sleep(0.1)
        assert (await other.get("/x")).data == b"1"
        making.cancel()
        await asyncio.wait({making})
        await asyncio.sleep(5)

        assert await other.exists("/x/claim") is None
        assert (await other.get("/x")).data == b"0"


@in_memory
async def test_trouble_that_is_over_is_no_error_when_the_time_is_up(world: MemoryCluster) -> None:
    """No member answered for a while; since then it is known that nothing is there."""
    network = world.network()
    async with world.client(network, timeout=1) as client:
        waiting = asyncio.create_task(Flag(client, "f").wait(timeout=40))
        network.is_refusing = True
        await asyncio.sleep(10)
        network.is_refusing = False

        assert await waiting is None


@in_memory
async def test_nobody_is_first_for_long(world: MemoryCluster) -> None:
    """Twenty clients at once: each gets a number of its own."""
    async with world.client() as client, world.client() as other:
        counters = [Counter(each, "n") for each in (client, other) for _ in range(10)]

        drawn = await asyncio.gather(*(each.add() for each in counters))

        assert sorted(each or 0 for each in drawn) == list(range(1, 21))


@in_memory
async def test_only_a_holder_sets_what_asks_for_a_grant(world: MemoryCluster) -> None:
    """``if_held`` is looked at in the command that writes."""
    async with world.client() as client:
        grant = await Lock(client, "ops").acquire()
        await Flag(client, "f").set(b"1", if_held=grant)
        await Barrier(client, "b").close(if_held=grant)
        await grant.release()
        late = IfHeld("ops", grant.fencing_token)
        for write in (
            Flag(client, "f").set(b"2", if_held=late),
            Barrier(client, "b").open(if_held=late),
            Counter(client, "n").add(if_held=late),
            Latch(client, "l", 1).count_down(if_held=late),
            Condition(client, "c").notify(if_held=late),
        ):
            with pytest.raises(LockLostError):
                await write
        assert await Flag(client, "f").value() == b"1"


@in_memory
async def test_waiting_goes_on_while_no_member_answers(world: MemoryCluster) -> None:
    """What came meanwhile is seen; if it ends in the dark, that is said and not "not in time"."""
    network = world.network()
    async with world.client(network, timeout=1) as client, world.client() as other:
        waiting = asyncio.create_task(Flag(client, "f").wait(60))
        await asyncio.sleep(1)
        network.is_cut = True
        await asyncio.sleep(5)
        await Flag(other, "f").set(b"x")
        await asyncio.sleep(20)
        network.is_cut = False
        assert await waiting == b"x"
        network.is_refusing = True
        with pytest.raises(UnavailableError):
            await Flag(client, "g").wait(5)


WAITS: dict[str, Callable[[AsyncClient], Awaitable[object]]] = {
    "flag": lambda client: Flag(client, "f").wait(1),
    "barrier": lambda client: Barrier(client, "b").wait(1),
    "latch": lambda client: Latch(client, "l", 2).wait(1),
    "condition": lambda client: Condition(client, "c").wait(0, 1),
    "leave": lambda client: DoubleBarrier(client, "g", 2).leave(1),
    "join": lambda client: Group(client, "w").join("a", timeout=1),
    "put": lambda client: WorkQueue(client, "q").put(b"x", timeout=1),
    "configuration": lambda client: Configuration(client, "s").watch().next(1),
}


@pytest.mark.parametrize("verb", WAITS)
@in_memory
async def test_a_wait_that_ends_in_the_dark_says_so(world: MemoryCluster, verb: str) -> None:
    """Its time is shorter than the client's, so no request of it has failed yet."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()
        network.is_cut = True
        began = asyncio.get_running_loop().time()

        with pytest.raises(UnavailableError, match="no member answered at the end of the time"):
            await WAITS[verb](client)

        assert asyncio.get_running_loop().time() - began < 2.1
        network.is_cut = False


@pytest.mark.parametrize("verb", ["flag", "condition", "configuration"])
@in_memory
async def test_a_watch_that_went_dark_is_not_taken_for_no_change(
    world: MemoryCluster, verb: str
) -> None:
    """What was set while this client was cut off is unknown here, and not "not in time"."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        waits = {
            "flag": Flag(client, "f").wait(5),
            "condition": Condition(client, "c").wait(0, 5),
            "configuration": _after_the_first(Configuration(client, "s")),
        }
        waiting = asyncio.create_task(waits.pop(verb))
        for each in waits.values():
            each.close()
        await asyncio.sleep(1)
        network.is_cut = True
        await Flag(other, "f").set(b"x")
        await Condition(other, "c").notify()
        await Configuration(other, "s").change({"n": 2})

        with pytest.raises(UnavailableError, match="no member answered at the end of the time"):
            await waiting

        network.is_cut = False


async def _after_the_first(configuration: Configuration[AsyncClient]) -> object:
    stream = configuration.watch()
    await stream.next(5)
    return await stream.next(5)


@in_memory
async def test_what_came_as_the_time_was_up_is_seen(world: MemoryCluster) -> None:
    """The watch begins a while after the look; the last look sees what it has not said."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        network.delays_s = lambda request: 0.9 if "watch" in request.target else 0.0
        waiting = asyncio.create_task(Flag(client, "f").wait(0.5))
        await asyncio.sleep(0.2)
        await Flag(other, "f").set(b"x")
        assert await waiting == b"x"


@in_memory
async def test_a_member_whose_session_is_lost_is_told(world: MemoryCluster) -> None:
    """It does not begin with the others, nor is it counted."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        gate = DoubleBarrier(client, "g", 2)
        waiting = asyncio.create_task(gate.enter(60))
        await asyncio.sleep(0.5)
        network.is_cut = True
        await asyncio.sleep(4)

        assert not await DoubleBarrier(other, "g", 2).enter(2)
        with pytest.raises(SessionExpiredError):
            await waiting
        assert not gate.is_in


@in_memory
async def test_a_change_between_the_look_and_the_watch_is_seen(world: MemoryCluster) -> None:
    """The watch begins before the next look."""
    async with world.client() as client, world.client() as other:
        looks = 0

        async def look() -> bytes | None:
            nonlocal looks
            looks += 1
            value = await Flag(client, "f").value()
            if looks == 1:
                await Flag(other, "f").set(b"x")
            return value

        began = asyncio.get_running_loop().time()
        assert await until(client, "/flags/f", "znode", look, 10_000) == b"x"
        assert asyncio.get_running_loop().time() - began < 1


@in_memory
async def test_a_round_does_not_begin_with_who_has_just_left(world: MemoryCluster) -> None:
    """All were there when the last one looked; one leaves before it begins the round."""
    networks, begun = [world.network(), world.network()], 0
    async with world.client(networks[0]) as client, world.client(networks[1]) as other:

        async def one_leaves(request: Request) -> None:
            nonlocal begun
            if b"\xa3set" in (request.body or b""):
                begun += 1
                leaving.cancel()
                await asyncio.sleep(1)

        for network in networks:
            network.before = one_leaves
        leaving = asyncio.create_task(DoubleBarrier(other, "g", 2).enter(60))
        await asyncio.sleep(1)

        assert not await DoubleBarrier(client, "g", 2).enter(5)
        assert begun


@in_memory
async def test_who_gives_up_in_the_instant_when_the_round_begins_is_in_it(
    world: MemoryCluster,
) -> None:
    """Its time was up, and before it left, the last one came: the others count on it."""
    network, has_come = world.network(), False
    async with world.client(network) as client, world.client() as other:

        async def last_comes(request: Request) -> None:
            nonlocal has_come
            if not has_come and b"\xa6delete" in (request.body or b""):
                has_come = True
                assert await DoubleBarrier(other, "g", 2).enter(60)

        network.before = last_comes

        assert await DoubleBarrier(client, "g", 2).enter(1)
        assert has_come


@in_memory
async def test_an_answer_older_than_a_pause_is_not_relied_upon(world: MemoryCluster) -> None:
    """The process sleeps while the answer is under way; the others may have gone on."""
    network, clock = world.network(), LoopClock(asyncio.get_running_loop())
    async with world.client(network, clock=clock) as client, world.client() as other:
        gates = [DoubleBarrier(each, "g", 2) for each in (client, other)]
        entering = asyncio.create_task(gates[0].enter(60))
        await asyncio.sleep(1)
        network.delays_s = lambda request: 0.3
        assert await gates[1].enter(60)
        await asyncio.sleep(0.15)
        clock.paused_ms += 60_000

        with pytest.raises(SessionExpiredError):
            await entering
        assert not gates[0].is_in


@in_memory
async def test_arguments_and_foreign_znodes_are_refused(world: MemoryCluster) -> None:
    """What was expected and what was found."""
    async with world.client() as client:
        for make in (Counter, Flag, Barrier, Condition):
            for name in ("", "x" * 201, None, "\ud800"):
                with pytest.raises(BadArgumentsError, match="name: expected"):
                    make(client, name)
        for number in (True, 1.5, 2**63):
            with pytest.raises(BadArgumentsError, match="number: expected"):
                await Counter(client, "n").add(number)  # type: ignore[arg-type]
        assert await Counter(client, "n").add(2**63 - 1) == 2**63 - 1
        assert await Counter(client, "n").add() is None
        await client.set("/counters/n", b"many")
        with pytest.raises(BadArgumentsError, match="expected a Counter, found b'many'"):
            await Counter(client, "n").value()
        for size in (0, 201, True):
            with pytest.raises(BadArgumentsError, match="size: expected 1 to 200"):
                DoubleBarrier(client, "g", size)
        with pytest.raises(BadArgumentsError, match="count: expected 1 to"):
            Latch(client, "l", 0)
        gate = DoubleBarrier(client, "g", 1)
        assert await gate.enter(1)
        with pytest.raises(NotOwnerError, match="expected to have left"):
            await gate.enter(1)
        await client.set("/double-barriers/g", b"x")
        with pytest.raises(BadArgumentsError, match="expected a DoubleBarrier"):
            await DoubleBarrier(client, "g", 1).enter(1)


@in_memory
async def test_one_object_is_one_member(world: MemoryCluster) -> None:
    """A second task that enters by it is refused: it would be counted for another program."""
    async with world.client() as client:
        gate = DoubleBarrier(client, "g", 2)
        entering = asyncio.create_task(gate.enter(5))
        await asyncio.sleep(0.5)
        with pytest.raises(NotOwnerError, match="one object is one member"):
            await gate.enter(5)
        assert not await entering
        assert not await gate.enter(1)  # and it may be used again


@in_memory
async def test_a_late_answer_of_another_task_refuses_nothing(world: MemoryCluster) -> None:
    """What the counter was before a task began does not say that there is too little now."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        counter, elsewhere = Counter(client, "n"), Counter(other, "n")
        await elsewhere.add(0)
        network.delays_s = lambda request: 1.0 if request.method == "GET" else 0.0
        looking = asyncio.create_task(counter.value())
        await asyncio.sleep(0.5)
        await elsewhere.add(5)
        network.delays_s = lambda request: 0.0
        writes = 0

        async def be_late(request: Request) -> None:
            """Another is first, and the old answer arrives before the next try."""
            nonlocal writes
            writes += request.method == "POST"
            if writes == 1 and request.method == "POST":
                await elsewhere.add(1)
                await asyncio.sleep(0.4999)

        network.before = be_late
        assert await counter.add(-5, at_least=0) == 1
        assert (writes, await looking) == (2, 0)


@in_memory
async def test_a_latch_of_many_counts_is_reset(world: MemoryCluster) -> None:
    """Though it has more znodes than one command deletes; by two at once, too."""
    async with world.client() as client:
        latch = Latch(client, "import", 3_000)
        for begin in range(0, 3_000, 100):
            parts = range(begin, begin + 100)
            await client.multi(
                [Create("/latches/import", b"3000", parents="persistent")] * (begin == 0)
                + [Create(f"/latches/import/part-{each}") for each in parts]
            )
        assert await latch.left() == 0
        assert True in await asyncio.gather(latch.reset(), latch.reset())
        assert await latch.left() == 3_000
        assert await latch.count_down(7) == 2_999
        assert await latch.reset()
        assert not await latch.reset()
