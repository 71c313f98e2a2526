"""What the history of a lock says about its use, in words and with the figures behind them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from coordinator.cli.diagnose import diagnoses, lines_of
from coordinator.cli.diagnosis import Diagnosis, Figures, Percentiles, diagnosed, figures_of
from coordinator.cli.why import lines_of as explained
from coordinator.cli.why import look
from coordinator.client import GrantRecord
from coordinator.errors import LockTimeoutError
from coordinator.recipes import Lock
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create, CreateMode
from coordinator.state.packing import pack, unpack
from tests.cli.conftest import CommandLine
from tests.client.memory_cluster import MemoryCluster, in_memory


async def crowd(world: MemoryCluster, waiters: int, hold_s: float) -> None:
    """Let so many want the lock at once, and each hold it for so long."""
    async with world.client(session_timeout=60) as client:

        async def work() -> None:
            async with Lock(client, "stock", timeout=600):
                await asyncio.sleep(hold_s)

        await asyncio.gather(*(work() for _ in range(waiters)))


def codes(diagnosis: Diagnosis) -> list[str]:
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
    assert diagnosis.figures.silences_ms[0] >= 2_000


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

        assert [each.figures.lock for each in await diagnoses(client, None)] == ["a", "b"]
        (unknown,) = await diagnoses(client, "nobody's")
        assert codes(unknown) == ["unknown"]


def record(**changes: Any) -> GrantRecord:
    """Return a grant that waited 10 ms and was held for 100 ms, but for the changes."""
    usual = GrantRecord(
        lock="daily", grant_id="1-1", path="/locks/daily/lock-0000000001", fencing_token=1,
        kind="exclusive", session_id="s", entered_zxid=1, entered_ms=1_000, granted_zxid=2,
        granted_ms=1_010, ended_zxid=3, ended_ms=1_110, how="released",
    )  # fmt: skip
    return with_fields(usual, **changes)


def figures(*records: GrantRecord, **changes: Any) -> Figures:
    return replace(figures_of("daily", records), **changes)


def test_people_and_bounds_that_end_grants_are_named() -> None:
    """Forced, deleted and bounded ends are findings of their own."""
    forced = diagnosed(figures(record(), record(how="forced"), record(how="deleted")))
    bounded = diagnosed(figures(record(), record(how="max_hold")))

    assert codes(forced) == ["forced-out"]
    assert "2 of 3 grants ended by force (1 of them" in forced.findings[0].why
    assert codes(bounded) == ["bounds-reached"]


def test_clocks_that_disagree_do_not_make_negative_times() -> None:
    """Wall times are labels: the worst they can do is to say 0."""
    told_by = figures(record(granted_ms=500, ended_ms=400, entered_ms=900))

    assert (
        told_by.waits
        == told_by.holds
        == Percentiles(count=1, p50_ms=0, p95_ms=0, p99_ms=0, max_ms=0)
    )
    assert told_by.span_ms == 0


def test_nobody_waits_long_is_no_bottleneck() -> None:
    """A few milliseconds of waiting bother nobody, however short the holds are."""
    quick = record(entered_ms=1_000, granted_ms=1_040, ended_ms=1_041)

    assert codes(diagnosed(figures(quick, quick))) == ["healthy"]


def in_turn(holds_ms: list[int], arrive_ms: list[int]) -> list[GrantRecord]:
    """Return the grants of contenders that arrive then and hold it for so long, one by one."""
    records: list[GrantRecord] = []
    free_ms = 0
    for arrived_ms, hold_ms in zip(arrive_ms, holds_ms, strict=True):
        granted_ms = max(arrived_ms, free_ms)
        free_ms = granted_ms + hold_ms
        records.append(record(entered_ms=arrived_ms, granted_ms=granted_ms, ended_ms=free_ms))
    return records


@pytest.mark.parametrize("long", [0, 5, 11])
def test_one_long_hold_does_not_hide_a_bottleneck(long: int) -> None:
    """Twelve at once, 60 ms each: a hiccup of 700 ms, whoever has it, changes nothing."""
    holds_ms = [60] * 12
    even = figures(*in_turn(holds_ms, [1_000] * 12))
    holds_ms[long] = 700
    told = figures(*in_turn(holds_ms, [1_000] * 12))

    assert codes(diagnosed(even)) == codes(diagnosed(told)) == ["wait-dominates"]
    assert told.waiting_on_average == pytest.approx(5.5, abs=0.5)


def test_one_long_hold_does_not_make_a_bottleneck() -> None:
    """A lock wanted every 100 ms for 20 ms: who waits behind a holder that hung is no crowd."""
    holds_ms, arrive_ms = [20] * 20, [1_000 + 100 * number for number in range(20)]
    holds_ms[10] = 600
    told = figures(*in_turn(holds_ms, arrive_ms))

    assert told.waits is not None
    assert told.waits.p95_ms > 10 * 20
    assert codes(diagnosed(told)) == ["healthy"]


def test_a_lock_with_a_queue_is_not_called_uncontended() -> None:
    """Somebody waits at this moment."""
    at_once = [record(granted_zxid=1)] * 9

    assert codes(diagnosed(figures(*at_once))) == ["never-contended"]
    assert codes(diagnosed(figures(*at_once, queue_length=1))) == ["healthy"]


def test_the_command_answers_in_words_and_in_json(coordinator: CommandLine) -> None:
    """Against a member over HTTP."""
    assert "Nothing is known of it." in coordinator.text("diagnose", "nobody's")
    (only,) = coordinator.json("diagnose", "nobody's")["locks"]
    assert only["findings"][0]["code"] == "unknown"
    assert only["figures"]["grants"] == 0
    assert "locks" in coordinator.json("diagnose")


@in_memory
async def test_a_znode_that_never_ends_is_named(world: MemoryCluster) -> None:
    """One made by hand before such were refused: it was "nothing is wrong", and held for ever."""
    made = Create(
        "/locks/pay/x-", mode=CreateMode.PERSISTENT_SEQUENTIAL, parents=CreateMode.PERSISTENT
    )
    async with world.client() as client:
        await client.create("/first")  # behind the command that sets the limits
        _, operation, wall_ms, request, _, if_held = unpack(encode_command(Command(made, 5)))
        await world.engine.propose(pack((4, operation, wall_ms, request, "", if_held)))
        (diagnosis,) = await diagnoses(client, "pay")
        text = "\n".join(explained(await look(client, "pay"), world.clock.wall_ms()))

    assert codes(diagnosis) == ["never-ends"]
    assert diagnosis.findings[0].severity == "problem"
    assert "persistent znode in the lock's queue" in text
    assert "coordinator revoke" in text
