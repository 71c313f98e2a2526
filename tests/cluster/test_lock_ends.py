"""How grants of all kinds end on real members, and what can be learned of it then and later."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import AsyncClient, GrantRecord
from coordinator.client.connecting import TransportName
from coordinator.errors import (
    LockLostError,
    LockTimeoutError,
    NotOwnerError,
)
from coordinator.recipes import Election, Grant, Lock, MultiLock, RWLock, Semaphore, TreeLock
from tests.cluster.faults.shim import Shim, build
from tests.cluster.faults.world import Skipped
from tests.cluster.processes import ProcessCluster
from tests.cluster.proxy import Proxy
from tests.cluster.scripts import REPOSITORY, Script
from tests.cluster.test_lock_kinds import children_of
from tests.patience import patient

pytestmark = pytest.mark.check

RELEASES_RACED = 12


def client_of(cluster: ProcessCluster, session_s: float = 20.0) -> AsyncClient:
    return connect(cluster.endpoints, timeout=15, session_timeout=session_s)


def contenders(client: AsyncClient, name: str, **options: Any) -> dict[str, Any]:
    """Return a contender of each kind, for queues whose names begin with ``name``."""
    return {
        "lock": Lock(client, f"{name}-lock", **options),
        "tree": TreeLock(client, f"{name}-tree", **options),
        "read": RWLock(client, f"{name}-rw", **options).read(),
        "write": RWLock(client, f"{name}-rw", owner="w", **options).write(),
        "slot": Semaphore(client, f"{name}-slots", 1, **options),
        "multi": MultiLock(client, f"{name}-m1", f"{name}-m2", **options),
        "bounded": Lock(client, f"{name}-bounded", max_hold=60, **options),
        "election": Election(client, f"{name}-e", **options),
    }


async def queues_of(client: AsyncClient, prefix: str) -> list[str]:
    """Return the paths of the queues whose names begin so."""
    return [
        queue
        for root in ("/locks", "/elections")
        for queue in await children_of(client, root)
        if queue.startswith(f"{root}/{prefix}")
    ]


async def all_standing(client: AsyncClient, prefix: str) -> list[str]:
    """Return who stands in the queues whose names begin so."""
    queues = await queues_of(client, prefix)
    return [each for queue in queues for each in await children_of(client, queue)]


async def last_changes(client: AsyncClient, prefix: str) -> dict[str, int]:
    """Return the zxid at which somebody last came to, or left, each queue whose name begins so."""
    found = {each: await client.exists(each) for each in await queues_of(client, prefix)}
    return {path: stat.pzxid for path, stat in found.items() if stat is not None}


async def take(contender: Any) -> Any:
    """Acquire, or campaign, as the contender's own patience has it."""
    return await (contender.campaign if isinstance(contender, Election) else contender.acquire)()


async def give_back(contender: Any) -> None:
    await (contender.resign if isinstance(contender, Election) else contender.release)()


async def ended(client: AsyncClient, name: str) -> list[GrantRecord]:
    return [each async for each in client.grants(name)]


def run_cli(cluster: ProcessCluster, *arguments: str, timeout_s: float = 60.0) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "coordinator", *arguments],
        capture_output=True, text=True, check=False, timeout=timeout_s, cwd=REPOSITORY,
        env={**os.environ, "COORDINATOR_ENDPOINTS": cluster.endpoints},
    )  # fmt: skip


# --- silence


@pytest.mark.parametrize(
    ("session_s", "bound_s"), [(20.0, 0.8), (1.5, 0.8), (1.5, 60.0)], ids=["bound", "both", "lease"]
)
async def test_a_holder_stopped_beyond_its_time_knows_it_when_it_wakes(
    cluster: ProcessCluster, session_s: float, bound_s: float
) -> None:
    """Beyond its bound, its lease, or both: no step of it comes after the next grant."""
    name = f"stopped-{session_s:g}-{bound_s:g}"
    holder = Script(
        "-m", "tests.cluster.holder", cluster.endpoints, name, str(session_s), "-", str(bound_s)
    )
    try:
        first = await asyncio.to_thread(holder.wait_for, "granted")
        await asyncio.to_thread(holder.wait_for, "step")
        stopped_at = time.monotonic()
        holder.signal(signal.SIGSTOP)
        async with client_of(cluster) as client:
            grant = await Lock(client, name, timeout=30).acquire()
            waited_s = time.monotonic() - stopped_at
            granted_ms = client.clock.monotonic_ms()
            (before,) = [each for each in await ended(client, name) if not each.is_held]
            await grant.release()
        holder.signal(signal.SIGCONT)
        await asyncio.to_thread(holder.wait_for, "lost")
    finally:
        holder.end()

    late = [each for each in holder.lines if each["event"] == "step" and each["at_ms"] > granted_ms]
    assert late == []
    assert grant.fencing_token > first["token"]
    assert before.how == ("expired" if bound_s > session_s else "max_hold")
    assert waited_s < min(session_s, bound_s) + patient(5.0)


@pytest.mark.parametrize("transport", ["http", "stream"])
async def test_a_holder_that_is_cut_off_learns_of_its_loss_before_the_end(
    cluster: ProcessCluster, transport: TransportName
) -> None:
    """One hold of each kind behind a cut: certain for the last time before the cluster ends it."""
    prefix = f"cut-{transport}"
    proxies = [Proxy(cluster.client_ports[each]) for each in cluster.ids]
    for proxy in proxies:
        await proxy.start()
    urls = ",".join(proxy.url for proxy in proxies)
    certain_ms: dict[str, int] = {}

    async def watch(grant: Grant[AsyncClient]) -> None:
        while True:
            now_ms = client.clock.wall_ms()
            if grant.is_lost:
                return
            certain_ms[grant.path] = now_ms
            await asyncio.sleep(0.005)

    async with (
        connect(urls, timeout=5, session_timeout=1.5, transport=transport) as client,
        client_of(cluster) as other,
    ):
        kinds = {name: each for name, each in contenders(client, prefix).items() if name != "write"}
        held = [await take(each) for each in kinds.values()]
        grants = [each[0] if isinstance(each, tuple) else each for each in held]
        watching = [asyncio.create_task(watch(each)) for each in grants]
        for proxy in proxies:
            proxy.cut()
        rivals = contenders(other, prefix, timeout=30)
        rivals.pop("read")
        later = await asyncio.gather(*(take(each) for each in rivals.values()))
        await asyncio.wait(watching, timeout=10)
        history = {each.path: each async for each in other.grants()}
        for proxy in proxies:
            proxy.heal()
    for proxy in proxies:
        await proxy.stop()

    assert all(task.done() for task in watching)
    assert len(later) == len(grants) == len(certain_ms)
    for path, at_ms in certain_ms.items():
        assert history[path].how == "expired"
        assert at_ms < (history[path].ended_ms or 0), history[path]


async def test_a_lock_delay_follows_a_kill_and_no_clean_end(cluster: ProcessCluster) -> None:
    """kill -9 of the holder closes the lock for a while; a release or a closed client does not."""
    async with client_of(cluster) as client:
        killed = Script(
            "-m", "tests.cluster.holder", cluster.endpoints, "delayed", "1.0", "-", "0", "2.0"
        )
        try:
            await asyncio.to_thread(killed.wait_for, "granted")
        finally:
            killed.end()
        after_kill = await Lock(client, "delayed", timeout=30, lock_delay=30).acquire()
        (lost, held) = await ended(client, "delayed")
        closed_ms = held.granted_ms - (lost.ended_ms or 0)

        await after_kill.release()
        after_release = await Lock(client, "delayed", timeout=0).acquire()
        await after_release.release()
        async with client_of(cluster) as other:
            await Lock(other, "delayed", timeout=0, lock_delay=30).acquire()
        after_close = await Lock(client, "delayed", timeout=0).acquire()
        await after_close.release()

    assert lost.how == "expired"
    assert 1_950 <= closed_ms <= 8_000, closed_ms
    assert after_close.previous is not None
    assert after_close.previous.how == "closed"


# --- force


async def test_force_and_release_at_once_have_one_winner(cluster: ProcessCluster) -> None:
    """Revoked and released at the same moment at two members: one ended it, and both know who."""
    async with client_of(cluster) as client, client_of(cluster) as ops:
        for turn in range(RELEASES_RACED):
            name = f"raced-{turn}"
            grant = await Lock(client, name).acquire()
            waiting = asyncio.create_task(Lock(ops, name, owner="next").acquire())
            while not (await ops.lock(name)).queue:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            forcing = ops.revoke(name, by="ops", reason="race", grant_id=grant.grant_id)
            was_held, forced = await asyncio.gather(
                grant.release(), forcing, return_exceptions=True
            )
            following = await waiting
            first = (await ended(client, name))[0]
            with pytest.raises(LockLostError):
                await client.set("/", b"", if_held=grant)
            await following.release()

            assert first.how in ("released", "forced")
            assert was_held is (first.how == "released")
            assert isinstance(forced, NotOwnerError) == (first.how == "released"), forced
            assert following.fencing_token > grant.fencing_token


async def test_force_and_expiry_at_once_have_one_winner(cluster: ProcessCluster) -> None:
    """Revoked about when its session ends: the history names one end, the next is granted once."""
    async with client_of(cluster) as client:
        for turn in range(3):
            name = f"dying-{turn}"
            holder = Script("-m", "tests.cluster.holder", cluster.endpoints, name, "1.0")
            try:
                answer = await asyncio.to_thread(holder.wait_for, "granted")
            finally:
                holder.end()
            waiting = asyncio.create_task(Lock(client, name, timeout=30).acquire())
            await asyncio.sleep(0.55 + 0.15 * turn)
            try:
                await client.revoke(name, by="ops", reason="race", grant_id=answer["grant_id"])
                expected = "forced"
            except NotOwnerError:
                expected = "expired"
            following = await waiting
            first, second = await ended(client, name)
            await following.release()

            assert first.how == expected
            assert second.granted_zxid >= (first.ended_zxid or 0)


# --- no leader


async def test_without_a_leader_why_says_so_and_nothing_is_made_up(cluster: ProcessCluster) -> None:
    """Two of three stopped: questions fail in time; ``?stale`` answers and promises nothing."""
    async with client_of(cluster, session_s=60.0) as client:
        grant = await Lock(client, "orphaned", label="worker 7").acquire()
        leader = await asyncio.to_thread(cluster.leader)
        left = next(each for each in cluster.ids if each != leader)
        stopped = [each for each in cluster.ids if each != left]
        # A linearizable look: from then on that member has applied the grant, too.
        assert (await asyncio.to_thread(cluster.get, left, "/v1/locks/orphaned", 5.0))[0] == 200
        for each in stopped:
            cluster.signal(each, signal.SIGSTOP)
        try:
            began = time.monotonic()
            why = await asyncio.to_thread(run_cli, cluster, "why", "orphaned", "--timeout", "4")
            took_s = time.monotonic() - began
            code, stale = await asyncio.to_thread(
                cluster.get, left, "/v1/locks/orphaned?stale", 5.0
            )
        finally:
            for each in stopped:
                cluster.signal(each, signal.SIGCONT)
        await asyncio.to_thread(cluster.leader)
        safe_ms = await grant.verify()
        await grant.release()

    assert why.returncode != 0
    assert "orphaned is" not in why.stdout
    assert "Traceback" not in why.stderr
    assert took_s < patient(30)
    assert code == 200
    assert stale["holder"]["label"] == "worker 7"
    assert stale["holder"]["safe_ms"] is None
    assert safe_ms > 0


async def test_attempts_cancelled_without_a_leader_leave_nothing(cluster: ProcessCluster) -> None:
    """Every kind, begun when no quorum is there and given up: nobody stands when it is back."""
    async with client_of(cluster, session_s=60.0) as client:
        await client.session()
        leader = await asyncio.to_thread(cluster.leader)
        stopped = [leader, next(each for each in cluster.ids if each != leader)]
        for each in stopped:
            cluster.signal(each, signal.SIGSTOP)
        try:
            kinds = contenders(client, "given-up").values()
            tasks = [asyncio.create_task(take(each)) for each in kinds]
            await asyncio.sleep(0.5)
            for task in tasks:
                task.cancel()
            done, late = await asyncio.wait(tasks, timeout=20)
        finally:
            for each in stopped:
                cluster.signal(each, signal.SIGCONT)
        await asyncio.to_thread(cluster.leader)
        end = time.monotonic() + patient(30)
        while left := await all_standing(client, "given-up"):
            assert time.monotonic() < end, left
            await asyncio.sleep(0.1)
        for each in contenders(client, "given-up").values():
            await take(each)
            await give_back(each)

    assert late == set(), "a cancelled attempt ends"
    assert all(task.cancelled() for task in done)


# --- tries


async def test_tries_of_all_kinds_answer_at_once_and_leave_nothing(
    cluster: ProcessCluster,
) -> None:
    """timeout=0 behind holders, many at once: not had, and none of them ever stood in a queue.

    So none can have waited there; the zxid of each queue's last change says it, on a machine as
    slow as may be."""
    async with client_of(cluster) as client, client_of(cluster) as other:
        held = [each for name, each in contenders(client, "tried").items() if name != "read"]
        for each in held:
            await take(each)
        await other.session()
        before = await all_standing(client, "tried")
        changed = await last_changes(client, "tried")

        async def attempt(each: Any) -> str:
            try:
                await take(each)
            except LockTimeoutError:
                return "not had"
            return "had"

        answer = await asyncio.gather(
            *(attempt(each) for _ in range(20)
              for each in contenders(other, "tried", timeout=0).values())
        )  # fmt: skip
        after = await all_standing(client, "tried")
        changed_after = await last_changes(client, "tried")
        for each in held:
            await give_back(each)

    assert set(answer) == {"not had"}
    assert after == before
    assert len(changed) >= len(held)
    assert changed_after == changed


# --- why-lost


async def test_each_way_to_lose_is_told_afterwards(cluster: ProcessCluster) -> None:
    """Released, closed, expired, deleted, forced, over its bound: ``why-lost`` says it."""
    tokens: dict[str, int] = {}
    async with client_of(cluster) as client:

        async def hold(other: AsyncClient, **options: Any) -> Grant[AsyncClient]:
            return await Lock(other, "told", timeout=30, owner="", **options).acquire()

        grant = await hold(client)
        tokens["released"] = grant.fencing_token
        await grant.release()
        async with client_of(cluster) as other:
            tokens["closed"] = (await hold(other)).fencing_token
        grant = await hold(client)
        tokens["deleted"] = grant.fencing_token
        await client.delete(grant.path)
        grant = await hold(client)
        tokens["forced"] = grant.fencing_token
        await client.revoke("told", by="ops", reason="its host is off")
        holder = Script("-m", "tests.cluster.holder", cluster.endpoints, "told", "1.0")
        try:
            tokens["expired"] = (await asyncio.to_thread(holder.wait_for, "granted"))["token"]
        finally:
            holder.end()
        bounded = await hold(client, max_hold=0.5)
        tokens["max_hold"] = bounded.fencing_token
        last = await hold(client)
        await last.release()
        with pytest.raises(LockLostError, match="max_hold"):
            bounded.check()
        history = {each.fencing_token: each for each in await ended(client, "told")}
    asked = [
        asyncio.to_thread(run_cli, cluster, "why-lost", "told", str(token))
        for token in tokens.values()
    ]
    told = dict(zip(tokens, await asyncio.gather(*asked), strict=True))

    assert {how: history[token].how for how, token in tokens.items()} == {
        how: how for how in tokens
    }
    words = {
        "released": "it was released", "closed": "closed the session", "expired": "heard nothing",
        "deleted": "deleted over the tree", "forced": "its host is off", "max_hold": "max_hold",
    }  # fmt: skip
    for how, done in told.items():
        assert done.returncode == 0, done
        assert words[how] in done.stdout, (how, done.stdout)
    for earlier, later in pairwise(sorted(tokens.values())):
        assert history[earlier].next_token == later


# --- history


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_the_history_is_the_same_after_snapshots_restarts_and_catching_up(
    tmp_path: Path,
) -> None:
    """One of five is away for many grants and catches up by a snapshot; then all restart."""
    cluster = ProcessCluster(
        tmp_path, 5, {"raft": {"snapshot_every_entries": 100, "keep_entries_after_snapshot": 20}}
    )
    try:
        cluster.start()
        cluster.wait_ready(deadline_s=60)
        async with client_of(cluster, session_s=200.0) as client:
            cluster.kill("5")
            for number in range(60):
                async with Lock(client, f"h{number % 3}", label=f"{number}") as grant:
                    await grant.note(b"%d" % number)
                async with MultiLock(client, "h0", "h1"), Semaphore(client, "s", 2):
                    pass
            await asyncio.to_thread(cluster.start, "5")
            await cluster.wait_ready_async("5")
            held = await RWLock(client, "h0", max_hold=600).write().acquire()
            await held.downgrade()
            caught_up = await histories(cluster)
            cluster.kill()
            cluster.start()
            await asyncio.to_thread(cluster.wait_ready, deadline_s=120)
            restarted = await histories(cluster)
            is_held = (await held.is_held()).is_held
            await held.release()
    finally:
        cluster.stop()

    assert len(caught_up["1"]) == 60 * 4 + 1
    assert all(history == caught_up["1"] for history in caught_up.values())
    assert restarted == caught_up
    assert caught_up["1"][-1]["kind"] == "shared"
    assert is_held


async def histories(cluster: ProcessCluster) -> dict[str, list[dict[str, Any]]]:
    """Return the history of grants as each member tells it."""
    found = {}
    for each in cluster.ids:
        code, body = await asyncio.to_thread(cluster.get, each, "/v1/grants", 20.0)
        assert code == 200, body
        found[each] = body["grants"]
    return found


# --- wall clocks


@pytest.mark.slow
async def test_wall_clocks_an_hour_off_change_no_bound_and_no_delay(tmp_path: Path) -> None:
    """Members in other hours, and stepping: holds and delays last as long as they should."""
    try:
        library = build(tmp_path)
    except Skipped as reason:
        pytest.skip(str(reason))
    cluster = ProcessCluster(tmp_path / "cluster", 3)
    shims = {
        each: Shim(library, tmp_path / f"shim-{each}", tmp_path / "nowhere") for each in cluster.ids
    }
    hour_ms = 3_600_000
    try:
        for each, offset_ms in zip(cluster.ids, (hour_ms, -hour_ms, 0), strict=True):
            shims[each].set(wall_offset_ms=offset_ms)
            cluster.start(each, env=shims[each].environment)
        cluster.wait_ready(deadline_s=60)
        async with client_of(cluster) as client:
            bounded = await Lock(client, "late", max_hold=1.0, owner="").acquire()
            began = time.monotonic()
            told_ms = bounded.remaining_safe_ms()
            waiting = asyncio.create_task(Lock(client, "late", owner="", timeout=30).acquire())
            for each in cluster.ids:
                shims[each].set(wall_offset_ms=-shims[each].get("wall_offset_ms") or 2 * hour_ms)
            following = await waiting
            bound_s = time.monotonic() - began
            holder = Script(
                "-m", "tests.cluster.holder", cluster.endpoints, "slow", "1.0", "-", "0", "1.5"
            )
            try:
                await asyncio.to_thread(holder.wait_for, "granted")
            finally:
                holder.end()
            killed_at = time.monotonic()
            later = await Lock(client, "slow", timeout=30).acquire()
            closed_s = time.monotonic() - killed_at
            grants = await ended(client, "late")
    finally:
        cluster.stop()
        for shim in shims.values():
            shim.close()

    assert 0.8 <= told_ms / 1000 <= 1.0
    assert 0.9 <= bound_s <= patient(8.0)
    assert 1.5 + 0.4 <= closed_s <= patient(12.0)
    assert [each.fencing_token for each in grants] == [
        bounded.fencing_token, following.fencing_token
    ], "in the order of the grants, whatever the labels say"  # fmt: skip
    assert later.previous is not None
