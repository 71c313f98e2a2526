"""The integrations of FastAPI and Django, with the real frameworks against a member."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from coordinator import BadArgumentsError, Lock, LockLostError, connect
from coordinator.client import AsyncClient
from coordinator.recipes import Grant
from coordinator.testing.cluster import LocalCluster

pytestmark = [pytest.mark.check, pytest.mark.usefixtures("unhurried_tries")]


@pytest.fixture(autouse=True)
def cluster(
    shared_coordinator_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> LocalCluster:
    """Where a client connects that was told nothing."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", shared_coordinator_cluster.endpoints)
    return shared_coordinator_cluster


def test_fastapi_holds_a_lock_around_an_endpoint(cluster: LocalCluster) -> None:
    """With the token; 409 while another holds it; free before the response; none after the end."""
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    from coordinator.integrations.starlette import client_lifespan, client_of, holding

    app = fastapi.FastAPI(lifespan=client_lifespan())
    account = holding(lambda request: f"accounts/{request.path_params['number']}", timeout=0)
    of_account, of_app = fastapi.Depends(account, scope="function"), fastapi.Depends(client_of)

    @app.post("/close/{number}")
    async def close(number: int, grant: Any = of_account) -> dict[str, int]:
        return {"token": grant.fencing_token}

    @app.get("/locks")
    async def locks(client: Any = of_app) -> bool:
        return isinstance(client, AsyncClient)

    with testclient.TestClient(app) as browser, cluster.connect() as other:
        tokens = [browser.post("/close/17").json()["token"] for _ in range(3)]
        with Lock(other, "accounts/17", timeout=0) as grant:
            refused = browser.post("/close/17")
            others = browser.post("/close/18")
        is_client = browser.get("/locks").json()

    assert sorted(set(tokens)) == tokens
    assert tokens[-1] < grant.fencing_token
    assert (refused.status_code, refused.headers["retry-after"]) == (409, "1")
    assert others.status_code == 200
    assert is_client is True


def test_fastapi_ends_a_request_whose_lock_is_lost(cluster: LocalCluster) -> None:
    """Its task is cancelled, and the answer is not 200."""
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    from coordinator.integrations.starlette import client_lifespan, holding

    held: list[Grant[AsyncClient]] = []
    entered = threading.Event()
    lifespan = client_lifespan(lambda: connect(session_timeout=2))
    app = fastapi.FastAPI(lifespan=lifespan)
    alone = fastapi.Depends(holding("long"), scope="function")

    @app.post("/long")
    async def long(grant: Any = alone) -> str:
        held.append(grant)
        entered.set()
        await asyncio.sleep(60)
        return "done"

    answers: list[Any] = []
    with testclient.TestClient(app, raise_server_exceptions=False) as browser:
        asking = threading.Thread(target=lambda: answers.append(browser.post("/long")))
        asking.start()
        assert entered.wait(30)
        cluster.expire(held[0])
        asking.join(30)

    assert [each.status_code for each in answers] == [500]


def test_an_application_without_the_lifespan_is_told_what_to_do() -> None:
    """An error that names it, not an attribute that is missing."""
    pytest.importorskip("starlette")
    from starlette.requests import HTTPConnection

    from coordinator import BadArgumentsError
    from coordinator.integrations.starlette import client_of

    with pytest.raises(BadArgumentsError, match="lifespan=client_lifespan"):
        client_of(HTTPConnection({"type": "http", "headers": []}))


@pytest.fixture
def project(cluster: LocalCluster) -> Iterator[ModuleType]:
    """Django, set up with our setting."""
    pytest.importorskip("django")
    from django.conf import settings
    from django.test.utils import override_settings

    if not settings.configured:
        settings.configure(SECRET_KEY="a test", ALLOWED_HOSTS=["*"])
    from coordinator.integrations import django

    with override_settings(COORDINATOR={"endpoints": cluster.endpoints}):
        yield django
        django.close_client()


@pytest.mark.parametrize("wrong", ["http://10.0.0.7:7071", connect("10.0.0.7:7071")])
def test_a_lifespan_without_a_way_to_connect_says_what_it_takes(wrong: Any) -> None:
    """The URL itself is what people write first."""
    pytest.importorskip("starlette")
    from coordinator import BadArgumentsError
    from coordinator.integrations.starlette import client_lifespan

    with pytest.raises(BadArgumentsError, match=r"lambda: connect\(.http://10.0.0.7:7071"):
        client_lifespan(wrong)



def test_django_has_one_client_for_each_process(project: Any, cluster: LocalCluster) -> None:
    """Made of the setting; ``lock`` uses it."""
    with project.lock("accounts/18", timeout=2) as grant, cluster.connect() as other:
        assert Lock(other, "accounts/18").try_acquire() is None
        assert grant.client is project.client()


def test_a_setting_that_is_wrong_is_named(project: Any) -> None:
    """With the arguments that there are."""
    from django.test.utils import override_settings

    with (
        override_settings(COORDINATOR={"hosts": "x"}),
        pytest.raises(BadArgumentsError, match=r"endpoints.*found hosts"),
    ):
        project.client()


def test_a_django_command_runs_on_one_machine_at_a_time(
    project: Any, cluster: LocalCluster
) -> None:
    """With a token; exit code 75, or quietly, while another runs it; interrupted by a loss."""
    from django.core.management import call_command
    from django.core.management.base import BaseCommand, CommandError

    class Invoices(project.ExclusiveCommand, BaseCommand):  # type: ignore[misc]
        def handle(self, *args: Any, **options: Any) -> str:
            return str(self.grant.fencing_token)

    class Quiet(Invoices):
        skip_if_busy = True
        lock_name = "command:test_web"

    class Long(Invoices):
        def handle(self, *args: Any, **options: Any) -> str:
            cluster.expire(self.grant)
            threading.Event().wait(20)
            pytest.fail("ran on without its lock")

    class Later(Invoices):
        async def handle(self, *args: Any, **options: Any) -> str:  # type: ignore[override]
            return "never"

    with cluster.connect() as client:
        zxid = client.status().zxid
        with pytest.raises(BadArgumentsError, match="expected a plain function, found the corout"):
            call_command(Later())
        assert client.status().zxid == zxid
    first = int(call_command(Invoices()))
    with cluster.connect() as other, Lock(other, "command:test_web", timeout=0) as grant:
        with pytest.raises(CommandError, match="runs elsewhere") as refused:
            call_command(Invoices())
        assert call_command(Quiet()) is None
    with pytest.raises(LockLostError):
        call_command(Long())

    assert 0 < first < grant.fencing_token
    assert refused.value.returncode == 75
    assert Invoices.__module__ in sys.modules
