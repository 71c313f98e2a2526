"""Being well: a client whose health probe fails gives up its session, and says why."""

from __future__ import annotations

import asyncio
import threading
from urllib.parse import unquote

import pytest

from coordinator import connect
from coordinator.client import HealthProbe, SessionState
from coordinator.client.sessions.probing import Prober
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    SessionExpiredError,
    UnhealthyError,
)
from coordinator.recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.client.virtual_time import run


class Patient:
    """A program that is well until it is not; ``probe`` says which."""

    def __init__(self) -> None:
        self.trouble = ""
        self.looks = 0

    async def probe(self) -> None:
        self.looks += 1
        if self.trouble == "hangs":
            await asyncio.sleep(1_000_000)
        if self.trouble:
            raise OSError(self.trouble)


@in_memory
async def test_a_client_that_is_well_keeps_its_session(world: MemoryCluster) -> None:
    """The probe is asked again and again, and nothing comes of it."""
    patient = Patient()
    async with world.client(probe=HealthProbe(patient.probe, every=5)) as client:
        session = await client.session()

        await asyncio.sleep(600)

        assert session.state is SessionState.CONNECTED
        assert 100 <= patient.looks <= 125
    looks = patient.looks
    await asyncio.sleep(60)
    assert patient.looks == looks


@in_memory
async def test_a_session_ends_after_so_many_failures_in_a_row(world: MemoryCluster) -> None:
    """Fewer change nothing, however often; then it is lost, and the cluster knows why."""
    patient = Patient()
    network = world.network()
    probe = HealthProbe(patient.probe, every=1, failures=3)
    async with world.client(network, session_timeout=30, probe=probe) as client:
        session = await client.session()
        for _ in range(5):
            patient.trouble = "no disk"
            await asyncio.sleep(1.9)
            patient.trouble = ""
            await asyncio.sleep(2)
        assert not session.is_lost

        patient.trouble = "no\n disk"
        await asyncio.sleep(3.1)

        assert session.state is SessionState.LOST
        assert session.reason == "health probe failed 3 times in a row: no disk"
        with pytest.raises(SessionExpiredError, match="no disk"):
            session.check()
        assert await client.sessions() == ()
        ends = [each for each in network.sent if each.startswith("DELETE")]
        assert [unquote(each.partition("?failure=")[2]) for each in ends] == [session.reason]
    assert network.count("DELETE", "/v1/sessions/") == 1


@in_memory
async def test_a_probe_that_hangs_has_failed(world: MemoryCluster) -> None:
    """No answer is an answer, and the run that hangs is not joined by others."""
    patient = Patient()
    probe = HealthProbe(patient.probe, every=1, failures=2, timeout=3)
    async with world.client(session_timeout=30, probe=probe) as client:
        session = await client.session()

        patient.trouble = "hangs"
        await asyncio.sleep(10)

        assert session.reason == "health probe failed 2 times in a row: no answer within 3 s"


@in_memory
async def test_a_probe_that_ends_cancelled_has_failed(world: MemoryCluster) -> None:
    """Such as one that awaits a worker that was cancelled: it is looked at again, and counted."""
    worker = asyncio.create_task(asyncio.sleep(1_000_000))

    async def probe() -> None:
        if worker.done():
            await worker

    async with world.client(
        session_timeout=30, probe=HealthProbe(probe, every=1, failures=3)
    ) as client:
        session = await client.session()
        await asyncio.sleep(10)
        assert not session.is_lost

        worker.cancel()
        await asyncio.sleep(5)

        assert session.reason == "health probe failed 3 times in a row: it was cancelled"
        with pytest.raises(UnhealthyError, match="it was cancelled"):
            await client.session()


@in_memory
async def test_who_is_not_well_gets_no_session(world: MemoryCluster) -> None:
    """Neither a first one nor another; when it is well again it does."""
    patient = Patient()
    async with world.client(probe=HealthProbe(patient.probe, failures=1)) as client:
        patient.trouble = "no disk"
        with pytest.raises(UnhealthyError, match="no disk"):
            await client.session()
        with pytest.raises(UnhealthyError, match="no disk"):
            await Lock(client, "daily").acquire(timeout=1)
        assert (await client.get("/")).data == b""
        patient.trouble = ""
        first = await client.session()
        patient.trouble = "no disk"
        await asyncio.sleep(5)
        with pytest.raises(UnhealthyError):
            await client.session()
        patient.trouble = ""

        second = await client.session()

        assert first.is_lost
        assert second.session_id != first.session_id


@in_memory
async def test_the_cluster_is_told_when_the_holders_have_let_go(world: MemoryCluster) -> None:
    """The holder learns first, stops, and only then is the next one granted: after the delay."""
    patient = Patient()
    loop = asyncio.get_running_loop()
    told_at = stopped_at = 0.0
    probe = HealthProbe(patient.probe, every=1, failures=1)
    async with (
        world.client(session_timeout=60, probe=probe) as client,
        world.client(session_timeout=60) as other,
    ):
        grant = await Lock(client, "daily", lock_delay=5).acquire()
        waiting = asyncio.create_task(Lock(other, "daily").acquire(timeout=600))
        notified = asyncio.Event()
        grant.on_lost(notified.set)

        patient.trouble = "no disk"
        await notified.wait()
        told_at = loop.time()
        assert grant.is_lost
        with pytest.raises(LockLostError, match="health probe failed: no disk"):
            grant.check()
        await asyncio.sleep(20)  # stopping its work takes a while
        assert not waiting.done()
        assert await grant.release() is False
        stopped_at = loop.time()
        following = await waiting

        assert stopped_at + 5 <= loop.time() <= stopped_at + 6
        assert stopped_at >= told_at + 20
        story = await client.grant("daily", grant.grant_id)
        assert story.grant.how == "failed"
        assert story.grant.reason == "health probe failed: no disk"
        assert "was not well" in " ".join(story.sentences)
        assert story.next is not None
        assert story.next.grant_id == following.grant_id
        assert world.member.metrics.sessions_failed.value == 1


@in_memory
async def test_a_holder_that_does_not_let_go_is_waited_for_while_it_is_safe(
    world: MemoryCluster,
) -> None:
    """No longer than the last heartbeat reaches, which is how long a dead one would hold."""
    patient = Patient()
    loop = asyncio.get_running_loop()
    probe = HealthProbe(patient.probe, every=1, failures=1)
    async with (
        world.client(session_timeout=30, probe=probe) as client,
        world.client(session_timeout=60) as other,
    ):
        grant = await Lock(client, "daily").acquire()
        failed_at = loop.time()
        patient.trouble = "no disk"

        await Lock(other, "daily").acquire(timeout=600)

        assert 18 <= loop.time() - failed_at <= 32
        assert (await client.grant("daily", grant.grant_id)).grant.how == "failed"


@in_memory
async def test_a_failed_session_that_cannot_be_ended_runs_out(world: MemoryCluster) -> None:
    """No member is reached: no heartbeat is sent any more either, so the lease ends it."""
    patient = Patient()
    network = world.network()
    loop = asyncio.get_running_loop()
    probe = HealthProbe(patient.probe, every=1, failures=1)
    async with world.client() as other:
        async with world.client(network, session_timeout=10, timeout=1, probe=probe) as client:
            grant = await Lock(client, "daily").acquire()
            patient.trouble = "no disk"
            await asyncio.sleep(0.5)
            network.is_cut = True
            await asyncio.sleep(1)
            assert grant.is_lost
            beats = network.count("POST", "/heartbeat")
            cut_at = loop.time()
        network.is_cut = False

        await Lock(other, "daily").acquire(timeout=60)

        assert loop.time() - cut_at <= 11
        assert network.count("POST", "/heartbeat") == beats
        assert (await other.grant("daily", grant.grant_id)).grant.how in ("expired", "failed")


@in_memory
async def test_a_holder_is_cancelled_with_the_reason(world: MemoryCluster) -> None:
    """``async with`` raises what the probe said."""
    patient = Patient()
    async with world.client(probe=HealthProbe(patient.probe, every=1, failures=2)) as client:
        with pytest.raises(  # noqa: PT012
            LockLostError, match="health probe failed 2 times in a row: no disk"
        ):
            async with Lock(client, "daily"):
                patient.trouble = "no disk"
                await asyncio.sleep(1_000)


def test_a_sync_client_is_probed_too() -> None:
    """Over a real socket: the thread that holds is told, and ``with`` raises the reason."""
    troubles: list[str] = []

    def check() -> None:
        if troubles:
            raise OSError(troubles[0])

    with serving() as url, connect(url, probe=HealthProbe(check, every=0.05, failures=2)) as client:
        notified = threading.Event()
        with (  # noqa: PT012
            pytest.raises(LockLostError, match="failed 2 times in a row: no disk"),
            Lock(client, "daily") as grant,
        ):
            grant.on_lost(notified.set)
            troubles.append("no disk")
            assert notified.wait(10)
            assert grant.is_lost
        with pytest.raises(UnhealthyError, match="no disk"):
            client.session()
        troubles.clear()
        with Lock(client, "daily", timeout=10):
            pass
        assert client.grant("daily", grant.grant_id).grant.how == "failed"


def test_a_function_runs_in_a_thread_and_there_is_never_another() -> None:
    """A function that hangs holds up nothing, and looking again starts no second one."""
    goes_on = threading.Event()
    runs: list[int] = []

    def hangs() -> None:
        runs.append(threading.get_ident())
        goes_on.wait(60)

    async def scenario() -> None:
        prober = Prober(HealthProbe(hangs, timeout=0.05))

        answers = [await prober.look() for _ in range(3)]

        assert answers == ["no answer within 0.05 s"] * 3
        assert len(runs) == 1
        assert runs[0] != threading.get_ident()
        goes_on.set()

    asyncio.run(scenario())


def test_a_run_that_has_answered_is_over() -> None:
    """Looking again at once is another run, although the thread of the last may not be gone yet."""
    runs: list[int] = []

    async def scenario() -> None:
        prober = Prober(HealthProbe(lambda: runs.append(1)))
        for _ in range(2_000):
            assert await prober.look() == ""

    asyncio.run(scenario())
    assert len(runs) == 2_000


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (lambda: None, ""),
        (lambda: 0, ""),
        (lambda: True, ""),
        (lambda: False, "it returned False"),
        (lambda: [].pop(), "pop from empty list"),
        (lambda: asyncio.sleep(0, False), "it returned False"),
        (lambda: (_ for _ in ()).throw(KeyError()), "KeyError"),
        (lambda: (_ for _ in ()).throw(SystemExit(3)), "SystemExit(3)"),
        (lambda: (_ for _ in ()).throw(OSError("x" * 1_000)), "x" * 300),
        (lambda: (_ for _ in ()).throw(OSError("\udcff")), "?"),
    ],
)
def test_what_a_probe_may_answer(check: object, expected: str) -> None:
    """Raising and False are failures, and the text of what was raised is the reason."""

    async def scenario() -> str:
        return await Prober(HealthProbe(check)).look()  # type: ignore[arg-type]

    assert asyncio.run(scenario()) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: HealthProbe("curl"),  # type: ignore[arg-type]
        lambda: HealthProbe(int, every=0),
        lambda: HealthProbe(int, timeout=float("nan")),
        lambda: HealthProbe(int, failures=0),
    ],
)
def test_a_probe_that_cannot_be_is_refused(make: object) -> None:
    """With what was expected, before anything runs."""
    with pytest.raises(BadArgumentsError, match="probe: expected"):
        make()  # type: ignore[operator]


def test_a_session_that_ended_otherwise_is_probed_no_more() -> None:
    """Closing a client with a hanging probe leaves no task behind."""

    async def scenario() -> None:
        patient = Patient()
        patient.trouble = "hangs"
        prober = Prober(HealthProbe(patient.probe, every=1, timeout=5))
        probing = asyncio.create_task(prober.failed())
        await asyncio.sleep(3)
        probing.cancel()
        await asyncio.wait({probing})
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())


def test_a_coroutine_probe_that_blocks_costs_a_sync_client_no_heartbeat() -> None:
    """It has a loop of its own: that of the client is for the heartbeats alone."""
    may_end, threads = threading.Event(), []

    async def blocks() -> None:
        threads.append(threading.current_thread().name)
        may_end.wait(60)

    with (
        serving() as url,
        connect(url, session_timeout=2, probe=HealthProbe(lambda: None)) as client,
        Lock(client, "well") as kept,
    ):
        prober = Prober(HealthProbe(blocks, timeout=0.1))
        assert client.call(prober.look()) == "no answer within 0.1 s"
        assert threads == ["health probe"]
        assert kept.verify() > 0
        may_end.set()
