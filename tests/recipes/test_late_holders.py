"""Who comes late, however late: refused by its number, and told what became of it."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from pathlib import Path

import pytest

from coordinator.errors import SessionExpiredError, StaleTokenError
from coordinator.guards import FileGuard
from coordinator.model.limits import NEW_CLUSTER
from coordinator.recipes import Lock
from coordinator.testing import LocalCluster
from tests.client.memory_cluster import MemoryCluster, in_memory

TIMEOUT_S_MAX = NEW_CLUSTER.timeout_ms_max // 1000


class Awaited:
    """A guard of a file that is raised in the loop: its time is virtual, a thread's is not."""

    def __init__(self, path: Path) -> None:
        self.file = FileGuard(path)

    async def raise_to(self, token: int) -> None:
        self.file.raise_to(token)


@pytest.mark.parametrize("timeout_s", [2, 60, TIMEOUT_S_MAX])
@in_memory
async def test_no_timeout_is_longer_than_every_pause(
    world: MemoryCluster, timeout_s: int, tmp_path: Path
) -> None:
    """Frozen for longer than even the longest one there is, the late write is refused."""
    guard, network = Awaited(tmp_path / "report"), world.network()
    async with (
        world.client(network, session_timeout=timeout_s) as frozen,
        world.client() as client,
    ):
        late = await Lock(frozen, "report", guards=[guard]).acquire()
        late.check()  # it looks, and then nothing of it runs any more
        network.is_cut = True
        async with Lock(client, "report", timeout=2 * timeout_s, guards=[guard]) as grant:
            with pytest.raises(StaleTokenError) as refused:  # not one line of it in between
                guard.file.write(late.fencing_token, b"late")

            assert refused.value.token == late.fencing_token
            assert refused.value.highest_token == grant.fencing_token
            guard.file.write(grant.fencing_token, b"in time")
        assert guard.file.read() == b"in time"
        network.is_cut = False


@in_memory
async def test_a_crash_is_told_as_expired_and_a_release_as_released(world: MemoryCluster) -> None:
    """The audit never says of a lock that nobody gave back that it was given back."""
    network = world.network()
    async with world.client(network, session_timeout=2) as crashes, world.client() as client:
        lost = await Lock(crashes, "daily").acquire()
        network.is_cut = True  # nothing comes from it any more
        async with Lock(client, "daily", timeout=60) as grant:
            pass

        ended = {each.grant_id: each.how async for each in client.grants("daily")}

        assert ended == {lost.grant_id: "expired", grant.grant_id: "released"}
        network.is_cut = False


@in_memory
async def test_anybody_may_ask_whether_a_token_is_current(world: MemoryCluster) -> None:
    """Yes while it holds, no before and after; without a session of one's own."""
    async with world.client() as holder, world.client() as stranger:
        async with Lock(holder, "daily") as grant:
            token = grant.fencing_token

            assert (await stranger.lock("daily", fencing_token=token)).is_current is True
            assert (await stranger.lock("daily", fencing_token=token + 1)).is_current is False
            assert (await stranger.lock("other", fencing_token=token)).is_current is False
        assert (await stranger.lock("daily", fencing_token=token)).is_current is False
        assert len(await stranger.sessions()) == 1  # the holder's


def test_tokens_are_counted_and_not_timed(shared_coordinator_cluster: LocalCluster) -> None:
    """Whichever clock is set, and which way: the next token is that of a change since."""
    cluster = shared_coordinator_cluster
    with cluster.connect() as client:
        tokens = [Lock(client, "daily").acquire().fencing_token]
        for who in (cluster.leader, cluster.followers[0], client):
            for by_ms in (3_600_000, -7_200_000):
                cluster.step_clock(who, by_ms)
                client.lock("daily")
                before = client.create(f"/before-{len(tokens)}").stat.czxid
                tokens.append(Lock(client, f"daily-{len(tokens)}").acquire().fencing_token)

                # Not always the very next: a session that somewhere ends is a change, too.
                assert before < tokens[-1] < client.create(f"/after-{len(tokens)}").stat.czxid
        assert all(type(token) is int for token in tokens)
        assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("meets", ["acquire", "create"])
@in_memory
async def test_a_session_that_ended_unseen_costs_one_error_and_no_more(
    world: MemoryCluster, meets: str
) -> None:
    """Who holds by it is told by the first answer that says so; then there is a new one."""
    async with world.client() as client:
        grant = await Lock(client, "daily").acquire()
        deadline_ms = world.clock.monotonic_ms() + 1_000
        await world.member.close_session(grant.session_id, None, deadline_ms)
        assert not grant.is_lost  # nobody has told this client

        creating = partial(client.create, "/here", mode="ephemeral")
        meet = Lock(client, "weekly").acquire if meets == "acquire" else creating
        with pytest.raises(SessionExpiredError):
            await meet()

        assert grant.is_lost
        async with Lock(client, "weekly") as again:
            assert again.session_id != grant.session_id


@in_memory
async def test_a_forgotten_grant_is_held_until_its_client_is_closed(world: MemoryCluster) -> None:
    """As docs/recipes.md warns; a bound ends even what was forgotten."""
    async with world.client() as client:
        await Lock(client, "daily").acquire()
        await Lock(client, "bounded", max_hold=30).acquire()
        gc.collect()
        await asyncio.sleep(3_600)

        assert (await client.lock("daily")).holder is not None
        assert (await client.lock("bounded")).holder is None
    async with world.client() as client:
        assert (await client.lock("daily")).holder is None
