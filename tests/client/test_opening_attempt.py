"""The first attempt of a client opens its session: one entry, one session, and a lease that counts
from when the attempt was first sent."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Request, RetryPolicy
from coordinator.client.calling.turns import TURNS_MAX, AttemptTurns
from coordinator.client.in_process import _MemoryConnector
from coordinator.errors import LockTimeoutError, OutcomeUnknownError, UnavailableError
from coordinator.recipes import FOREVER, Lock, WorkQueue
from tests.client.memory_cluster import MemoryCluster, in_memory


@in_memory
async def test_a_first_acquire_and_its_release_are_one_entry_each(world: MemoryCluster) -> None:
    """One request and one answer for each, and no session is opened beside them."""
    network = world.network()
    async with world.client() as observer, world.client(network, label="worker 7") as client:
        await observer.create("/first")  # behind what a new cluster proposes by itself
        before = world.proposals

        grant = await Lock(client, "daily", label="report").acquire()
        await grant.release()

        assert world.proposals == before + 2
        posted = [each for each in network.sent if each.startswith("POST")]
        assert posted == ["POST /v1/locks/daily"]
        (session,) = await observer.sessions()
        assert session.label == "worker 7"
        assert session.session_id == (await client.session()).session_id
    async with world.client() as observer:
        assert await observer.sessions() == ()  # the client has closed it


@in_memory
async def test_repeated_it_opens_one_session_whose_lease_counts_from_the_first_sending(
    world: MemoryCluster,
) -> None:
    """The repetition may be answered with what the first one did, a while ago."""
    network = world.network()
    async with world.client() as observer, world.client(network) as client:
        network.delays_s = lambda request: 1.0 if "locks" in request.target else 0.0
        network.lose_one_reply("POST", "/v1/locks")
        began_ms = client.core.clock.monotonic_ms()

        grant = await Lock(client, "daily").acquire()

        session = await client.session()
        waited_ms = client.core.clock.monotonic_ms() - began_ms
        assert network.count("POST", "/v1/locks") == 2
        assert waited_ms >= 2_000
        assert session.remaining_safe_ms() <= session.timeout_ms - waited_ms
        assert [each.session_id for each in await observer.sessions()] == [session.session_id]
        await grant.release()


@in_memory
async def test_while_it_waits_its_session_is_kept_and_used_by_others(world: MemoryCluster) -> None:
    """It is known with the first line, long before the grant."""
    network = world.network()
    async with world.client() as holder, world.client(network, session_timeout=2) as client:
        held = await Lock(holder, "daily").acquire()
        waiting = asyncio.create_task(Lock(client, "daily", timeout=60).acquire())
        await asyncio.sleep(0)
        session = await client.session(1.0)
        await asyncio.sleep(20)
        other = await Lock(client, "weekly", owner="other").acquire()
        await held.release()
        grant = await waiting

        assert {grant.session_id, other.session_id} == {session.session_id}
        assert network.count("POST", "/v1/sessions/") > 10
        assert network.count("POST", "/v1/sessions ") == 0


@in_memory
async def test_for_who_has_given_up_no_session_is_opened(world: MemoryCluster) -> None:
    """The attempt that would have opened it ended, and another waited no longer."""
    network = world.network()
    async with world.client() as observer, world.client(network) as client:
        network.is_cut = True
        acquiring = asyncio.create_task(Lock(client, "daily").acquire())
        await asyncio.sleep(0.1)
        with pytest.raises(UnavailableError):
            await client.session(0.2)

        acquiring.cancel()
        network.is_cut = False
        await asyncio.sleep(20)

        assert network.count("POST", "/v1/sessions") == 0
        assert await observer.sessions() == ()
        assert not (await client.session()).is_lost


@in_memory
async def test_a_client_without_a_label_opens_its_session_with_the_first_acquire(
    world: MemoryCluster,
) -> None:
    """The session has none, whatever the lock is labelled."""
    network = world.network()
    async with world.client(network, label="") as client, Lock(client, "daily", label="report"):
        assert network.count("POST", "/v1/sessions") == 0
        assert [each.label for each in await client.sessions()] == [""]


@in_memory
async def test_who_waits_for_the_session_of_a_try_that_failed_gets_one(
    world: MemoryCluster,
) -> None:
    """The try has opened none."""
    async with world.client() as holder, world.client() as client:
        await Lock(holder, "daily").acquire()
        trying = asyncio.create_task(Lock(client, "daily", timeout=0).acquire())
        await asyncio.sleep(0)
        session = asyncio.create_task(client.session())

        with pytest.raises(LockTimeoutError):
            await trying
        assert not (await session).is_lost


@in_memory
async def test_an_attempt_that_is_withdrawn_before_it_is_answered_leaves_no_session(
    world: MemoryCluster,
) -> None:
    """Its answer never came: the number is abandoned, then the session is closed."""
    network = world.network()
    async with world.client() as observer, world.client(network) as client:
        network.loses_reply_of = lambda request: request.method == "POST"
        acquiring = asyncio.create_task(Lock(client, "daily").acquire())
        await asyncio.sleep(0.2)
        assert len(await observer.sessions()) == 1
        acquiring.cancel()
        await asyncio.sleep(1)

        assert await observer.sessions() == ()
        network.loses_reply_of = lambda request: False
        assert not (await client.session()).is_lost


@in_memory
async def test_connections_are_kept_after_an_acquire(
    world: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answered at once or after a wait: twenty cycles of two contenders share a few connections."""
    opened: list[object] = []
    create = _MemoryConnector._create_connection

    async def counted(self: _MemoryConnector, *given: object) -> object:
        opened.append(self)
        return await create(self, *given)

    monkeypatch.setattr(_MemoryConnector, "_create_connection", counted)
    async with world.client() as client:

        async def cycles(owner: str) -> None:
            for _ in range(20):
                async with Lock(client, "daily", owner=owner):
                    await asyncio.sleep(0.01)

        await asyncio.gather(cycles("one"), cycles("two"))

    assert len(opened) <= 6


@in_memory
async def test_a_crowd_of_one_client_asks_in_turns(world: MemoryCluster) -> None:
    """Who has no answer yet counts; who waits in the queue does not."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()
        held = await Lock(client, "daily").acquire()
        asked: list[str] = []
        goes_on = asyncio.Event()

        async def passed_slowly(request: Request) -> None:
            if "/v1/locks" in request.target:
                asked.append(request.target)
            await goes_on.wait()

        network.before = passed_slowly
        crowd = [
            asyncio.create_task(Lock(client, "daily", owner=f"{each}", timeout=600).acquire())
            for each in range(TURNS_MAX + 20)
        ]
        await asyncio.sleep(0.5)
        assert len(asked) == TURNS_MAX
        goes_on.set()
        await asyncio.sleep(3.0)
        assert len(asked) == len(crowd)

        await held.release()

        done, waiting = await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_has_no_turn_in_time_has_sent_nothing() -> None:
    """The turns come in order; one that is given up goes to the next."""
    turns = AttemptTurns(1)
    first = await turns.take(1)
    second = asyncio.create_task(turns.take(60_000))
    await asyncio.sleep(0)

    with pytest.raises(UnavailableError, match="not sent within 20 ms"):
        await turns.take(20)

    first.end()
    first.end()
    turn = await second
    assert turns.take_now() is None
    turn.end()
    assert turns.take_now() is not None


@in_memory
async def test_an_attempt_whose_client_is_closed_is_withdrawn_no_more(
    world: MemoryCluster,
) -> None:
    """No member has said that its session is open, and none can be asked any more."""
    network = world.network()
    async with world.client() as holder:
        await Lock(holder, "daily").acquire()
        async with world.client(network) as client:
            network.loses_reply_of = lambda request: request.method == "POST"
            acquiring = asyncio.create_task(Lock(client, "daily", timeout=60).acquire())
            await asyncio.sleep(0.2)

        with pytest.raises(OutcomeUnknownError, match="its session ends"):
            await acquiring
        assert not [each for each in asyncio.all_tasks() if "withdraw" in each.get_name()]


@in_memory
async def test_a_verb_waits_for_the_session_of_an_attempt_no_longer_than_for_its_own(
    world: MemoryCluster,
) -> None:
    """The attempt that opens it may wait for ever; a verb has the client's time."""
    network = world.network()
    async with world.client(network, timeout=3) as client:
        network.is_cut = True
        acquiring = asyncio.create_task(Lock(client, "daily", timeout=FOREVER).acquire())
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        for verb in (client.session(), client.create("/mine", mode="ephemeral")):
            with pytest.raises(UnavailableError, match="no session could be opened within 3 s"):
                await verb
        assert asyncio.get_running_loop().time() - began < 7

        network.is_cut = False
        grant = await acquiring
        assert grant.session_id == (await client.session()).session_id


@in_memory
async def test_clients_with_the_same_seed_open_sessions_of_their_own(world: MemoryCluster) -> None:
    """A seed makes waits repeatable, not the names of what clients own."""
    async with (
        world.client(retry=RetryPolicy(seed=7)) as client,
        world.client(retry=RetryPolicy(seed=7)) as other,
    ):
        grants = [await Lock(each, name).acquire() for each, name in ((client, "a"), (other, "b"))]
        queues = [WorkQueue(each, "orders") for each in (client, other)]
        names = [await queue.put(b"order", delay=1.0) for queue in queues]

        assert len({each.session_id for each in grants}) == 2
        assert len(set(names)) == 2
