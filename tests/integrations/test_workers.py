"""The integrations of task queues and schedulers, with the real libraries against a member."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import BadArgumentsError, Client, Lock, LockTimeoutError
from coordinator.integrations.current import current_grant, run_under
from coordinator.recipes import Election, Grant
from coordinator.testing.cluster import LocalCluster
from tests.recipes.callable_kinds import Ran, async_kinds, never_kinds, returning_coroutine

pytestmark = [pytest.mark.check, pytest.mark.usefixtures("unhurried_tries")]


@pytest.fixture(autouse=True)
def cluster(
    shared_coordinator_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> LocalCluster:
    """Where a client connects that was told nothing."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", shared_coordinator_cluster.endpoints)
    return shared_coordinator_cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """The client of the workers."""
    with cluster.connect() as client:
        yield client


def test_without_a_lock_there_is_no_current_grant() -> None:
    """The error says where there is one."""
    with pytest.raises(BadArgumentsError, match="under a lock"):
        current_grant()


def test_a_celery_task_runs_one_at_a_time(client: Client, cluster: LocalCluster) -> None:
    """With its token; retried while its lock is held; skipped if it says so."""
    celery = pytest.importorskip("celery")
    from coordinator.integrations.celery import ExclusiveTask

    app = celery.Celery("shop", broker="memory://", backend="cache+memory://")
    lock: dict[str, Any] = {"lock_client": client, "lock_key": lambda shard: f"index-{shard}"}

    @app.task(base=ExclusiveTask, busy_countdown=0.01, max_retries=3, **lock)
    def rebuild(shard: int) -> int:
        return current_grant().fencing_token

    @app.task(base=ExclusiveTask, when_busy="skip", **lock)
    def refresh(shard: int) -> int:
        return current_grant().fencing_token

    @app.task(base=ExclusiveTask)
    def nothing_said() -> None: ...

    tokens = [rebuild.apply((7,)).get(), refresh.apply(kwargs={"shard": 7}).get()]
    with cluster.connect() as other, Lock(other, "index-7", timeout=0) as grant:
        refused = rebuild.apply((7,))
        skipped = refresh.apply((7,))
        free = rebuild.apply((8,)).get()

    assert 0 < tokens[0] < tokens[1] < grant.fencing_token < free
    assert refused.state == "FAILURE"
    assert type(refused.result).__name__ == "BusyError"
    assert (skipped.state, skipped.result) == ("SUCCESS", None)
    with pytest.raises(BadArgumentsError, match="lock_key"):
        nothing_said.apply(throw=True)


class Beats:
    """Beats of one application, and what each of them sent."""

    def __init__(self, scheduler: type[Any], app: Any) -> None:
        self._scheduler = scheduler
        self._app = app
        self.sent: list[tuple[str, str]] = []

    def beat(self, name: str) -> Any:
        """Return a beat whose hourly task is due in its own eyes."""
        sent = self.sent

        class Recording(self._scheduler):  # type: ignore[misc,name-defined]
            standby_s = 0.1

            def apply_async(self, entry: Any, **kwargs: Any) -> None:
                sent.append((name, entry.name))

        beat = Recording(self._app)
        self.make_due(beat)
        return beat

    @staticmethod
    def make_due(beat: Any) -> None:
        """Let an hour have passed."""
        beat.schedule["hourly"].last_run_at -= timedelta(hours=1, seconds=5)
        beat._heap = None


@pytest.fixture
def beats(cluster: LocalCluster) -> Beats:
    """Of an application with one task, each hour."""
    celery = pytest.importorskip("celery")
    from coordinator.integrations.celery_beat import ExclusiveScheduler

    app = celery.Celery("shop", broker="memory://")
    app.conf.beat_schedule = {"hourly": {"task": "report", "schedule": timedelta(hours=1)}}
    app.conf.coordinator_endpoints = cluster.endpoints
    return Beats(ExclusiveScheduler, app)


def test_one_celery_beat_sends_and_the_next_goes_on_from_there(beats: Beats) -> None:
    """The second neither sends beside it, nor again what was sent."""
    first, second = beats.beat("first"), beats.beat("second")

    first.tick()
    first.tick()
    assert second.tick() == 0
    assert beats.sent == [("first", "hourly")]

    first.close()
    for _ in range(3):
        second.tick()
    assert beats.sent == [("first", "hourly")]

    beats.make_due(second)
    second.tick()
    second.close()
    assert beats.sent == [("first", "hourly"), ("second", "hourly")]


def test_a_celery_beat_that_was_deposed_sends_nothing(
    beats: Beats, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even before it knows: it cannot write its record. Elected again, it sends what is due."""
    beat = beats.beat("only")
    beat.tick()
    beats.make_due(beat)
    beat._record()
    cluster.expire(beat._leadership)
    with monkeypatch.context() as as_if_held:
        as_if_held.setattr(Grant, "check", lambda grant: None)

        assert beat.tick() > 0
    assert beats.sent == [("only", "hourly")]

    while len(beats.sent) == 1:
        beat.tick()
    beat.tick()
    beat.close()
    assert beats.sent == [("only", "hourly")] * 2


def test_a_celery_beat_goes_on_when_it_could_not_resign(
    beats: Beats, cluster: LocalCluster
) -> None:
    """Its client was cut off for less than its lease: it is elected again afterwards."""
    beat = beats.beat("only")
    client = beat._client = cluster.connect(timeout=0.3, session_timeout=60).open()
    beat._election = Election(client, "celery-beat:shop")
    beat.tick()
    beats.sent.clear()
    beats.make_due(beat)
    beat._record()
    cut = cluster.cut_off(client)
    assert beat.tick() > 0
    for _ in range(2):
        beat.tick()
    assert beats.sent == []
    cut.end()
    while not beats.sent:
        beat.tick()
    beat.close()
    assert beats.sent == [("only", "hourly")]


def test_a_dramatiq_actor_runs_one_at_a_time(client: Client, cluster: LocalCluster) -> None:
    """By a real worker: with its token, sent again while its lock is held, or skipped."""
    pytest.importorskip("dramatiq")
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    from coordinator.integrations.dramatiq import ExclusiveActors

    broker = StubBroker()
    broker.add_middleware(ExclusiveActors(client, busy_delay=0.01))
    tokens: list[int] = []
    ran_beside = threading.Event()

    @dramatiq.actor(broker=broker, lock_key=lambda shard: f"shard-{shard}", max_retries=10_000)
    def rebuild(shard: int) -> None:
        tokens.append(current_grant().fencing_token)

    @dramatiq.actor(broker=broker, lock_key="shard-7", when_busy="skip")
    def refresh() -> None:
        ran_beside.set()
        pytest.fail("ran beside the holder")

    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=2)
    with cluster.connect() as other:
        with Lock(other, "shard-7", timeout=5) as grant:
            assert refresh() is None
            with pytest.raises(dramatiq.errors.Retry):
                rebuild(7)
            rebuild.send(7)
            worker.start()
            ran_beside.wait(0.2)
            assert tokens == []
        broker.join(rebuild.queue_name, timeout=20_000)
        worker.join()
    worker.stop()

    assert [token > grant.fencing_token for token in tokens] == [True]
    assert not ran_beside.is_set()


def test_apscheduler_runs_each_time_on_one_replica(client: Client) -> None:
    """Of three, one of them late; no other repeats a failure; a drawn id is refused."""
    pytest.importorskip("apscheduler")
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
    from apscheduler.schedulers.background import BackgroundScheduler

    from coordinator.integrations.apscheduler import OnceExecutor, current_attempt

    ran: list[int] = []
    ended: queue.Queue[Any] = queue.Queue()

    def report() -> str:
        ran.append(current_attempt().fencing_token)
        return "written"

    def fail() -> None:
        ran.append(0)
        raise LockTimeoutError("a test")  # the job's own

    at = datetime.now(UTC) + timedelta(milliseconds=100)
    replicas = []
    events: list[Any] = []
    for is_late in (False, False, True):
        if is_late:
            events += [ended.get(timeout=20) for _ in range(4)]
        executors = {"default": OnceExecutor(client)}
        scheduler = BackgroundScheduler(executors=executors, timezone="UTC")
        scheduler.add_listener(ended.put, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        for job in (report, fail):
            scheduler.add_job(job, "date", run_date=at, id=job.__name__, misfire_grace_time=60)
        scheduler.start()
        replicas.append(scheduler)
    events += [ended.get(timeout=20) for _ in range(2)]
    with pytest.raises(BadArgumentsError, match="id="):
        OnceExecutor(client)._do_submit_job(replicas[0].add_job(report, "cron", hour=2), [at])
    for each in replicas:
        each.shutdown()

    results = sorted(f"{each.job_id} {each.retval} {each.exception}" for each in events)
    assert results == [
        "fail None None",
        "fail None None",
        "fail None a test",
        "report None None",
        "report None None",
        "report written None",
    ]
    assert len(ran) == 2
    assert max(ran) > 0


NEVER = never_kinds(Ran()) | async_kinds(Ran())
del NEVER["a text"]  # the libraries refuse it themselves


@pytest.mark.parametrize("kind", NEVER)
def test_a_task_an_actor_or_a_job_that_would_not_run_is_refused(client: Client, kind: str) -> None:
    """Before the lock is taken, or a time recorded."""
    celery = pytest.importorskip("celery")
    pytest.importorskip("dramatiq")
    pytest.importorskip("apscheduler")
    from types import SimpleNamespace

    from coordinator.integrations.apscheduler import OnceExecutor
    from coordinator.integrations.celery import ExclusiveTask
    from coordinator.integrations.dramatiq import ExclusiveActors

    work = NEVER[kind]
    app = celery.Celery("shop", broker="memory://", backend="cache+memory://")

    @app.task(base=ExclusiveTask, lock_client=client, lock_key="refused")
    def task() -> None: ...

    task.run = work
    actor = SimpleNamespace(options={"lock_key": "refused"}, actor_name=kind, fn=work)
    job = SimpleNamespace(id=kind, name=kind, func=work)
    zxid = client.status().zxid

    for refused in (
        lambda: task.apply(throw=True),
        lambda: ExclusiveActors(client).after_declare_actor(None, actor),
        lambda: OnceExecutor(client)._do_submit_job(job, []),
    ):
        with pytest.raises(BadArgumentsError, match="expected a plain function, found the"):
            refused()

    assert actor.fn is work
    assert client.status().zxid == zxid


def test_what_returns_a_coroutine_has_not_run(client: Client) -> None:
    """Nothing is seen of it beforehand; the task fails, and the job's time is not recorded."""
    with pytest.raises(BadArgumentsError, match="returned a coroutine, of which nothing has run"):
        run_under(Lock(client, "returns"), returning_coroutine(Ran()).popitem()[1])
    assert client.lock("returns").holder is None
