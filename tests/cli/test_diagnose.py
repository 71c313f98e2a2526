"""What the history of a lock says about its use, in words and with the figures behind them."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.cli.diagnose import lines_of
from coordinator.client import AsyncClient, LockDiagnosis
from coordinator.errors import LockTimeoutError
from coordinator.recipes import Lock
from tests.cli.conftest import CommandLine
from tests.client.memory_cluster import MemoryCluster, in_memory


async def crowd(world: MemoryCluster, waiters: int, hold_s: float) -> None:
    """Let so many want the lock at once, and each hold it for so long."""
    async with world.client(session_timeout=60) as client:

        async def work() -> None:
            async with Lock(client, "stock", timeout=600):
                await asyncio.sleep(hold_s)

        await asyncio.gather(*(work() for _ in range(waiters)))


async def diagnoses(client: AsyncClient, name: str | None) -> tuple[LockDiagnosis, ...]:
    return (await client.diagnosis(name)).locks


def codes(diagnosis: LockDiagnosis) -> list[str]:
    return [each.code for each in diagnosis.findings]


@pytest.mark.parametrize(("waiters", "hold_s"), [(50, 0.5), (20, 0.05)])
@in_memory
async def test_waiting_for_a_crowd_is_told_to_be_the_bottleneck(
    world: MemoryCluster, waiters: int, hold_s: float
) -> None:
    """500 ms holds, 50 waiters: 25 s of waiting for half a second of work."""
    await crowd(world, waiters, hold_s)
    async with world.client() as client:
        (diagnosis,) = await diagnoses(client, "stock")
    text = "\n".join(lines_of(diagnosis))
    figures = diagnosis.figures
    assert figures.holds is not None
    assert figures.waits is not None

    assert "stock: Wait dominates: the lock is the bottleneck." in text
    assert diagnosis.findings[0].severity == "problem"
    assert figures.holds.p99_ms == pytest.approx(hold_s * 1_000, rel=0.1)
    assert figures.waits.max_ms == pytest.approx(hold_s * 1_000 * (waiters - 1), rel=0.1)
    if waiters == 50:
        assert "24." in text  # seconds
        assert "500 ms (p50)" in text
        assert "held for 100 %" in text


@in_memory
async def test_a_lock_that_nobody_else_wants_is_told_so(world: MemoryCluster) -> None:
    """Granted at once every time; from five grants on."""
    async with world.client() as client:
        for _ in range(4):
            async with Lock(client, "lonely"):
                pass
        assert codes((await diagnoses(client, "lonely"))[0]) == ["healthy"]
        async with Lock(client, "lonely"):
            pass
        (diagnosis,) = await diagnoses(client, "lonely")

        assert codes(diagnosis) == ["never-contended"]
        assert "Each of the 5 grants" in lines_of(diagnosis)[1]


@in_memory
async def test_refused_tries_and_timeouts_are_contention(world: MemoryCluster) -> None:
    """200 refused tries and 20 timeouts: it was "never contended"."""
    async with world.client() as client, world.client() as other:
        for _ in range(5):
            async with Lock(client, "busy"):
                pass
        async with Lock(client, "busy"):
            for _ in range(200):
                assert await Lock(other, "busy", timeout=0).try_acquire() is None
            for _ in range(20):
                with pytest.raises(LockTimeoutError):
                    await Lock(other, "busy", timeout=0.1).acquire()
            (diagnosis,) = await diagnoses(client, "busy")
            (listed,) = await diagnoses(client, None)

    text = "\n".join(lines_of(diagnosis))
    assert codes(diagnosis) == ["denied"]
    assert "Most waiters leave without it." in text
    assert "200 tries were refused at once, and 20 waiters left" in text
    assert listed == diagnosis


@in_memory
async def test_who_was_granted_has_not_been_denied(world: MemoryCluster) -> None:
    """Waiting, then holding, then giving back is no denial; nor is an election's queue."""
    async with world.client() as client, world.client() as other:
        grant = await Lock(client, "handed").acquire()
        waiting = asyncio.create_task(Lock(other, "handed", timeout=60).acquire())
        await asyncio.sleep(1)
        await grant.release()
        await (await waiting).release()
        view = await client.lock("handed")

    assert view.denied is not None
    assert (view.denied.tries, view.denied.left) == (0, 0)


@in_memory
async def test_holders_that_fell_silent_are_set_against_the_lease(world: MemoryCluster) -> None:
    """A lease of 2 s and a pause of ten: who was paused needs a longer one."""
    network = world.network()
    async with (
        world.client(network, session_timeout=2) as client,
        world.client(session_timeout=2) as other,
    ):
        await Lock(client, "daily").acquire()
        network.is_cut = True
        await Lock(other, "daily", timeout=60).acquire()
        (diagnosis,) = await diagnoses(other, "daily")
        network.is_cut = False

    (finding,) = (each for each in diagnosis.findings if each.code == "lease-shorter-than-pauses")
    assert "1 of 2 grants" in finding.why
    assert "the lease (2.0 s)" in finding.why
    assert (diagnosis.figures.silence_ms_max or 0) >= 2_000


@in_memory
async def test_holds_longer_than_the_lease_live_by_their_heartbeats(world: MemoryCluster) -> None:
    """It is as it should be, and worth knowing."""
    async with world.client(session_timeout=2) as client:
        async with Lock(client, "long"):
            await asyncio.sleep(30)
        async with Lock(client, "long"):
            (diagnosis,) = await diagnoses(client, "long")

    assert codes(diagnosis) == ["lease-shorter-than-holds"]
    assert "2.0 s" in diagnosis.findings[0].why
    assert "30.0 s" in diagnosis.findings[0].why


@in_memory
async def test_without_a_name_every_lock_of_the_history_is_diagnosed(world: MemoryCluster) -> None:
    """By name; elections are left out; a lock nobody knows is said to be unknown."""
    async with world.client() as client:
        for name in ("b", "a"):
            async with Lock(client, name):
                pass

        assert [each.lock for each in await diagnoses(client, None)] == ["a", "b"]
        (unknown,) = await diagnoses(client, "nobody's")
        assert codes(unknown) == ["unknown"]


def test_the_command_answers_in_words_and_in_json(coordinator: CommandLine) -> None:
    """Against a member over HTTP."""
    assert "Nothing is known of it." in coordinator.text("diagnose", "nobody's")
    (only,) = coordinator.json("diagnose", "nobody's")["locks"]
    assert only["findings"][0]["code"] == "unknown"
    assert only["figures"]["grants"] == 0
    assert "locks" in coordinator.json("diagnose")
