"""Rights that end while a request is under way: what is unknown stays unknown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coordinator import connect
from coordinator.client import AsyncClient, Request, Rule, Verb
from coordinator.client.calling.credentials import Acceptance
from coordinator.client.calling.transport import Headers
from coordinator.client.verbs.access import new_token
from coordinator.errors import (
    GONE_FIELD,
    AuthFailedError,
    LockLostError,
    NoAuthError,
    OutcomeUnknownError,
)
from coordinator.recipes import Election, Lock
from coordinator.wire.messages import AUTHORIZATION
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.patience import patient


@asynccontextmanager
async def _with_rights(world: MemoryCluster) -> AsyncIterator[tuple[AsyncClient, str, str]]:
    """Turn rights on; yield a client of root, and a worker's token with its id."""
    async with world.client() as first:
        root = (await first.init_access("root")).token
    async with world.client(token=root) as admin:
        rules = [Rule("/locks", (Verb.LOCK,)), Rule("/a", (Verb.WRITE,))]
        await admin.put_role("work", rules)
        await admin.put_identity("worker", ["work"])
        added = await admin.add_token("worker")
        yield admin, added.token, added.token_id


@in_memory
async def test_an_acquire_that_may_be_queued_is_not_said_to_be_refused(
    world: MemoryCluster,
) -> None:
    """Its first answer was lost, then its token was revoked: it may have been granted."""
    async with _with_rights(world) as (admin, token, token_id):
        network = world.network()
        async with world.client(network, token=token) as client:
            network.delays_s = lambda request: 1.0 if "locks" in request.target else 0.0
            network.lose_one_reply("POST", "/v1/locks")
            acquiring = asyncio.create_task(Lock(client, "daily").acquire())
            await asyncio.sleep(0.5)
            await admin.drop_token(token_id)
            with pytest.raises(OutcomeUnknownError):
                await acquiring
            with pytest.raises(AuthFailedError):
                await Lock(client, "daily").acquire()

            await asyncio.sleep(2)
            assert [each async for each in admin.locks()] == []


@in_memory
async def test_a_write_that_may_be_done_is_not_said_to_be_refused(world: MemoryCluster) -> None:
    """Nor when the role was taken away instead of the token; a new write is refused, definitely."""
    async with _with_rights(world) as (admin, token, _):
        network = world.network()
        async with world.client(network, token=token) as client:
            await client.create("/a", b"1")
            network.delays_s = lambda request: 1.0 if request.method == "PUT" else 0.0
            network.lose_one_reply("PUT", "/v1/tree")
            writing = asyncio.create_task(client.set("/a", b"2"))
            await asyncio.sleep(0.5)
            await admin.put_role("work", [Rule("/b", (Verb.WRITE,))])
            outcome = (await asyncio.gather(writing, return_exceptions=True))[0]
            with pytest.raises(NoAuthError, match="needs write on /a"):
                await client.set("/a", b"3")

            data = (await admin.get("/a")).data
            assert data == b"2"
            assert not isinstance(outcome, NoAuthError | AuthFailedError), outcome


@in_memory
async def test_a_token_that_was_replaced_is_shown_by_the_next_request(
    world: MemoryCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No restart, no new connection; and the lock that is held goes on under it."""
    async with _with_rights(world) as (admin, token, token_id):
        file = tmp_path_factory.mktemp("token") / "token"
        file.write_text(token)
        async with world.client(token_file=file, session_timeout=2) as client:
            held = await Lock(client, "daily").acquire()
            second = await admin.add_token("worker")
            file.write_text(second.token)
            assert (await client.caller()).credential == f"token:{second.token_id}"
            await asyncio.sleep(5)
            await admin.drop_token(token_id)
            await asyncio.sleep(5)

            assert not held.is_lost
            await held.release()


@in_memory
async def test_a_holder_whose_token_is_revoked_is_told_at_once(world: MemoryCluster) -> None:
    """The next has the lock by then: it must not believe in its own until the lease is over."""
    async with _with_rights(world) as (admin, token, token_id):
        other = (await admin.add_token("worker")).token
        async with (
            world.client(token=token, session_timeout=30) as client,
            world.client(token=other) as second,
        ):
            held = await Lock(client, "daily").acquire()
            notified = asyncio.Event()
            held.on_lost(notified.set)
            await admin.drop_token(token_id)
            async with Lock(second, "daily"):
                await asyncio.wait_for(notified.wait(), 15)  # by its next heartbeat

            assert held.is_lost
            with pytest.raises(LockLostError, match="revoked"):
                held.check()


@in_memory
async def test_any_answer_tells_that_the_token_is_gone(world: MemoryCluster) -> None:
    """Not the next heartbeat only, which may be far."""
    async with (
        _with_rights(world) as (admin, token, token_id),
        world.client(token=token, session_timeout=300) as client,
    ):
        held = await Lock(client, "daily").acquire()
        await admin.drop_token(token_id)
        with pytest.raises(AuthFailedError):
            await client.set("/a", b"1")

        assert held.is_lost


@in_memory
async def test_a_token_that_expired_or_never_was_loses_nothing(
    world: MemoryCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its file may bring the next one before the lease is over."""
    async with _with_rights(world) as (admin, _, _id):
        file = tmp_path_factory.mktemp("token") / "token"
        short = await admin.add_token("worker", expires_ms=world.clock.wall_ms() + 4_000)
        file.write_text(short.token)
        async with world.client(token_file=file, session_timeout=12) as client:
            held = await Lock(client, "daily").acquire()
            await asyncio.sleep(5)
            with pytest.raises(AuthFailedError, match="expired"):
                await client.set("/a", b"1")
            file.write_text(new_token()[1])
            with pytest.raises(AuthFailedError):
                await client.set("/a", b"1")
            assert not held.is_lost
            file.write_text((await admin.add_token("worker")).token)
            await asyncio.sleep(20)

            assert not held.is_lost
            await held.release()


@in_memory
async def test_what_lasts_ends_with_the_token_that_began_it(
    world: MemoryCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A watch, an observed election and a wait; with the next token in its file a watch goes on."""
    async with _with_rights(world) as (admin, _, _id):
        await admin.put_role("work", [Rule("/", (Verb.LOCK, Verb.WATCH, Verb.READ))])
        file = tmp_path_factory.mktemp("token") / "token"
        short = await admin.add_token("worker", expires_ms=world.clock.wall_ms() + 20_000)
        file.write_text(short.token)
        held = await Lock(admin, "daily").acquire()
        async with (
            world.client(token=short.token, timeout=5, session_timeout=300) as old,
            world.client(token_file=file) as next_one,
            old.watch("/a") as ending,
            next_one.watch("/a") as going_on,
        ):
            waiting = asyncio.create_task(Lock(old, "daily").acquire(timeout=100))
            seen = asyncio.create_task(anext(aiter(Election(old, "boss").observe())))
            await asyncio.sleep(10)
            assert len((await admin.lock("daily")).queue) == 1
            file.write_text((await admin.add_token("worker")).token)
            await asyncio.sleep(15)
            await admin.create("/a", b"1")

            assert (await anext(going_on)).events[0].path == "/a"
            for ended in (anext(ending), waiting):
                with pytest.raises((AuthFailedError, OutcomeUnknownError)):
                    await ended
            seen.cancel()
            await held.release()


@in_memory
async def test_who_waits_keeps_its_place_when_the_next_token_is_there(
    world: MemoryCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The wait ends with the token; the client goes on under the next one, in the same place."""
    async with _with_rights(world) as (admin, _, _id):
        file = tmp_path_factory.mktemp("token") / "token"
        short = await admin.add_token("worker", expires_ms=world.clock.wall_ms() + 4_000)
        file.write_text(short.token)
        held = await Lock(admin, "daily").acquire()
        async with world.client(token_file=file, session_timeout=12) as client:
            waiting = asyncio.create_task(Lock(client, "daily").acquire())
            await asyncio.sleep(1)
            behind = asyncio.create_task(Lock(admin, "daily").acquire(timeout=60))
            await asyncio.sleep(1)
            before = [each.path for each in (await admin.lock("daily")).queue]
            file.write_text((await admin.add_token("worker")).token)
            await asyncio.sleep(5)
            after = [each.path for each in (await admin.lock("daily")).queue]
            await held.release()
            grant = await waiting
            await grant.release()
            await (await behind).release()

        assert len(before) == 2
        assert after == before


@in_memory
async def test_nothing_is_granted_to_who_waits_under_an_expired_token(
    world: MemoryCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No next token comes: its session ends by silence, and its place with it."""
    async with _with_rights(world) as (admin, _, _id):
        short = await admin.add_token("worker", expires_ms=world.clock.wall_ms() + 4_000)
        held = await Lock(admin, "daily").acquire()
        async with world.client(token=short.token, session_timeout=6) as client:
            waiting = asyncio.create_task(Lock(client, "daily").acquire())
            await asyncio.sleep(2)
            assert len((await admin.lock("daily")).queue) == 1
            with pytest.raises((AuthFailedError, OutcomeUnknownError)):
                await waiting
            await asyncio.sleep(15)
            left = (await admin.lock("daily")).queue
            await held.release()
            await asyncio.sleep(1)
            holders = (await admin.lock("daily")).holders

        assert (left, holders) == ((), ())


def test_threads_are_told_by_whichever_thread_was(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A verb that is sent without the event loop ends the session of all of them."""
    file = tmp_path_factory.mktemp("token") / "token"
    with serving() as url, connect(url, transport="stream") as first:
        file.write_text(first.init_access("root").token)
        with connect(url, transport="stream", token_file=file) as admin:
            admin.put_role("work", [Rule("/", (Verb.LOCK, Verb.READ))])
            admin.put_identity("worker", ["work"])
            added = admin.add_token("worker")
            with connect(url, transport="stream", token=added.token, session_timeout=300) as client:
                held = Lock(client, "daily").acquire()
                notified = threading.Event()
                held.on_lost(notified.set)
                admin.drop_token(added.token_id)
                with pytest.raises(AuthFailedError):
                    client.get("/")

                assert held.is_lost
                assert notified.wait(patient(10))


def test_what_was_found_before_it_was_accepted_ends_nothing() -> None:
    """A member that lags says for a moment what it found when the token was not there yet."""
    acceptance = Acceptance()
    request = Request("GET", target="/", headers=Headers({AUTHORIZATION: "Bearer co_1"}), body=None)
    other = Request("GET", target="/", headers=Headers({AUTHORIZATION: "Bearer co_2"}), body=None)
    error = AuthFailedError("not known", **{GONE_FIELD: 500})
    assert not acceptance.is_over(error, request, 2_000)

    acceptance.note(request, 200, 1_600)
    acceptance.note(other, 401, 1_700)
    assert not acceptance.is_over(error, request, 2_000)
    assert not acceptance.is_over(AuthFailedError("expired"), request, 3_000)
    assert not acceptance.is_over(error, other, 3_000)
    assert acceptance.is_over(error, request, 2_100)


def test_tokens_are_drawn_anew() -> None:
    """Each is another."""
    assert len({new_token() for _ in range(100)}) == 100
