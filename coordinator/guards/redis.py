"""The guard of Redis: one Lua script checks the token and executes the commands.

::

    guard = RedisGuard(client, "report")                      # a redis.Redis
    guard.write(grant.fencing_token, "SET", "report:today", b"...")
    guard.write_all(grant.fencing_token, [("SET", "a", 1), ("INCR", "b")])

    guard = AsyncRedisGuard(client, "report")                 # a redis.asyncio.Redis
    await guard.write(grant.fencing_token, "SET", "report:today", b"...")

1. The highest token is kept in the key ``fence:<resource>``, which never expires. Tokens are
   compared as decimal digits: a Lua number would round them from 2**53 on. The highest write number
   is kept with its token in ``fence-write:<resource>``, if there is one.
2. A refused call executes nothing. If a command itself fails, those before it stay (Redis has no
   rollback) and the error of Redis is raised.
3. In a Redis Cluster all keys of a call must be in one slot, the guard's too: put a hash tag into
   the resource, ``RedisGuard(client, "{report}")`` guards ``{report}:today``.
4. The guard forgets what Redis forgets. Without ``appendfsync always`` a crash, and a failover
   always, can lose the last raise together with the last writes; an eviction policy ``allkeys-*``
   can evict the key of the token alone. docs/guards.md says what to set.
5. A script is sent once: on a connection of its own from the client's pool, because the client
   repeats a command when its connection breaks. Then the error of Redis comes through, and it is
   unknown whether the write was done. Reading the highest token may be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coordinator.errors import BadArgumentsError
from coordinator.guards.extras import missing_extra
from coordinator.guards.tokens import (
    checked_resource,
    checked_token,
    checked_write_number,
    stale,
    stale_write,
)

try:
    from redis.exceptions import NoScriptError, ResponseError
except ImportError as error:
    raise missing_extra("RedisGuard", "redis") from error

if TYPE_CHECKING:
    from redis import Redis
    from redis.asyncio import Redis as AsyncRedis

Word = str | bytes | int | float

_WORDS_MAX = 4_000
"""In one command: Lua spreads them over its stack, which holds 8 000."""

_REFUSED_TOKEN, _REFUSED_NUMBER = 0, 2

_SCRIPT = """
local token, number, highest = ARGV[1], ARGV[2], redis.call('GET', KEYS[1])
local function lower(a, b) return #a < #b or (#a == #b and a < b) end
if highest then
    if not string.match(highest, '^[1-9]%d*$') then
        return redis.error_reply('ERR ' .. KEYS[1] .. ' is expected to hold a fencing token')
    end
    if lower(token, highest) then return {0, highest} end
end
if number ~= '' then
    local seen = redis.call('GET', KEYS[2])
    local of, last = string.match(seen or '', '^(%d+) (%d+)$')
    if seen and not of then
        return redis.error_reply('ERR ' .. KEYS[2] .. ' is expected to hold a write number')
    end
    if of == token and not lower(last, number) then return {2, last} end
    redis.call('SET', KEYS[2], token .. ' ' .. number)
end
if highest ~= token then redis.call('SET', KEYS[1], token) end
local replies, at = {}, 3
while at <= #ARGV do
    local words = tonumber(ARGV[at])
    replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + words))
    at = at + words + 1
end
return {1, replies}
"""
_SCRIPT_NAME = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class _Calls:
    """What is sent to the script, and what its answer means; the same for both clients."""

    def __init__(self, resource: str) -> None:
        self.resource = checked_resource(resource)
        self.key = f"fence:{resource}"
        self._number_key = f"fence-write:{resource}"

    def of(
        self, token: int, commands: Sequence[Sequence[Word]], number: int | None
    ) -> tuple[list[str | bytes], list[Word]]:
        """Return the keys and the arguments of the script."""
        token, number = checked_token(token), checked_write_number(number)
        keys: list[str | bytes] = [self.key]
        if number is not None:
            keys.append(self._number_key)
        arguments: list[Word] = [token, "" if number is None else number]
        for command in commands:
            if isinstance(command, str | bytes) or not 1 <= len(command) <= _WORDS_MAX:
                raise BadArgumentsError(
                    f"command: expected 1 to {_WORDS_MAX} words, like ('SET', 'a', 1); "
                    f"found {command!r}"
                )
            keys.extend(word for word in command[1:2] if isinstance(word, str | bytes))
            arguments.append(len(command))
            arguments.extend(command)
        return keys, arguments

    def replies(self, token: int, number: int | None, answer: Any) -> list[Any]:
        """Return the replies to the commands; the error if they were refused."""
        verdict, rest = answer
        if verdict == _REFUSED_TOKEN:
            raise stale(self.resource, token, int(rest))
        if verdict == _REFUSED_NUMBER:
            assert number is not None, "only a number is refused so"
            raise stale_write(self.resource, token, number, int(rest))
        return list(rest)


def _is_pooled(client: Any) -> bool:
    """Return whether ``client`` shows its connections; refuse one that hides them and repeats.

    Raises:
        BadArgumentsError: it is a client of a Redis Cluster that sends commands again.
    """
    if hasattr(client, "connection_pool"):
        return True
    retry = getattr(client, "retry", None)
    if retry is None or retry.get_retries() != 0:
        raise BadArgumentsError(
            f"client: expected a {type(client).__name__} that sends each command once, found one "
            "that repeats it when a connection breaks; "
            "make it with retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0)"
        )
    return False


class RedisGuard:
    """Guards ``resource`` in the Redis of ``client``."""

    def __init__(self, client: Redis, resource: str) -> None:
        self.resource = resource
        self._calls = _Calls(resource)
        self._client = client
        self._is_pooled = _is_pooled(client)

    def write(self, token: int, *command: Word, write_number: int | None = None) -> Any:
        """Execute one command under ``token``; return Redis' plain reply to it."""
        return self.write_all(token, [command], write_number=write_number)[0]

    def write_all(
        self, token: int, commands: Sequence[Sequence[Word]], *, write_number: int | None = None
    ) -> list[Any]:
        """Execute commands one after the other under ``token``, with nothing in between."""
        keys, arguments = self._calls.of(token, commands, write_number)
        words = (len(keys), *keys, *arguments)
        try:
            answer = self._sent_once("EVALSHA", _SCRIPT_NAME, *words)
        except NoScriptError:  # then nothing was executed
            answer = self._sent_once("EVAL", _SCRIPT, *words)
        return self._calls.replies(token, write_number, answer)

    def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``."""
        self.write_all(token, [])

    def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        highest: Any = self._client.get(self._calls.key)
        return None if highest is None else int(highest)

    def _sent_once(self, *words: Word) -> Any:
        """Send a command once and return its reply."""
        client: Any = self._client
        if not self._is_pooled:
            return client.execute_command(*words)
        pool = client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command(*words)
            return connection.read_response()
        except ResponseError:
            raise
        except BaseException:  # its reply may still come; no other call may read it
            connection.disconnect()
            raise
        finally:
            pool.release(connection)


class AsyncRedisGuard:
    """RedisGuard for a ``redis.asyncio.Redis``; its methods are awaited."""

    def __init__(self, client: AsyncRedis, resource: str) -> None:
        self.resource = resource
        self._calls = _Calls(resource)
        self._client = client
        self._is_pooled = _is_pooled(client)

    async def write(self, token: int, *command: Word, write_number: int | None = None) -> Any:
        """Execute one command under ``token``; return Redis' plain reply to it."""
        return (await self.write_all(token, [command], write_number=write_number))[0]

    async def write_all(
        self, token: int, commands: Sequence[Sequence[Word]], *, write_number: int | None = None
    ) -> list[Any]:
        """Execute commands one after the other under ``token``, with nothing in between."""
        keys, arguments = self._calls.of(token, commands, write_number)
        words = (len(keys), *keys, *arguments)
        try:
            answer = await self._sent_once("EVALSHA", _SCRIPT_NAME, *words)
        except NoScriptError:  # then nothing was executed
            answer = await self._sent_once("EVAL", _SCRIPT, *words)
        return self._calls.replies(token, write_number, answer)

    async def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``."""
        await self.write_all(token, [])

    async def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        highest: Any = await self._client.get(self._calls.key)
        return None if highest is None else int(highest)

    async def _sent_once(self, *words: Word) -> Any:
        """Send a command once and return its reply."""
        client: Any = self._client
        if not self._is_pooled:
            return await client.execute_command(*words)
        pool = client.connection_pool
        connection = await pool.get_connection()
        try:
            await connection.send_command(*words)
            return await connection.read_response()
        except ResponseError:
            raise
        except BaseException:  # its reply may still come; no other call may read it
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)
