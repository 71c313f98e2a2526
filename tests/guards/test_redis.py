"""What RedisGuard has beyond the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis
import redis.asyncio

from coordinator import connect
from coordinator.errors import BadArgumentsError, StaleTokenError
from coordinator.guards import AsyncRedisGuard, RedisGuard
from coordinator.recipes import Lock
from tests.client.server_thread import serving


@pytest.fixture
def client(redis_server: Path) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(redis_server)) as client:
        client.flushall()
        yield client


def test_several_commands_are_executed_with_nothing_in_between(client: redis.Redis) -> None:
    """One script checks and executes them all; their plain replies come back, None included."""
    guard = RedisGuard(client, "report")

    replies = guard.write_all(
        7, [("SET", "a", 1), ("INCR", "a"), ("GET", "none"), ("HSET", "h", "f", b"\x00\xff")]
    )

    assert replies == [b"OK", 2, None, 1]
    assert client.hget("h", "f") == b"\x00\xff"
    assert guard.highest_token() == 7


def test_a_refused_call_executes_nothing(client: redis.Redis) -> None:
    """Not even the first command of several."""
    guard = RedisGuard(client, "report")
    guard.write(8, "SET", "a", "by 8")

    with pytest.raises(StaleTokenError, match=r"report: token 7 is stale, 8 has been seen"):
        guard.write_all(7, [("SET", "a", "by 7"), ("SET", "b", "by 7")])

    assert client.mget("a", "b") == [b"by 8", None]


def test_the_errors_of_redis_come_through_and_what_came_before_stays(client: redis.Redis) -> None:
    """Redis has no rollback: documented, and seen here."""
    guard = RedisGuard(client, "report")

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        guard.write_all(7, [("SET", "a", 1), ("LPUSH", "a", 2)])

    assert client.get("a") == b"1"


def test_decoded_replies_and_a_flushed_script_make_no_difference(redis_server: Path) -> None:
    """A client with ``decode_responses``; a server that has forgotten the script."""
    with redis.Redis(unix_socket_path=str(redis_server), decode_responses=True) as client:
        guard = RedisGuard(client, f"{uuid4()}")
        guard.raise_to(9)
        client.script_flush()

        with pytest.raises(StaleTokenError):
            guard.raise_to(8)

        assert guard.write(10, "SET", "a", "x") == "OK"
        assert guard.highest_token() == 10


def test_a_key_that_holds_something_else_is_not_compared_with(client: redis.Redis) -> None:
    """Somebody else's value under the guard's key is an error, not a very high or low token."""
    client.set("fence:report", "high")

    with pytest.raises(redis.ResponseError, match="expected to hold a fencing token"):
        RedisGuard(client, "report").raise_to(7)


def test_a_number_that_is_none_is_not_compared_with(client: redis.Redis) -> None:
    """Nothing is executed, and the highest token stays where it was."""
    guard = RedisGuard(client, "report")
    guard.raise_to(7)
    client.set("fence-write:report", "often")

    with pytest.raises(redis.ResponseError, match="expected to hold a write number"):
        guard.write(8, "SET", "a", "x", write_number=1)

    assert (guard.highest_token(), client.get("a")) == (7, None)


def test_the_token_never_expires(client: redis.Redis) -> None:
    """The guard's key has no time to live."""
    RedisGuard(client, "report").raise_to(7)

    assert client.ttl("fence:report") == -1


@pytest.mark.parametrize("command", [(), "SET a 1", ("SET", *["x"] * 5_000)])
def test_what_is_no_command_is_refused_before_it_is_sent(
    client: redis.Redis, command: tuple[str, ...]
) -> None:
    """Nothing of the call is executed."""
    guard = RedisGuard(client, "report")

    with pytest.raises(BadArgumentsError, match="command"):
        guard.write_all(7, [("SET", "a", 1), command])

    assert client.dbsize() == 0


async def test_a_lock_on_asyncio_raises_guards_of_both_faces(redis_server: Path) -> None:
    """One is awaited in the caller's loop, the other waits in a thread."""
    awaited = redis.asyncio.Redis(unix_socket_path=str(redis_server))
    plain = redis.Redis(unix_socket_path=str(redis_server))
    first, second = AsyncRedisGuard(awaited, f"{uuid4()}"), RedisGuard(plain, f"{uuid4()}")
    with serving() as url:
        async with connect(url) as client, Lock(client, "report", guards=[first, second]) as grant:
            assert await first.highest_token() == grant.fencing_token
            assert second.highest_token() == grant.fencing_token
    await awaited.aclose()
    plain.close()
