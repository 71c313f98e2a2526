"""A connection that breaks after any byte: what the client says of the request is never wrong.

For each verb, each byte of its request and of the answer, and each of two members (one that still
serves afterwards, one that is gone): a verb that returns was done once, a verb that raises a
definite error was not done and is not done later. An unknown outcome may be either.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from coordinator.client import AsyncClient, Create, Session
from coordinator.errors import NoNodeError, OutcomeUnknownError
from coordinator.recipes import Election, Lock, MultiLock, RWLock, Semaphore, TreeLock
from coordinator.recipes.locks.grant import Grant
from tests.client.breaking_verbs import TransportName, Verb, examine

HOLD_S = 600.0


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


async def held_for_a_time(client: AsyncClient, key: str) -> Grant[AsyncClient]:
    return await Lock(client, key, max_hold=HOLD_S).acquire()


async def extensions(truth: AsyncClient, key: str) -> int:
    return (await truth.lock(key)).holders[0].extensions


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
        lambda client, key, _: client.multi(
            [Create(f"/{key}/n-", data=b"", mode="persistent_sequential")]
        ),
        children,
        make,
    ),
    "guarded": Verb(
        lambda client, key, _: client.guarded(
            [], then=[Create(f"/{key}/n-", data=b"", mode="persistent_sequential")]
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
        lambda client, key, _: TreeLock(client, key, timeout=1).acquire(),
        tree_holders,
        withdraws=True,
    ),
    "release": Verb(lambda client, key, grant: grant.release(), is_free, held, returns=True),
    "downgrade": Verb(lambda client, key, grant: grant.downgrade(), is_shared, held_for_writing),
    "note": Verb(lambda client, key, grant: grant.note(b"half"), notes, held),
    "extend": Verb(
        lambda client, key, grant: grant.extend_by(100),
        extensions,
        held_for_a_time,
        in_its_own=True,  # for each answer to a heartbeat lists the session's bounded holds
    ),
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


@pytest.mark.parametrize("step", [101, pytest.param(29, marks=pytest.mark.check)])
@pytest.mark.parametrize("name", VERBS)
async def test_the_verdict_on_a_broken_connection_is_never_wrong(name: str, step: int) -> None:
    """Whatever was passed on of request and answer, done is done and not done is not done."""
    await examine(VERBS[name], step=step, transport="http")


@pytest.mark.check
@pytest.mark.parametrize("name", VERBS)
async def test_the_verdict_on_a_broken_stream_is_never_wrong(name: str) -> None:
    """The same on one connection for everything, whatever else is under way on it."""
    await examine(VERBS[name], step=29, transport="stream")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "stream"])
@pytest.mark.parametrize("name", VERBS)
async def test_the_verdict_is_never_wrong_after_any_byte(
    name: str, transport: TransportName
) -> None:
    """The same, byte for byte."""
    await examine(VERBS[name], step=1, transport=transport)
