"""Holders that are asked to give their lock up: nothing is taken away; who asked is answered."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator.client import AsyncClient, connect
from coordinator.errors import BadArgumentsError, CoordinatorError, NotOwnerError
from coordinator.recipes import (
    Election,
    Grant,
    Lock,
    MultiLock,
    ReentrantLock,
    Revoker,
    RevokeRequest,
    RWLock,
    Semaphore,
)
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.storm import Life, Storm, left_below, storm


def test_threads_ask_and_answer() -> None:
    """The callback sets an event; the thread that holds releases."""
    with serving() as url, connect(url) as client, connect(url, label="urgent") as other:
        asked = threading.Event()
        messages: list[RevokeRequest] = []

        def on_asked(request: RevokeRequest) -> None:
            messages.append(request)
            request.agree("in a moment")
            asked.set()

        def hold() -> None:
            with Lock(client, "gpu") as grant:
                grant.on_asked(on_asked)
                held.set()
                assert asked.wait(10)

        held = threading.Event()
        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(10)
        answer = Revoker(other, "gpu").ask("a report is due", within=10)
        thread.join()
        assert (answer.outcome, messages[0].by, messages[0].reason) == (
            "ended",
            "urgent",
            "a report is due",
        )
        with Lock(other, "gpu", timeout=5) as mine:
            assert mine.fencing_token > answer.fencing_token


@in_memory
async def test_a_coroutine_may_answer_and_release(world: MemoryCluster) -> None:
    """It goes on after the release, which ends the listening."""
    async with world.client() as client, world.client() as other:
        lock, ended = Lock(client, "gpu"), asyncio.Event()
        grant = await lock.acquire()

        async def on_asked(request: RevokeRequest) -> None:
            request.agree()
            await asyncio.sleep(1)
            assert 1_000 < request.remaining_ms() <= 4_000
            await lock.release()
            await asyncio.sleep(0.1)
            ended.set()

        grant.on_asked(on_asked)
        assert (await Revoker(other, "gpu").ask("x", within=5)).outcome == "ended"
        await asyncio.wait_for(ended.wait(), 1)


@in_memory
async def test_the_last_answer_counts(world: MemoryCluster) -> None:
    """Also of two that are given at once."""
    async with world.client() as client, world.client() as other:
        grant = await Lock(client, "gpu").acquire()

        def on_asked(request: RevokeRequest) -> None:
            request.agree("yes")
            request.refuse("no")
            request.agree("well")

        grant.on_asked(on_asked)
        answer = await Revoker(other, "gpu").ask("x", within=1)
        assert (answer.outcome, answer.reason) == ("agreed", "well")
        assert (await grant.is_held()).is_held
        await asyncio.sleep(1)
        assert await other.exists(f"/revoke-requests/gpu/{grant.fencing_token}/x") is None
        assert (await other.children(f"/revoke-requests/gpu/{grant.fencing_token}")).names == ()


@in_memory
async def test_of_several_holders_one_is_named(world: MemoryCluster) -> None:
    """By its token; each kind of lock listens."""
    async with world.client() as client, world.client() as other:
        readers = [await RWLock(client, "a", owner="").read().acquire() for _ in range(2)]
        readers[1].on_asked(lambda request: request.refuse("second"))
        with pytest.raises(BadArgumentsError, match="found 2"):
            await Revoker(other, "a").ask("x", within=1)
        token = readers[1].fencing_token
        assert (
            await Revoker(other, "a").ask("x", within=1, fencing_token=token)
        ).reason == "second"
        slot = await Semaphore(client, "s", 2).acquire()
        slot.on_asked(lambda request: request.refuse("slot"))
        assert (await Revoker(other, "s").ask("x", within=1)).reason == "slot"
        both_ = await MultiLock(client, "m", "n").acquire()
        both_[1].on_asked(lambda request: request.refuse("one of two"))
        assert (await Revoker(other, "n").ask("x", within=1)).reason == "one of two"
        share = await ReentrantLock(client, "r").acquire()
        share.on_asked(lambda request: request.refuse("counted"))
        assert (await Revoker(other, "r").ask("x", within=1)).reason == "counted"
        leadership = await Election(client, "e").campaign()
        with pytest.raises(BadArgumentsError, match="asked"):
            leadership.on_asked(lambda request: request.refuse())


@in_memory
async def test_a_callback_that_fails_is_reported_and_the_next_is_called(
    world: MemoryCluster,
) -> None:
    """A holder's mistake ends neither its listening nor its lock."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    async with world.client() as client, world.client() as other:
        grant = await Lock(client, "gpu").acquire()
        calls = 0

        def on_asked(request: RevokeRequest) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ValueError("a mistake")
            request.refuse()

        grant.on_asked(on_asked)
        assert (await Revoker(other, "gpu").ask("x", within=1)).outcome == "silent"
        assert (await Revoker(other, "gpu").ask("x", within=1)).outcome == "refused"
        assert [str(each) for each in reported] == ["a mistake"]
        with pytest.raises(BadArgumentsError, match="500"):
            RevokeRequest.refuse(_request(client), "r" * 501)


def _request(client: AsyncClient) -> RevokeRequest:
    from coordinator.recipes.locks.requests import RequestRecord

    return RevokeRequest(
        client, path="/x", czxid=1, record=RequestRecord("", reason="", within_ms=1)
    )


@pytest.mark.parametrize("wrong", [{"within": 0}, {"within": 1e9}, {"by": "b" * 101}])
@in_memory
async def test_what_cannot_be_asked_is_refused(
    world: MemoryCluster, wrong: dict[str, object]
) -> None:
    """Before anybody is."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError):
            await Revoker(client, "gpu").ask("x", **wrong)  # type: ignore[arg-type]
        with pytest.raises(NotOwnerError):
            await Revoker(client, "gpu").ask("x", within=1)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, marks=pytest.mark.check),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12)),
    ],
)
def test_who_asks_is_answered_truly(seed: int) -> None:
    """Ended: its holder does not believe that it holds. Refused, agreed: its holder said so."""
    grants: dict[int, Grant[AsyncClient]] = {}
    said: dict[int, set[str]] = {}
    leaving: set[int] = set()

    async def hold(life: Life) -> None:
        lock = Lock(life.client, "gpu", timeout=10)
        asked = asyncio.Event()
        mood, is_slow = (
            life.random.choice(["agreed", "refused", "silent"]),
            life.random.random() < 0.5,
        )

        def on_asked(request: RevokeRequest) -> None:
            said[grant.fencing_token].add(mood)
            if mood == "refused":
                request.refuse("no")
            elif mood == "agreed":
                request.agree("yes")
                if not is_slow:
                    asked.set()

        async with lock as grant:
            grants[grant.fencing_token] = grant
            said[grant.fencing_token] = set()
            grant.on_asked(on_asked)
            try:
                await asyncio.wait_for(asked.wait(), life.random.random() * 8 + 4 * is_slow)
            except TimeoutError:
                pass
            finally:
                leaving.add(grant.fencing_token)

    async def ask(life: Life) -> None:
        answer = await Revoker(life.client, "gpu").ask("x", within=life.random.choice([0.2, 3, 6]))
        life.storm.met[answer.outcome] += 1
        token = answer.fencing_token
        if token not in grants:  # granted to a client that did not learn of it
            assert answer.outcome in ("ended", "silent")
        elif answer.outcome == "ended":
            assert token in leaving or grants[token].is_lost
        elif answer.outcome != "silent":
            assert answer.outcome in said[token]

    async def work(life: Life) -> None:
        while not life.storm.is_over:
            try:
                await (ask if life.number % 2 else hold)(life)
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.3)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        assert await left_below(observer, "/revoke-requests") == []

    storm(seed, work, judge=judge, seconds=180).check(
        ended=5, refused=2, agreed=1, silent=2, kill=1, cut=1
    )
