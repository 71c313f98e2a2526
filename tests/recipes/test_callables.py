"""What each entrance does with each kind of callable: it runs it, or says that it has not run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import Client, HealthProbe
from coordinator.errors import BadArgumentsError
from coordinator.recipes import (
    CommitLog,
    CommitSite,
    Condition,
    Election,
    Job,
    Once,
    Partitioner,
    exclusive,
    execute_exclusive,
    once_per,
    run_exclusive,
)
from tests.client.server_thread import serving
from tests.recipes.callable_kinds import (
    Ran,
    async_kinds,
    never_kinds,
    plain_kinds,
    returning_coroutine,
    returning_kinds,
)

Entrance = Callable[[Any, str, Any, Ran], Any]


def _partitioned(client: Any, name: str, work: Any, ran: Ran) -> Any:
    """Own one partition until its work has run."""
    partitions = Partitioner(client, name, 1)
    if isinstance(client, Client):
        has_run = threading.Event()
        ran.on_run = has_run.set

        def stop() -> None:
            has_run.wait()
            partitions.stop()

        stopping = threading.Thread(target=stop)
        stopping.start()
        try:
            return partitions.run(work)
        finally:
            has_run.set()
            stopping.join()

    async def stop_soon() -> None:
        await partitions.stop()

    stops: list[asyncio.Task[None]] = []
    ran.on_run = lambda: stops.append(asyncio.create_task(stop_soon()))
    return partitions.run(work)


ENTRANCES: dict[str, Entrance] = {
    "exclusive": lambda client, name, work, _: exclusive(name, client=client)(work)(),
    "execute_exclusive": lambda client, name, work, _: execute_exclusive(client, name, work),
    "Election.run": lambda client, name, work, _: Election(client, name).run(work),
    "Once.run": lambda client, name, work, _: Once(client).run(name, work),
    "Job.run": lambda client, name, work, _: Job(client, name, every="1d").run(work),
    "once_per": lambda client, name, work, _: once_per(name, client=client, every="1d")(work)(),
    "Condition.wait_for": lambda client, name, check, _: Condition(client, name).wait_for(check, 1),
    "CommitSite.attend": lambda client, name, apply, _: CommitSite(client, name, "a").attend(
        lambda _: True, apply, 1
    ),
    "Partitioner.run": _partitioned,
    "update": lambda client, name, change, _: client.update(f"/{name}", change),
}
SEES_ONLY = ("exclusive", "once_per")
"""Decorators return a function, so with an AsyncClient they take what is seen to be awaited."""
READS_ONLY = ("Condition.wait_for", "update", "CommitSite.attend")
"""They write nothing before they call."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


def _works(entrance: str) -> dict[str, tuple[Any, Ran]]:
    """Return a callable of each kind, and what counts its runs; first what nobody can run."""
    made: dict[str, tuple[Any, Ran]] = {}
    for kinds in (never_kinds, async_kinds, returning_kinds, returning_coroutine, plain_kinds):
        for kind in kinds(Ran()):
            ran = Ran(b"data" if entrance == "update" else True)
            made[kind] = kinds(ran)[kind], ran
    return made


def _prepare(client: Client, entrance: str, name: str) -> None:
    """Make what an entrance needs to come to its callable."""
    if entrance == "update":
        client.create(f"/{name}")
    if entrance == "CommitSite.attend":
        site = CommitSite(client, name, "a")
        with ThreadPoolExecutor(1) as other:
            other.submit(CommitLog(client, name).run, "key", ["a"], timeout=0.2)
            (due,) = site.due(5)
            site.prepare(due)


def _outcome(ran: Ran, is_unchanged: bool, error: BadArgumentsError | None) -> str:
    if error is None or ran.times:
        return f"ran {ran.times}, {error!r}"
    return "refused" if is_unchanged else "not run"


RAN = "ran 1, None"


def _expected(entrance: str, *, is_async: bool) -> dict[str, str]:
    ran, not_run = Ran(), "refused" if entrance in READS_ONLY else "not run"
    never, waits = dict.fromkeys(never_kinds(ran), "refused"), RAN if is_async else "refused"
    plain, returns, coroutine = RAN, not_run, RAN if is_async else not_run
    if is_async and entrance in SEES_ONLY:
        plain = returns = coroutine = "refused"
    if entrance == "update":
        waits, coroutine = "refused", not_run
    return {
        **never,
        **dict.fromkeys(async_kinds(ran), waits),
        **dict.fromkeys(returning_kinds(ran), returns),
        **dict.fromkeys(returning_coroutine(ran), coroutine),
        **dict.fromkeys(plain_kinds(ran), plain),
    }


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_client_runs_functions_and_refuses_the_rest_before_it_begins(
    url: str, entrance: str
) -> None:
    """Nothing is written for what is seen not to run; what returns it is no success."""
    found = {}
    with connect(url) as client:
        client.session()
        for kind, (work, ran) in _works(entrance).items():
            name = f"{entrance}-{kind}".replace(" ", "-")
            _prepare(client, entrance, name)
            zxid, error = client.status().zxid, None
            try:
                ENTRANCES[entrance](client, name, work, ran)
            except BadArgumentsError as refusal:
                error = refusal
            found[kind] = _outcome(ran, client.status().zxid == zxid, error)
            if error is not None:
                assert client.exists(f"/once/{name}") is None, "nothing is recorded"
                assert client.lock(name).holder is None
    assert found == _expected(entrance, is_async=False)


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_an_asyncio_client_runs_coroutine_functions_as_well(url: str, entrance: str) -> None:
    """The same for an AsyncClient: what its loop can run runs."""

    async def scene() -> dict[str, str]:
        found = {}
        async with connect(url) as client:
            await client.session()
            for kind, (work, ran) in _works(entrance).items():
                name = f"async-{entrance}-{kind}".replace(" ", "-")
                await asyncio.to_thread(_prepare_beside, url, entrance, name)
                zxid, error = (await client.status()).zxid, None
                try:
                    await ENTRANCES[entrance](client, name, work, ran)
                except BadArgumentsError as refusal:
                    error = refusal
                found[kind] = _outcome(ran, (await client.status()).zxid == zxid, error)
                if error is not None:
                    assert await client.exists(f"/once/{name}") is None, "nothing is recorded"
        return found

    assert asyncio.run(scene()) == _expected(entrance, is_async=True)


def _prepare_beside(url: str, entrance: str, name: str) -> None:
    with connect(url) as client:
        _prepare(client, entrance, name)


@pytest.mark.parametrize("decorate", ["exclusive", "once_per", "run_exclusive"])
def test_without_a_client_the_function_says_which(
    url: str, decorate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coroutine function, of whatever kind, gets an AsyncClient; the others get a Client."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", url)
    found = {}
    for kind, (work, ran) in _works(decorate).items():
        name = f"alone-{decorate}-{kind}".replace(" ", "-")
        error = None
        try:
            if decorate == "run_exclusive":
                result = run_exclusive(name, work)
            elif decorate == "exclusive":
                result = exclusive(name)(work)()
            else:
                result = once_per(name, every="1d")(work)()
            if asyncio.iscoroutine(result):
                asyncio.run(_awaited(result))
        except BadArgumentsError as refusal:
            error = refusal
        found[kind] = _outcome(ran, False, error)
    expected = _expected("Job.run", is_async=False)
    expected |= dict.fromkeys(async_kinds(Ran()), RAN)
    assert found == {
        kind: "not run" if each == "refused" else each for kind, each in expected.items()
    }


async def _awaited(work: Any) -> Any:
    return await work


def test_a_job_that_returned_a_coroutine_has_failed_and_says_why(url: str) -> None:
    """The interval is tried again by a later call, as after any other failure."""
    with connect(url) as client:
        job = Job(client, "returns-a-coroutine", every="1d", attempts_max=2)
        with pytest.raises(BadArgumentsError, match="returned a coroutine, of which nothing has"):
            job.run(lambda run: _awaited(run))
        assert job.run(lambda run: run.attempt).result == 2


@pytest.mark.parametrize("kind", never_kinds(Ran()))
def test_a_probe_that_would_never_look_is_refused(kind: str) -> None:
    """A generator function is well whatever it yields, as nothing of it runs."""
    with pytest.raises(BadArgumentsError, match="probe: expected a function"):
        HealthProbe(never_kinds(Ran())[kind])
