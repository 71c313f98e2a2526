"""Each verb ends in time, with an error that says so: a table of verbs and faults."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import AsyncClient, settled
from coordinator.client.calling.deadline import MARGIN_MS
from coordinator.client.running.settling import run_here
from coordinator.errors import LockTimeoutError, OutcomeUnknownError, UnavailableError
from tests.cluster.faults.shim_rows import ShimmedCluster
from tests.cluster.faults.world import Skipped
from tests.cluster.proxy import Proxy
from tests.cluster.timed_commands import timed_command
from tests.cluster.timed_verbs import CLIENT_S, ELSEWHERE, VERBS, Verb, public_verbs
from tests.patience import patient

pytestmark = pytest.mark.check

AWAY = (UnavailableError, OutcomeUnknownError, LockTimeoutError)
"""What a verb raises when members do not answer: that nothing was done, that it may have been, or
that others held."""
THREADED = ("Lock.", "Once.", "WorkQueue.", "Flag.", "Counter.")
"""The kinds that are called by threads, too."""
_TICK_S = 0.02
_ENDS_S_MAX = 20.0
"""After so long a verb is taken for one that does not end."""


class Stalls:
    """How late this process is by itself: for so much longer a verb may take."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self._late.append((began, max(0.0, time.monotonic() - began - 2 * _TICK_S)))

    def between(self, began: float, ended: float) -> float:
        return sum(late for at, late in self._late if began - 1 <= at <= ended)


class Table:
    """The rows for one fault: made while all is well, then called all at once."""

    def __init__(self, urls: list[str], name: str) -> None:
        self._urls = urls
        self._name = name
        self._clients: dict[str, AsyncClient] = {}
        self._made: dict[str, Any] = {}
        self._ended: list[tuple[str, Verb, float, float, Exception | None]] = []
        self._stalls = Stalls()

    async def run(self, fault: Any) -> None:
        """Make, do the fault, call; ``judged`` says what came of it."""
        watching = asyncio.create_task(self._stalls.watch())
        threaded = [each for each in VERBS if each.startswith(THREADED)]
        client = connect(self._urls, timeout=CLIENT_S, session_timeout=60)  # for the threads
        try:
            await asyncio.gather(*(self._make(each) for each in VERBS))
            made = await asyncio.gather(
                *(asyncio.to_thread(self._make_in_thread, client, each) for each in threaded)
            )
            async with fault:
                await asyncio.gather(
                    *(self._call(each) for each in VERBS),
                    *(
                        asyncio.to_thread(self._call_in_thread, each, item)
                        for each, item in zip(threaded, made, strict=True)
                    ),
                )
        finally:
            await asyncio.to_thread(client.close)
            await asyncio.gather(*(each.close() for each in self._clients.values()))
            watching.cancel()

    async def _make(self, name: str) -> None:
        kind = name.partition(".")[0]
        if kind not in self._clients:
            connecting = connect(self._urls, timeout=CLIENT_S, session_timeout=60)
            self._clients[kind] = client = await connecting
            client.settings  # noqa: B018
        await self._patiently(name)

    async def _patiently(self, name: str) -> None:
        end, verb = time.monotonic() + 60, VERBS[name]
        client, at = self._clients[name.partition(".")[0]], 0
        while name not in self._made:
            try:
                title = self._title(name, f"a{at}")
                made = settled(verb.make(client, title))
                self._made[name] = await asyncio.wait_for(made, _ENDS_S_MAX)
            except AWAY:
                at += 1  # the machine is busy; what it left is not taken again
                assert time.monotonic() < end, name

    def _make_in_thread(self, client: Any, name: str) -> Any:
        end, at = time.monotonic() + 60, 0
        while True:
            try:
                title = self._title(name, f"t{at}")
                return run_here(settled(VERBS[name].make(client, title)))
            except AWAY:
                at += 1
                assert time.monotonic() < end, name

    def _title(self, name: str, suffix: str) -> str:
        return f"{self._name}-{list(VERBS).index(name)}-{suffix}"

    async def _call(self, name: str) -> None:
        verb, item = VERBS[name], self._made[name]
        for turn in ("", ", at once again"):  # the next call begins at once
            began = time.monotonic()
            try:
                await asyncio.wait_for(settled(verb.call(item)), _ENDS_S_MAX)
                error = None
            except Exception as failure:
                error = failure
            self._note(f"{name}{turn}", verb, began, error)

    def _call_in_thread(self, name: str, item: Any) -> None:
        verb, began, error = VERBS[name], time.monotonic(), None
        try:
            verb.call(item)
        except Exception as failure:
            error = failure
        self._note(f"{name}, by a thread", verb, began, error)

    def _note(self, name: str, verb: Verb, began: float, error: Exception | None) -> None:
        self._ended.append((name, verb, began, time.monotonic(), error))

    def judged(self) -> Iterator[str]:
        """Say what ended late, or with an error that is none of those."""
        for name, verb, began, ended, error in self._ended:
            stalled_s = 0.05 + 2 * self._stalls.between(began, ended)
            limit_s = verb.promised_s + patient(MARGIN_MS / 1000) + stalled_s
            if error is None and name.partition(",")[0].endswith((".run", ".attend")):
                limit_s += CLIENT_S  # it has run what it was to run, and wrote that down
            if ended - began > limit_s:
                yield f"{name}: {ended - began:.2f} s for {limit_s:.2f}: {error!r}"
            if error is not None and not isinstance(error, AWAY) and not _is_an_answer(error):
                yield f"{name}: {error!r}"


def _is_an_answer(error: Exception) -> bool:
    """Whether a member has said that it cannot be done as asked."""
    return getattr(error, "http_status", 500) < 500 or isinstance(error, TimeoutError)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShimmedCluster]:
    try:
        made = ShimmedCluster(tmp_path_factory.mktemp("timed"), 3)
    except Skipped as reason:
        pytest.skip(str(reason))
    made.start()
    made.wait_ready(deadline_s=60)
    yield made
    made.stop()


Fault = Callable[[ShimmedCluster], Any]


def _victims(cluster: ShimmedCluster, count: int, *, leads: bool) -> list[str]:
    leader = cluster.leader()
    others = [each for each in cluster.ids if each != leader]
    return [leader, *others][:count] if leads else others[:count]


@asynccontextmanager
async def two_dead(cluster: ShimmedCluster) -> AsyncIterator[None]:
    victims = _victims(cluster, 2, leads=True)
    cluster.kill(*victims)
    yield
    cluster.start(*victims)


def frozen(count: int, *, leads: bool) -> Fault:
    @asynccontextmanager
    async def fault(cluster: ShimmedCluster) -> AsyncIterator[None]:
        victims = _victims(cluster, count, leads=leads)
        for each in victims:
            cluster.signal(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in victims:
                cluster.signal(each, signal.SIGCONT)

    return fault


@asynccontextmanager
async def slow_disks(cluster: ShimmedCluster) -> AsyncIterator[None]:
    for shim in cluster.shims.values():
        shim.set(sync_delay_ms=1_500)
    yield
    for shim in cluster.shims.values():
        shim.calm()


FAULTS: dict[str, Fault] = {
    "two dead": two_dead,
    "two frozen": frozen(2, leads=True),
    "the leader frozen": frozen(1, leads=True),
    "one frozen": frozen(1, leads=False),
    "slow disks": slow_disks,
}


def test_each_public_verb_has_a_row() -> None:
    """A new verb that asks members says how long it may take."""
    rows = {each.partition(",")[0] for each in VERBS}
    assert sorted(set(public_verbs()) - rows) == sorted(set(ELSEWHERE) & set(public_verbs()))
    assert set(ELSEWHERE) <= set(public_verbs()) | {"Partitioner.run"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
async def test_each_verb_ends_in_time(cluster: ShimmedCluster, fault: str) -> None:
    """Its timeout and the margin, with an error that ``except UnavailableError``, or its sibling
    OutcomeUnknownError, catches; the next call of the same client begins at once."""
    await cluster.wait_ready_async()
    table = Table(cluster.urls, fault.replace(" ", "-"))

    await table.run(FAULTS[fault](cluster))

    await cluster.wait_ready_async()
    assert list(table.judged()) == []


@pytest.mark.timeout(300)
async def test_each_verb_ends_in_time_when_it_is_cut_off(cluster: ShimmedCluster) -> None:
    """The members are well, and nothing of this client reaches them."""
    await cluster.wait_ready_async()
    proxies = [Proxy(port) for port in cluster.client_ports.values()]
    for proxy in proxies:
        await proxy.start()

    @asynccontextmanager
    async def cut_off() -> AsyncIterator[None]:
        for proxy in proxies:
            proxy.cut()
        yield
        for proxy in proxies:
            proxy.heal()

    table = Table([proxy.url for proxy in proxies], "cut-off")
    await table.run(cut_off())

    for proxy in proxies:
        await proxy.stop()
    assert list(table.judged()) == []


COMMANDS = (
    "get /x", "set /x 1", "create /y 1", "delete /x", "ls /", "stat /x", "counter c",
    "counter c --add 1", "flag f", "latch l 2", "barrier b", "bucket b --rate 1 --burst 1",
    "queue q", "jobs", "services", "commit-log c", "locks", "why x", "grants", "why-lost x",
    "sessions", "limits", "config get c", "lock x -- true", "elect x -- true", "once x -- true",
)  # fmt: skip


_CLOSED_S_MAX = 2.5
"""How long a command that contends goes on trying to leave nothing behind."""
_AT_ONCE = 9


@pytest.mark.timeout(300)
def test_each_command_ends_in_time(cluster: ShimmedCluster) -> None:
    """Two of three members are frozen: its ``--timeout`` and the margin, and an exit code."""
    cluster.wait_ready()
    victims = _victims(cluster, 2, leads=True)
    for each in victims:
        cluster.signal(each, signal.SIGSTOP)
    late: list[str] = []
    try:
        with ProcessPoolExecutor(_AT_ONCE, mp_context=get_context("forkserver")) as pool:
            ended = pool.map(timed_command, [cluster.endpoints] * len(COMMANDS), COMMANDS)
            for command, (took_s, exit_code, output) in zip(COMMANDS, ended, strict=True):
                limit_s = 1.05 + patient(MARGIN_MS / 1000)
                limit_s += _CLOSED_S_MAX if " -- " in command else 0.0
                if exit_code in (0, 2) or took_s > limit_s:
                    late.append(f"{command}: {took_s:.2f} s: {exit_code} {output!r:.200}")
    finally:
        for each in victims:
            cluster.signal(each, signal.SIGCONT)
    assert late == []
