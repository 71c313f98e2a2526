"""Running a function under a lock, with asyncio; with a sync client it is in tests/client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from coordinator.client import AsyncClient, Client, connect
from coordinator.errors import BadArgumentsError, LockLostError, LockTimeoutError
from coordinator.recipes import (
    Election,
    Grant,
    Lock,
    Once,
    exclusive,
    execute_exclusive,
    run_exclusive,
)
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving


@in_memory
async def test_the_task_gets_the_token_and_its_result_is_returned(world: MemoryCluster) -> None:
    """The helper runs a coroutine function while the lock is held."""
    async with world.client() as client:

        async def task(grant: Grant[AsyncClient]) -> int:
            assert len(await world.queue(client, "daily")) == 1
            return grant.fencing_token

        assert await execute_exclusive(client, "daily", task) > 0
        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_task_whose_lock_is_not_had_does_not_run(world: MemoryCluster) -> None:
    """Not had, lost, and the task's own failure are three different errors."""
    network = world.network()
    async with (
        world.client() as holder,
        world.client(network, session_timeout=2) as client,
    ):

        async def never(grant: Grant[AsyncClient]) -> None:
            pytest.fail("ran without the lock")

        async def fails(grant: Grant[AsyncClient]) -> None:
            raise KeyError("mine")

        async def loses(grant: Grant[AsyncClient]) -> None:
            network.is_cut = True
            await asyncio.sleep(60)

        async with Lock(holder, "daily"):
            with pytest.raises(LockTimeoutError):
                await execute_exclusive(client, "daily", never, timeout=0)
        with pytest.raises(KeyError):
            await execute_exclusive(client, "daily", fails)
        with pytest.raises(LockLostError):
            await execute_exclusive(client, "daily", loses)


@in_memory
async def test_the_decorator_is_the_helper(world: MemoryCluster) -> None:
    """Each call of a decorated coroutine function runs under the lock."""
    async with world.client() as client:
        inside = 0

        @exclusive("daily", client=client)
        async def report(grant: Grant[AsyncClient], day: str) -> str:
            nonlocal inside
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.1)
            inside -= 1
            return f"{day} {grant.fencing_token}"

        reports = await asyncio.gather(*(report("monday") for _ in range(5)))

        assert len(set(reports)) == 5
        assert report.__name__ == "report"


@in_memory
async def test_a_plain_function_needs_a_client_that_waits(world: MemoryCluster) -> None:
    """The wrong kind of client is named at the call."""
    async with world.client() as client:

        @exclusive("daily", client=client)
        def report(grant: Grant[Client]) -> None:
            pytest.fail("ran")

        with pytest.raises(BadArgumentsError, match="expected a recipe made with a Client"):
            report()


@in_memory
async def test_the_key_is_made_of_the_arguments_and_who_is_busy_is_skipped(
    world: MemoryCluster,
) -> None:
    """Another shard runs at the same time; the same one returns None and does not run."""
    async with world.client() as client:
        ran: list[int] = []

        @exclusive(key=lambda shard, **_: f"index-{shard}", skip_if_busy=True, client=client)
        async def rebuild(grant: Grant[AsyncClient], shard: int, *, pause: float = 1) -> str:
            ran.append(shard)
            await asyncio.sleep(pause)
            return grant.lock

        results = await asyncio.gather(rebuild(1), rebuild(2), rebuild(1, pause=0))

        assert results == ["index-1", "index-2", None]
        assert sorted(ran) == [1, 2]
        assert await rebuild(1) == "index-1"


@in_memory
async def test_a_lock_that_the_task_waits_for_in_vain_is_not_taken_for_its_own(
    world: MemoryCluster,
) -> None:
    """It ran, so it was not skipped: its own error comes through."""
    async with world.client() as client, world.client() as other:

        @exclusive("outer", skip_if_busy=True, client=client)
        async def work(grant: Grant[AsyncClient]) -> None:
            async with Lock(client, "inner", timeout=0):
                pytest.fail("it is held")

        async with Lock(other, "inner"):
            with pytest.raises(LockTimeoutError, match="inner"):
                await work()


@in_memory
async def test_what_cannot_be_a_key_is_refused(world: MemoryCluster) -> None:
    """Nothing runs without a name for its lock."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match="found both"):
            exclusive("x", skip_if_busy=True, timeout=3)  # type: ignore[call-overload]

        @exclusive(key=lambda order: order, client=client)
        async def work(grant: Grant[AsyncClient], order: int | None) -> int:
            return grant.fencing_token

        assert await work(7) > 0
        with pytest.raises(BadArgumentsError, match="key: expected text or an integer"):
            await work(None)


def test_a_function_runs_exclusively_with_a_client_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both colours: a plain function is run, a coroutine function is awaited."""
    with serving() as url, connect(url) as other:
        monkeypatch.setenv("COORDINATOR_ENDPOINTS", url)

        async def task(grant: Grant[AsyncClient]) -> int:
            return grant.fencing_token

        first = run_exclusive("nightly", lambda grant: grant.fencing_token)
        assert asyncio.run(run_exclusive("nightly", task)) > first

        @exclusive("nightly", skip_if_busy=True)
        def work(grant: Grant[Client]) -> int:
            return grant.fencing_token

        with Lock(other, "nightly"):
            assert work() is None
            with pytest.raises(LockTimeoutError):
                run_exclusive("nightly", lambda grant: grant.fencing_token, timeout=0)
        assert work() is not None


def test_what_a_plain_function_raises_comes_through_unchanged() -> None:
    """Also what means something else to the coroutine in which it runs."""
    with serving() as url, connect(url) as client:
        with pytest.raises(StopIteration, match="nothing left"):
            execute_exclusive(client, "daily", lambda grant: _stopping())
        with pytest.raises(KeyboardInterrupt):
            execute_exclusive(client, "daily", lambda grant: _interrupted())
        assert client.lock("daily").holders == ()


def _stopping() -> None:
    raise StopIteration("nothing left")


async def _stopping_coroutine() -> None:
    _stopping()


def _stopping_generator() -> Iterator[None]:
    _stopping()
    yield


def _gives_up() -> None:
    try:
        _stopping()
    except StopIteration as stop:
        raise RuntimeError("mine") from stop


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (_gives_up, "^mine$"),
        (lambda: next(_stopping_generator()), "generator raised StopIteration"),
        (lambda: asyncio.run(_stopping_coroutine()), "coroutine raised StopIteration"),
    ],
    ids=["raised", "generator", "coroutine"],
)
def test_an_error_that_hides_a_stop_is_not_taken_for_the_stop(
    work: Callable[[], object], said: str
) -> None:
    """A bare StopIteration would end the caller's loop without a word."""
    with serving() as url, connect(url) as client:
        with pytest.raises(RuntimeError, match=said):
            execute_exclusive(client, "daily", lambda grant: work())
        with pytest.raises(RuntimeError, match=said):
            exclusive("daily", client=client)(lambda grant: work())()
        client.create("/daily")
        with pytest.raises(RuntimeError, match=said):
            client.update("/daily", lambda data: str(work()).encode())


def test_a_future_that_a_plain_function_returns_is_no_result() -> None:
    """It may still run, without the lock: nothing is recorded as done, nor as not begun."""
    with serving() as url, connect(url) as client:
        loop = asyncio.new_event_loop()
        never = loop.create_future()
        with pytest.raises(BadArgumentsError, match="it may still run"):
            Election(client, "daily").run(lambda grant: never)
        with pytest.raises(BadArgumentsError, match="it may still run"):
            Once(client).run("daily", lambda attempt: never)
        assert client.exists("/once/daily") is not None
        assert Once(client).run("daily", lambda attempt: attempt.number).result == 2
        loop.close()


@pytest.mark.parametrize("is_awaited", [False, True], ids=["plain", "awaited"])
def test_the_key_is_made_once_a_call(is_awaited: bool) -> None:
    """Whoever makes it may count, or ask a database."""
    made: list[int] = []

    def key(shard: int) -> str:
        made.append(shard)
        return f"{shard}-{len(made)}"

    with serving() as url:
        if is_awaited:

            async def main() -> str:
                async with connect(url) as client:

                    @exclusive(key, client=client)
                    async def awaited(grant: Grant[AsyncClient], shard: int) -> str:
                        return grant.lock

                    return await awaited(7)

            assert asyncio.run(main()) == "7-1"
        else:
            with connect(url) as client:

                @exclusive(key, client=client)
                def plain(grant: Grant[Client], shard: int) -> str:
                    return grant.lock

                assert plain(7) == "7-1"
    assert made == [7]


def _interrupted() -> None:
    raise KeyboardInterrupt
