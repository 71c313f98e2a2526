"""Locks that are held by hand: they outlive their process, and still there is never a second."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from coordinator.client import AsyncClient, Create, RetryPolicy, connect
from coordinator.client.calling.transport import Request
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    LockTimeoutError,
    NotOwnerError,
    OutcomeUnknownError,
)
from coordinator.recipes import Lock, ManualLock, MultiLock, RWLock, Semaphore, TreeLock
from coordinator.recipes.manual_lock import HeldByHand
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.storm import Life, Storm, storm


def test_it_is_held_until_another_client_releases_it() -> None:
    """With sync clients: the one that took it is closed long before."""
    with serving() as url:
        with connect(url, label="laptop") as client:
            held = ManualLock(client, "deploys").acquire("the database moves")
        with connect(url) as client:
            lock = ManualLock(client, "deploys")
            found = lock.holder()
            with pytest.raises(LockTimeoutError, match="by hand"):
                lock.acquire("mine", timeout=0.05)
            assert found is not None
            assert (found.hold.by, found.fencing_token) == ("laptop", held.fencing_token)
            assert client.guarded([found.condition()], then=[Create("/x")]).branch == "then"
            assert not lock.release(held.fencing_token + 1)
            assert lock.release(held.hold.grant_id, by="ann", note="moved")
            assert not lock.release(held.hold.grant_id)
            again = lock.acquire("mine", timeout=5)
            assert again.fencing_token > held.fencing_token
            assert client.guarded([found.condition()], then=[Create("/y")]).branch == "otherwise"
            assert [each.released_by for each in lock.history()] == ["ann"]


@pytest.mark.parametrize("kind", ["Lock", "MultiLock", "RWLock", "Semaphore", "TreeLock"])
@in_memory
async def test_a_lock_of_any_other_kind_waits_for_it(world: MemoryCluster, kind: str) -> None:
    """A try is refused and says why; a wait ends when it is released, or in time."""
    async with world.client() as client, world.client() as other:
        by_hand = ManualLock(client, "deploys")
        held = await by_hand.acquire("the database moves")
        made: Any = {
            "Lock": Lock(other, "deploys"),
            "MultiLock": MultiLock(other, "deploys", "others"),
            "RWLock": RWLock(other, "deploys").read(),
            "Semaphore": Semaphore(other, "deploys", size=3),
            "TreeLock": TreeLock(other, "deploys"),
        }[kind]
        with pytest.raises(LockTimeoutError, match="held by hand"):
            await made.acquire(timeout=0)
        with pytest.raises(LockTimeoutError, match=r"held by hand|not granted"):
            await made.acquire(timeout=1)
        assert not (await client.lock("deploys")).holders
        waiting = asyncio.create_task(made.acquire(timeout=60))
        await asyncio.sleep(20)
        assert not waiting.done()
        assert "held by hand" in str((await client.lock("deploys")).by_hand)
        assert await by_hand.release(held.fencing_token)
        assert (await client.lock("deploys")).by_hand is None
        grant = await waiting
        grant = grant[0] if kind == "MultiLock" else grant
        assert grant.fencing_token > held.fencing_token
        with pytest.raises(LockTimeoutError):
            await by_hand.acquire("again", timeout=1)
        assert await made.release()
        assert await by_hand.acquire("again", timeout=1)


@in_memory
async def test_one_whose_answers_are_lost_for_good_is_released(world: MemoryCluster) -> None:
    """No answer in time, and a hold of which its caller never got the token."""
    network, once = world.network(), RetryPolicy(tries=1)
    options = {"retry": once, "timeout": 2}
    async with world.client(network, **options) as client, world.client() as other:
        network.loses_reply_of = lambda request: request.target == "/v1/multi"
        with pytest.raises(OutcomeUnknownError):
            await ManualLock(client, "deploys").acquire("the database moves")
        network.loses_reply_of = lambda request: False
        assert await ManualLock(other, "deploys").wait_released(5)
        assert await ManualLock(other, "deploys").acquire("mine", timeout=5)


@in_memory
async def test_the_alarm_is_moved_by_and_to(world: MemoryCluster) -> None:
    """By so much from where it was; to so long from now; of another hold neither."""
    async with world.client() as client:
        lock = ManualLock(client, "deploys")
        held = await lock.acquire("x", alarm_after=60)
        await asyncio.sleep(20)
        token = held.fencing_token
        assert (await lock.extend_by(token, 30)).hold.alarm_after_ms == 90_000
        assert (await lock.renew_to(token, 5)).hold.alarm_after_ms == pytest.approx(25_000, abs=500)
        with pytest.raises(NotOwnerError):
            await lock.renew_to(token + 1, 5)
        with pytest.raises(BadArgumentsError, match="31622400"):
            await lock.extend_by(token, 366 * 24 * 3_600)
        await lock.renew_to(token, 0.001)
        found = await lock.holder()
        assert found is not None
        assert found.hold.alarm_after_ms < 25_000


@pytest.mark.parametrize(
    "wrong", [{"note": ""}, {"note": "n" * 501}, {"note": "x", "by": "b" * 101},
              {"note": "x", "alarm_after": -1}, {"note": "\ud800"}],
)  # fmt: skip
@in_memory
async def test_what_could_not_be_kept_is_refused(
    world: MemoryCluster, wrong: dict[str, object]
) -> None:
    """Before anything is held."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError):
            await ManualLock(client, "a").acquire(**wrong)  # type: ignore[arg-type]
        assert await client.exists("/locks") is None


@in_memory
async def test_two_who_move_the_alarm_at_once_both_do(world: MemoryCluster) -> None:
    """The later one adds to what the other has written since it looked."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        held = await ManualLock(client, "m").acquire("repair", alarm_after=100)
        others: list[HeldByHand] = []

        async def between(request: Request) -> None:
            if "multi" in request.target and not others:
                others.append(await ManualLock(other, "m").extend_by(held.fencing_token, 50))

        network.before = between
        mine = await ManualLock(client, "m").extend_by(held.fencing_token, 7)

        assert others[0].hold.alarm_after_ms == 150_000
        assert mine.hold.alarm_after_ms == 157_000


@in_memory
async def test_a_release_releases_no_hold_that_began_meanwhile(world: MemoryCluster) -> None:
    """Its own was deleted over the tree, which no history tells, and another began."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        held = await ManualLock(client, "m").acquire("repair")
        later: list[HeldByHand] = []

        async def between(request: Request) -> None:
            if "multi" in request.target and not later:
                await other.delete("/manual-locks/m")
                later.append(await ManualLock(other, "m").acquire("mine"))

        network.before = between

        assert not await ManualLock(client, "m").release(held.fencing_token)
        found = await ManualLock(other, "m").holder()
        assert found is not None
        assert found.fencing_token == later[0].fencing_token > held.fencing_token


@in_memory
async def test_the_history_is_bounded(world: MemoryCluster) -> None:
    """The last twenty, the newest first."""
    async with world.client() as client:
        lock = ManualLock(client, "a")
        for number in range(22):
            held = await lock.acquire(str(number))
            assert await lock.release(held.fencing_token)
        assert [each.note for each in await lock.history()] == [str(21 - n) for n in range(20)]


@in_memory
async def test_a_member_says_what_is_overdue(
    world: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in its log, and in metrics and status while it is."""
    caplog.set_level(logging.WARNING, "coordinator.service.locks.manual_holds")
    figure = world.member.metrics.registry.get_sample_value
    async with world.client() as client:
        lock = ManualLock(client, "order:7")
        held = await lock.acquire("a long\nnight", by="ann", alarm_after=30)
        await client.create("/manual-locks/garbage", b"\xff{")
        await asyncio.sleep(20)
        assert figure("coordinator_manual_locks") == 2
        assert figure("coordinator_manual_locks_overdue") == 0
        assert caplog.messages == []
        await asyncio.sleep(60)
        assert figure("coordinator_manual_locks_overdue") == 1
        (said,) = caplog.messages
        assert said.startswith("manual lock 'order:7', token")
        assert said.endswith("planned were 30 s; by 'ann': 'a long\\nnight'")
        (warning,) = (await client.status()).warnings
        assert warning.startswith("1 lock is held by hand for longer than planned")
        await lock.extend_by(held.fencing_token, 3_600)
        await asyncio.sleep(10)
        assert figure("coordinator_manual_locks_overdue") == 0
        assert (await client.status()).warnings == ()


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(2, 10), 12, 13))]
)
def test_there_are_never_two_holders_and_tokens_grow(seed: int) -> None:
    """Some hold by hand, and may die before they release it; some hold a lock of another kind."""
    inside: dict[str, int] = {}
    tokens: list[int] = []

    def enter(name: str, token: int) -> None:
        assert not inside, f"{name} with {token} beside {inside}"
        assert not tokens or token > tokens[-1], (token, tokens[-3:])
        tokens.append(token)
        inside[name] = token

    def leave(token: int) -> None:
        for name in [each for each, held in inside.items() if held == token]:
            del inside[name]

    async def by_hand(life: Life, lock: ManualLock[AsyncClient]) -> None:
        held = await lock.acquire("x", by=life.name, timeout=life.random.choice([0, 2, 10]))
        enter(life.name, held.fencing_token)
        await asyncio.sleep(life.random.random() * 3)
        leave(held.fencing_token)
        await lock.release(held.fencing_token)
        life.storm.met["by hand"] += 1

    async def by_session(life: Life, lock: ManualLock[AsyncClient]) -> None:
        client = life.client
        kinds = [
            Lock(client, "a", timeout=3),
            Semaphore(client, "a", size=1, timeout=3),
            TreeLock(client, "a", timeout=3),
            RWLock(client, "a", timeout=3).write(),
        ]
        async with life.random.choice(kinds) as grant:  # fmt: skip
            grant.check()
            grant.on_lost(lambda: leave(grant.fencing_token))
            enter(life.name, grant.fencing_token)
            try:
                await asyncio.sleep(life.random.random())
            finally:
                leave(grant.fencing_token)
            life.storm.met["by session"] += 1

    async def clear(life: Life, lock: ManualLock[AsyncClient]) -> None:
        """Release what its holder will not."""
        found: HeldByHand | None = await lock.holder()
        if found is None:
            return
        await asyncio.sleep(6)
        leave(found.fencing_token)
        life.storm.met["cleared"] += await lock.release(found.fencing_token, by="the operator")

    async def work(life: Life) -> None:
        lock = ManualLock(life.client, "a")
        while not life.storm.is_over:
            try:
                await (clear if life.number == 0 else life.random.choice([by_hand, by_session]))(
                    life, lock
                )
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random())

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        lock = ManualLock(observer, "a")
        if (found := await lock.holder()) is not None:
            assert await lock.release(found.fencing_token)
        assert (await lock.acquire("the last")).fencing_token > tokens[-1]
        assert not (await observer.lock("a")).queue

    storm(seed, work, judge=judge, seconds=200).check(
        **{"by hand": 5, "by session": 5, "cleared": 1, "kill": 1}
    )
