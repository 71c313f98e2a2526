"""The programs of docs/frameworks.md, run with the real frameworks against a member."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from coordinator import Lock, Once
from coordinator.testing.cluster import LocalCluster
from tests.docs.pages import ROOT

pytestmark = pytest.mark.check

PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Frameworks turn off the loggers that are there: later tests read what ours say."""
    root = logging.getLogger()
    loggers = [root, *(each for each in root.manager.loggerDict.values() if hasattr(each, "level"))]
    before = [(each, each.disabled, each.level, each.propagate, list(each.handlers))
              for each in loggers]  # fmt: skip
    yield
    for each, disabled, level, propagate, handlers in before:
        each.disabled, each.propagate, each.handlers = disabled, propagate, handlers
        each.setLevel(level)


def program(framework: str) -> Any:
    """Run the program below a heading of the page, as a module; return its names."""
    section = PAGE.split(f"## {framework}\n", 1)[1].split("\n## ", 1)[0]
    body = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]
    module = ModuleType(f"of_{framework.lower()}")
    code = compile(body, f"docs/frameworks.md ({framework})", "exec")
    exec(code, module.__dict__)  # noqa: S102 - a page of ours
    return module


@pytest.fixture(autouse=True)
def endpoints(
    shared_coordinator_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> LocalCluster:
    """Where a client connects that was told nothing."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", shared_coordinator_cluster.endpoints)
    return shared_coordinator_cluster


def test_fastapi_answers_one_request_at_a_time(endpoints: LocalCluster) -> None:
    """With the token; and with 409 while another holds the lock."""
    pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    app = program("FastAPI").app

    with testclient.TestClient(app) as browser, endpoints.connect() as other:
        closed = browser.post("/accounts/17/close").json()
        with Lock(other, "accounts/17", timeout=5) as grant:
            refused = browser.post("/accounts/17/close")

    assert closed["closed"] == 17
    assert 0 < closed["token"] < grant.fencing_token
    assert refused.status_code == 409


def test_django_answers_one_request_at_a_time(endpoints: LocalCluster) -> None:
    """As FastAPI does, on threads."""
    pytest.importorskip("django")
    import django
    from django.conf import settings
    from django.urls import path

    page = program("Django")
    routes: Any = ModuleType("routes")
    routes.urlpatterns = [path("close/<int:number>", page.close_account)]
    if not settings.configured:
        settings.configure(SECRET_KEY="a test")
    django.setup()
    from django.test import Client as Browser
    from django.test.utils import override_settings

    served = override_settings(ALLOWED_HOSTS=["*"], ROOT_URLCONF=routes)
    with served, endpoints.connect() as other:
        closed = Browser().get("/close/18").json()
        with Lock(other, "accounts/18", timeout=5) as grant:
            refused = Browser().get("/close/18")
    page.client.close()

    assert closed["closed"] == 18
    assert 0 < closed["token"] < grant.fencing_token
    assert refused.status_code == 409


def test_a_django_command_runs_on_one_machine_at_a_time(endpoints: LocalCluster) -> None:
    """It is refused while another holds its lock."""
    pytest.importorskip("django")
    from django.conf import settings
    from django.core.management import call_command
    from django.core.management.base import CommandError

    if not settings.configured:
        settings.configure(SECRET_KEY="a test")
    command = program("Django commands").Command

    assert call_command(command()).startswith("sent under token ")
    with (
        endpoints.connect() as other,
        Lock(other, "command:send_invoices", timeout=5),
        pytest.raises(CommandError),
    ):
        call_command(command())


def test_celery_does_a_task_once_that_is_sent_twice(endpoints: LocalCluster) -> None:
    """By a real worker, over its broker in memory."""
    pytest.importorskip("celery")
    from celery.contrib.testing.worker import start_worker

    page = program("Celery")
    page.app.conf.result_backend = "cache+memory://"
    page.app.conf.worker_hijack_root_logger = False

    with start_worker(page.app, pool="threads", concurrency=2, perform_ping_check=False):
        sent = [page.charge.delay(4711) for _ in range(2)]
        results = [each.get(timeout=30) for each in sent]
    with endpoints.connect() as other:
        done = Once(other, timeout=0).run("charge-4711", lambda attempt: "paid again")
    page.client.close()

    assert results == ["paid 4711", "paid 4711"]
    assert done.result == "paid 4711"


def test_a_celery_task_runs_under_its_lock(endpoints: LocalCluster) -> None:
    """With a token; it is refused while another holds the lock."""
    pytest.importorskip("celery")
    from coordinator.integrations.current import BusyError

    task = program("Celery tasks").rebuild

    assert task.apply((7,)).get().startswith("shard 7 under token ")
    with (
        endpoints.connect() as other,
        Lock(other, "index-7", timeout=5),
        pytest.raises(BusyError),
    ):
        task(7)
    task.lock_client.close()


def test_a_dramatiq_actor_runs_under_its_lock(endpoints: LocalCluster) -> None:
    """With a token; its message is sent again while another holds the lock."""
    dramatiq = pytest.importorskip("dramatiq")
    actor = program("Dramatiq").rebuild

    assert actor(7).startswith("shard 7 under token ")
    with (
        endpoints.connect() as other,
        Lock(other, "shard-7", timeout=5),
        pytest.raises(dramatiq.errors.Retry),
    ):
        actor(7)


def test_a_lock_with_the_interface_of_python_redis_lock(endpoints: LocalCluster) -> None:
    """The work runs under it, and it is free afterwards."""
    pytest.importorskip("redis_lock")
    page = program("Code that uses python-redis-lock")

    assert page.report().startswith("saved under token ")
    assert not page.lock.locked()
    page.lock.client.close()


def test_a_lock_with_the_interface_of_redis(endpoints: LocalCluster) -> None:
    """With a token, and no Redis."""
    pytest.importorskip("redis")
    page = program("Code that expects redis-py's lock")

    assert page.report().startswith("saved under token ")
    page.lock.client.close()


def test_apscheduler_runs_a_schedule_of_two_replicas_once(endpoints: LocalCluster) -> None:
    """Both fire; one of them does the work of the day."""
    pytest.importorskip("apscheduler")
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED

    replicas = [program("APScheduler") for _ in range(2)]
    ended: list[Any] = []
    both = threading.Event()

    def note(event: Any) -> None:
        ended.append(event)
        if len(ended) == len(replicas):
            both.set()

    at = datetime.now(UTC) + timedelta(milliseconds=300)
    for each in replicas:
        each.scheduler.add_listener(note, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        each.scheduler.start(paused=True)
        (job,) = each.scheduler.get_jobs()
        job.modify(next_run_time=at)
        each.scheduler.resume()
    assert both.wait(30)
    for each in replicas:
        each.scheduler.shutdown()
        each.client.close()

    assert [event.exception for event in ended] == [None, None]
    results = [event.retval for event in ended if event.retval is not None]
    assert len(results) == 1
    assert results[0].startswith("report under token ")
