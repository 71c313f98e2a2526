"""A script of RedisGuard is sent once, whatever its client does when a connection breaks."""

from __future__ import annotations

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from coordinator.errors import BadArgumentsError, StaleWriteError
from coordinator.guards import AsyncRedisGuard, RedisGuard
from tests.guards.breaking_redis import BreakingRedis

NUMBERS = [None, 1]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("knows_script", [True, False])
@pytest.mark.parametrize("is_single", [True, False])
def test_a_write_whose_answer_is_lost_is_not_sent_again(
    is_single: bool, knows_script: bool, number: int | None
) -> None:
    """It may have been done: done twice, or refused as seen before, would both be untrue."""
    with (
        BreakingRedis(knows_script=knows_script).serving() as server,
        redis.Redis(port=server.port, single_connection_client=is_single) as client,
    ):
        guard = RedisGuard(client, "report")

        with pytest.raises(redis.ConnectionError):
            guard.write(7, "INCR", "reports", write_number=number)

        assert server.scripts == ["EVALSHA" if knows_script else "EVAL"]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("knows_script", [True, False])
@pytest.mark.parametrize("is_single", [True, False])
async def test_nor_is_an_awaited_one(
    is_single: bool, knows_script: bool, number: int | None
) -> None:
    """The client for asyncio repeats as well."""
    with BreakingRedis(knows_script=knows_script).serving() as server:
        async with redis.asyncio.Redis(
            port=server.port, single_connection_client=is_single
        ) as client:
            guard = AsyncRedisGuard(client, "report")

            with pytest.raises(redis.ConnectionError):
                await guard.write(7, "INCR", "reports", write_number=number)

            assert server.scripts == ["EVALSHA" if knows_script else "EVAL"]


def test_the_connection_that_broke_is_not_used_again() -> None:
    """The next call gets a new one and its own answer, and the pool has lost none."""
    with BreakingRedis().serving() as server:
        pool = redis.BlockingConnectionPool(port=server.port, max_connections=1, timeout=5)
        guard = RedisGuard(redis.Redis(connection_pool=pool), "report")
        with pytest.raises(redis.ConnectionError):
            guard.write(7, "INCR", "reports", write_number=1)

        with pytest.raises(StaleWriteError):
            guard.write(7, "INCR", "reports", write_number=1)

        pool.disconnect()


class _Cluster:
    """What the guard sees of a client of a Redis Cluster, which hides its connections."""

    def __init__(self, retries: int) -> None:
        self.retry = Retry(NoBackoff(), retries)


@pytest.mark.parametrize("guard", [RedisGuard, AsyncRedisGuard])
def test_a_client_of_a_cluster_that_repeats_is_refused(guard: type) -> None:
    """The guard cannot keep it from that; the error says what to write."""
    with pytest.raises(BadArgumentsError, match=r"retry=redis.retry.Retry\(.*, 0\)"):
        guard(_Cluster(retries=3), "report")

    guard(_Cluster(retries=0), "report")
