"""A connection that breaks after any byte: what the client says of the request is never wrong.

For each verb, each byte of its request and of the answer, and each of two members (one that still
serves afterwards, one that is gone): a verb that returns was done once, a verb that raises a
definite error was not done and is not done later. An unknown outcome may be either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import pytest

from coordinator import connect
from coordinator.client import AsyncClient, Connector, Create, RetryPolicy, Session
from coordinator.errors import CoordinatorError, NoNodeError, OutcomeUnknownError
from recipes import Election, Lock, MultiLock, RWLock, Semaphore, TreeLock
from recipes.grant import Grant
from tests.client.breaking_door import BreakingDoor, Side, breaking_door

QUICK = RetryPolicy(base_ms=1, cap_ms=1, tries=2, jitter=0.0)
SESSION_S = 60.0


TransportName = Literal["http", "stream"]


def connected(door: BreakingDoor, transport: TransportName, label: str = "") -> Connector:
    return connect(
        door.url,
        retry=QUICK,
        session_timeout=SESSION_S,
        timeout=30,
        label=label,
        transport=transport,
    )


Given = Any
"""What a verb was prepared with: a grant, an object that holds, a session."""


@dataclass(frozen=True)
class Verb:
    """``count`` says how often it has taken effect; ``key`` is fresh for each case."""

    act: Callable[[AsyncClient, str, Given], Awaitable[object]]
    count: Callable[[AsyncClient, str], Awaitable[int]]
    prepare: Callable[[AsyncClient, str], Awaitable[Given]] | None = None
    returns: object = None
    """What the verb has to return, None for anything."""
    withdraws: bool = False
    """What it left is taken back before it says anything: with the member gone that takes 1 s."""
    in_its_own: bool = False
    """The client is fresh for each case, and labelled ``key``."""


async def children(truth: AsyncClient, key: str) -> int:
    return len((await truth.children(f"/{key}")).names)


async def version(truth: AsyncClient, key: str) -> int:
    return (await truth.get(f"/{key}")).stat.version


async def is_gone(truth: AsyncClient, key: str) -> int:
    return int(await truth.exists(f"/{key}") is None)


async def holders(truth: AsyncClient, key: str) -> int:
    view = await truth.lock(key)
    return len(view.holders) + len(view.queue)


async def tree_holders(truth: AsyncClient, key: str) -> int:
    try:
        return len((await truth.children(f"/locks/{key}")).names)
    except NoNodeError:
        return 0


async def is_free(truth: AsyncClient, key: str) -> int:
    return int(await holders(truth, key) == 0)


async def is_shared(truth: AsyncClient, key: str) -> int:
    return sum(each.kind == "shared" for each in (await truth.lock(key)).holders)


async def size_changes(truth: AsyncClient, key: str) -> int:
    view = await truth.lock(key)
    return int(view.size == 7)


async def candidates(truth: AsyncClient, key: str) -> int:
    view = await truth.election(key)
    return len(view.candidates) + (view.elected is not None)


async def is_vacant(truth: AsyncClient, key: str) -> int:
    return int(await candidates(truth, key) == 0)


async def published(truth: AsyncClient, key: str) -> int:
    elected = (await truth.election(key)).elected
    return int(elected is not None and elected.value == b"new")


async def notes(truth: AsyncClient, key: str) -> int:
    return sum([each.note == b"half" async for each in truth.grants(key)])


async def make(client: AsyncClient, key: str) -> None:
    await client.create(f"/{key}", b"old")


async def held(client: AsyncClient, key: str) -> Grant[AsyncClient]:
    return await Lock(client, key).acquire()


async def held_for_writing(client: AsyncClient, key: str) -> Grant[AsyncClient]:
    return await RWLock(client, key).write().acquire()


async def elected(client: AsyncClient, key: str) -> Election[AsyncClient]:
    election = Election(client, key, value=b"old")
    await election.campaign()
    return election


async def semaphore(client: AsyncClient, key: str) -> None:
    await Semaphore(client, key, 3).acquire()


async def opened(truth: AsyncClient, key: str) -> int:
    return sum(each.label == key for each in await truth.sessions())


async def closed(truth: AsyncClient, key: str) -> int:
    return int(await opened(truth, key) == 0)


def limit_of(key: str) -> int:
    return 1_000 + crc32(key.encode()) % 1_000_000


async def is_limit_set(truth: AsyncClient, key: str) -> int:
    return int((await truth.limits()).limits["sessions_per_address_max"] == limit_of(key))


async def session_of(client: AsyncClient, key: str) -> Session:
    return await client.session()


async def closing(session: Session) -> None:
    if not await session.close(5_000):
        raise OutcomeUnknownError("the session was not known to be closed")


VERBS = {
    "create": Verb(
        lambda client, key, _: client.create(f"/{key}/n-", mode="persistent_sequential"),
        children,
        make,
    ),
    "set": Verb(lambda client, key, _: client.set(f"/{key}", b"new"), version, make),
    "delete": Verb(lambda client, key, _: client.delete(f"/{key}"), is_gone, make),
    "multi": Verb(
        lambda client, key, _: client.multi([Create(f"/{key}/n-", b"", "persistent_sequential")]),
        children,
        make,
    ),
    "guarded": Verb(
        lambda client, key, _: client.guarded(
            [], then=[Create(f"/{key}/n-", b"", "persistent_sequential")]
        ),
        children,
        make,
    ),
    "update": Verb(
        lambda client, key, _: client.update(f"/{key}", lambda data: data + b"+"), version, make
    ),
    "acquire": Verb(lambda client, key, _: Lock(client, key).acquire(), holders, withdraws=True),
    "acquire several": Verb(
        lambda client, key, _: MultiLock(client, key, f"{key}-too").acquire(),
        holders,
        withdraws=True,
    ),
    "acquire by znodes": Verb(
        lambda client, key, _: TreeLock(client, key).acquire(), tree_holders, withdraws=True
    ),
    "release": Verb(lambda client, key, grant: grant.release(), is_free, held, returns=True),
    "downgrade": Verb(lambda client, key, grant: grant.downgrade(), is_shared, held_for_writing),
    "note": Verb(lambda client, key, grant: grant.note(b"half"), notes, held),
    "revoke": Verb(
        lambda client, key, _: client.revoke(key, by="a test", reason="to see"), is_free, held
    ),
    "resize": Verb(lambda client, key, _: client.resize(key, 7), size_changes, semaphore),
    "campaign": Verb(
        lambda client, key, _: Election(client, key, timeout=10).campaign(),
        candidates,
        withdraws=True,
    ),
    "proclaim": Verb(lambda client, key, election: election.proclaim(b"new"), published, elected),
    "resign": Verb(
        lambda client, key, election: election.resign(), is_vacant, elected, returns=True
    ),
    "set limits": Verb(
        lambda client, key, _: client.set_limits({"sessions_per_address_max": limit_of(key)}),
        is_limit_set,
    ),
    "open a session": Verb(lambda client, key, _: client.session(), opened, in_its_own=True),
    "close a session": Verb(
        lambda client, key, session: closing(session), closed, session_of, in_its_own=True
    ),
}


class Cases:
    """One verb, broken again and again; what is definite is looked at once more in the end."""

    def __init__(
        self,
        verb: Verb,
        client: AsyncClient,
        truth: AsyncClient,
        door: BreakingDoor,
        transport: TransportName,
    ) -> None:
        self._transport = transport
        self._verb, self._client, self._truth, self._door = verb, client, truth, door
        self.withdraws = verb.withdraws
        self._number = 0
        self._definite: dict[str, str] = {}
        self.told: dict[str, int] = {"done": 0, "not done": 0, "unknown": 0}

    async def broken(self, side: Side, byte_count: int, *, goes: bool) -> bool:
        """Run the verb; whether its connection was broken, and not done before it could be."""
        verb, door = self._verb, self._door
        self._number += 1
        key = f"case-{self._number}"
        await door.open()
        door.disarm()
        if not verb.in_its_own:
            return await self._broken(self._client, key, side, byte_count, goes=goes)
        async with connected(door, self._transport, label=key) as client:
            was_broken = await self._broken(client, key, side, byte_count, goes=goes)
            door.disarm()
            await door.open()
            return was_broken

    async def _broken(
        self, client: AsyncClient, key: str, side: Side, byte_count: int, *, goes: bool
    ) -> bool:
        verb, door = self._verb, self._door
        given = await verb.prepare(client, key) if verb.prepare is not None else None
        await client.get("/")  # so a kept connection is there
        door.break_after(side, byte_count, goes=goes)
        case = f"{side} broken after {byte_count} bytes, the member {'gone' if goes else 'there'}"
        try:
            returned = await verb.act(client, key, given)
        except OutcomeUnknownError:
            self.told["unknown"] += 1
        except CoordinatorError as error:
            self._definite[key] = f"{case}: {error!r}"
            self.told["not done"] += 1
        else:
            self.told["done"] += 1
            assert verb.returns in (None, returned), f"{case}: returned {returned!r}"
            assert await verb.count(self._truth, key) == 1, f"{case}: it returned"
        return not door.is_armed

    async def look_again(self) -> None:
        """What was said to be not done has not been done meanwhile."""
        self._door.disarm()
        await self._door.open()
        await self._client.get("/")
        for key, case in self._definite.items():
            assert await self._verb.count(self._truth, key) == 0, case


async def every_break(cases: Cases, *, step: int) -> None:
    for goes in (True, False):
        for side in ("request", "answer"):
            byte_count = 0
            while await cases.broken(side, byte_count, goes=goes):
                byte_count += 7 * step if goes and cases.withdraws else step
    await cases.look_again()


async def examine(name: str, *, step: int, transport: TransportName) -> None:
    async with (
        breaking_door() as (door, around),
        connected(door, transport) as client,
        connect(transport=around) as truth,
    ):
        cases = Cases(VERBS[name], client, truth, door, transport)
        await client.session()

        await every_break(cases, step=step)

        assert cases.told["done"]
        assert cases.told["unknown"] or cases.told["not done"], "nothing was broken"


@pytest.mark.parametrize("name", VERBS)
async def test_the_verdict_on_a_broken_connection_is_never_wrong(name: str) -> None:
    """Whatever was passed on of request and answer, done is done and not done is not done."""
    await examine(name, step=29, transport="http")


@pytest.mark.check
@pytest.mark.parametrize("name", VERBS)
async def test_the_verdict_on_a_broken_stream_is_never_wrong(name: str) -> None:
    """The same on one connection for everything, whatever else is under way on it."""
    await examine(name, step=29, transport="stream")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "stream"])
@pytest.mark.parametrize("name", VERBS)
async def test_the_verdict_is_never_wrong_after_any_byte(
    name: str, transport: TransportName
) -> None:
    """The same, byte for byte."""
    await examine(name, step=1, transport=transport)
