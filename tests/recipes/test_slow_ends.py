"""What a recipe releases, or reports as over, while a thread of its user still works.

Each verb of a sync client that holds something while a thread works, and each way in which that may
end: the order of *told*, *next*, *ended* and *over* (``slow_end``).
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

import coordinator.recipes
from coordinator import connect
from coordinator.client import Client, Session, loop_thread
from coordinator.client.calling.transport import Request
from coordinator.errors import ClientClosedError, SessionExpiredError
from coordinator.recipes import (
    Election,
    Group,
    Job,
    Lock,
    MultiLock,
    Once,
    Owned,
    Partitioner,
    Pool,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
    WorkQueue,
    exclusive,
    execute_exclusive,
    once_per,
    run_exclusive,
)
from tests.client.server_thread import ServedMember, serving_by
from tests.patience import patient
from tests.recipes.matrix import no
from tests.recipes.slow_end import LEASE_S, SkippingClock, Stage, done

# --- the entrances


@dataclass(frozen=True)
class Entrance:
    """How the work is begun, and who comes next."""

    enter: Callable[[Stage], object]
    """Runs ``stage.work`` to its end, in the thread that calls it."""
    take: Callable[[Client, str], object]
    """Waits, with another client, until that has what the work has."""
    revoke: Callable[[Client, str], object] | None = None
    """Takes it away from its holder; None: the holder's session is ended."""


def _take_lock(client: Client, name: str) -> object:
    return Lock(client, name, timeout=patient(20)).acquire()


def _revoke(client: Client, name: str) -> object:
    return client.revoke(name, by="ops", reason="a test")


def _lock(make: Callable[[Client, str], Any]) -> Entrance:
    def enter(stage: Stage) -> None:
        with make(stage.holder, stage.name) as held:
            stage.work_under(held[0] if isinstance(held, tuple) else held)

    return Entrance(enter, _take_lock, _revoke)


def _by_hand(stage: Stage) -> None:
    lock = Lock(stage.holder, stage.name)
    grant = lock.acquire()
    try:
        stage.work_under(grant)
    finally:
        lock.release()


def _twice(stage: Stage) -> None:
    with ReentrantLock(stage.holder, stage.name), ReentrantLock(stage.holder, stage.name) as inner:
        stage.work_under(inner)


def _elected(stage: Stage) -> None:
    with Election(stage.holder, stage.name) as leadership:
        stage.work_under(leadership)


def _take_leadership(client: Client, name: str) -> object:
    return Election(client, name).campaign(timeout=patient(20))


def _member(stage: Stage) -> None:
    with Group(stage.holder, stage.name).join("me") as joined:
        stage.work(lambda: not joined.is_registered)


def _join(client: Client, name: str) -> object:
    return Group(client, name).join("me", timeout=600)  # by the clock that skips


def _item(stage: Stage) -> None:
    queue = WorkQueue(stage.holder, stage.name)
    queue.put(b"")
    taken = queue.take()
    assert taken is not None
    with taken:
        stage.work(lambda: taken.is_lost)


def _take_item(client: Client, name: str) -> object:
    queue = WorkQueue(client, name)
    return queue.take(timeout=patient(20))


def _borrowed(stage: Stage) -> None:
    with Pool(stage.holder, stage.name, ["a"]).borrow() as borrowed:
        stage.work(lambda: borrowed.is_lost)


def _partition(stage: Stage) -> None:
    partitioner = Partitioner(stage.holder, stage.name, 1, member="me")
    stage.ask = partitioner.stop

    def work(owned: Owned[Client]) -> None:
        if stage.has_begun.is_set():
            partitioner.stop()
            return

        # Registered behind the recipe's own, and called in the same step.
        owned.grant.hold.on_lost(lambda: stage.was_told.append(owned.stopping.is_set()))
        stage.work(owned.stopping.is_set, lambda told: _follow(owned.stopping, told))

    partitioner.run(work)


def _follow(stopping: threading.Event, told: Callable[[], Any]) -> None:
    def follow() -> None:
        if stopping.wait(patient(20)):
            told()

    threading.Thread(target=follow, daemon=True).start()


ENTRANCES: dict[str, Entrance] = {
    "Lock.with": _lock(Lock),
    "Lock.with, bounded": _lock(lambda client, name: Lock(client, name, max_hold=LEASE_S / 2)),
    "Lock.acquire": Entrance(_by_hand, _take_lock, _revoke),
    "ReentrantLock.with": _lock(ReentrantLock),
    "ReentrantLock.with, twice": Entrance(_twice, _take_lock, _revoke),
    "RWLock.read": _lock(lambda client, name: RWLock(client, name).read()),
    "RWLock.write": _lock(lambda client, name: RWLock(client, name).write()),
    "Semaphore.with": _lock(lambda client, name: Semaphore(client, name, 1)),
    "MultiLock.with": _lock(lambda client, name: MultiLock(client, name, f"{name}-also")),
    "TreeLock.with": _lock(TreeLock),
    "Election.with": Entrance(_elected, _take_leadership),
    "Election.run": Entrance(
        lambda stage: Election(stage.holder, stage.name).run(
            lambda leadership: stage.has_begun.is_set() or stage.work_under(leadership)
        ),
        _take_leadership,
    ),
    "exclusive": Entrance(
        lambda stage: exclusive(stage.name, client=stage.holder)(stage.work_under)(),
        _take_lock,
        _revoke,
    ),
    "execute_exclusive": Entrance(
        lambda stage: execute_exclusive(stage.holder, stage.name, stage.work_under),
        _take_lock,
        _revoke,
    ),
    "run_exclusive": Entrance(
        lambda stage: run_exclusive(stage.name, stage.work_under), _take_lock, _revoke
    ),
    "Once.run": Entrance(
        lambda stage: Once(stage.holder).run(
            stage.name, lambda attempt: stage.work_under(attempt.grant)
        ),
        lambda client, name: _take_lock(client, f"once:{name}"),
        lambda client, name: _revoke(client, f"once:{name}"),
    ),
    "Job.run": Entrance(
        lambda stage: Job(stage.holder, stage.name, every="1d").run(
            lambda run: stage.work_under(run.grant)
        ),
        lambda client, name: _take_lock(client, f"job:{name}"),
        lambda client, name: _revoke(client, f"job:{name}"),
    ),
    "once_per": Entrance(
        lambda stage: once_per(stage.name, client=stage.holder, every="1d")(
            lambda run: stage.work_under(run.grant)
        )(),
        lambda client, name: _take_lock(client, f"job:{name}"),
        lambda client, name: _revoke(client, f"job:{name}"),
    ),
    "Partitioner.run": Entrance(
        _partition,
        lambda client, name: _take_lock(client, f"{name}/0"),
        lambda client, name: _revoke(client, f"{name}/0"),
    ),
    "Membership.with": Entrance(_member, _join),
    "Delivery.with": Entrance(_item, _take_item),
    "Borrowed.with": Entrance(
        _borrowed, lambda client, name: Pool(client, name, ["a"]).borrow(timeout=patient(20))
    ),
}

ON_POSITION = no("its function is called while it waits: nothing is held yet")
TOLD = no("what is called says that it is over, or asks; `test_blocking_callbacks` lets it block")
NOT_HELD = no("nothing is held while the function runs")
NOT_COVERED: dict[str, no] = {
    "Semaphore.acquire": ON_POSITION,
    "MultiLock.acquire": ON_POSITION,
    "TreeLock.acquire": ON_POSITION,
    "Grant.on_asked": TOLD,
    "Grant.on_lost": TOLD,
    "Leadership.on_asked": TOLD,
    "Leadership.on_lost": TOLD,
    "Jobs.list": NOT_HELD,
    "Condition.wait_for": NOT_HELD,
    "CommitSite.attend": NOT_HELD,
    "TokenChunk.with": no("tokens are taken: what is left is given back, and nobody waits for it"),
    "TreeCache.with": no("it follows, and keeps nobody out"),
}

# --- the ways of ending

_STEP_MS = 300
"""Of the clock of a machine that sleeps: a leader that has not looked for a second, stalls."""


def _returns(stage: Stage, entrance: Entrance) -> None:
    stage.ask()
    _let_end(stage)


def _fails(stage: Stage, entrance: Entrance) -> None:
    stage.fails = True
    _let_end(stage)


def _is_lost(stage: Stage, entrance: Entrance) -> None:
    """Nothing of the client is heard until its lease is over, as of a machine that sleeps."""
    passed_ms, session = 0, stage.holder.session()
    while "next" not in stage.order and passed_ms < 3 * LEASE_S * 1000:
        stage.clock.skip(_STEP_MS)
        stage.look()
        if session.remaining_safe_ms() <= 0:
            stage.wait("told")  # the timer of its client is due, and has until the member's is
        stage.member.tick()
        passed_ms += _STEP_MS
        if passed_ms > 0.8 * LEASE_S * 1000:
            stage.quiet()
    _let_end(stage)


def _is_revoked(stage: Stage, entrance: Entrance) -> None:
    """The holder learns it with its next heartbeat, which is sent now."""
    session = stage.holder.session()
    if entrance.revoke is not None:
        entrance.revoke(stage.other, stage.name)
    else:
        _end_session(stage.other, session.session_id)
    stage.wait("next")
    with suppress(SessionExpiredError):
        stage.holder.call(session.renew(5_000))
    _let_end(stage)


def _is_closed(stage: Stage, entrance: Entrance) -> None:
    """Another thread closes the client."""
    with ThreadPoolExecutor(1) as closing:
        closed = closing.submit(stage.holder.close)
        stage.wait("next")
        _let_end(stage)
        done(closed)


def _is_interrupted(stage: Stage, entrance: Entrance) -> None:
    """Ctrl-C; its work, in the main thread, takes a while to clean up."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)
    if entrance is ENTRANCES["Partitioner.run"]:
        stage.wait("told")
        stage.is_asked.set()
    while not stage.is_ending.wait(1):
        signal.pthread_kill(main, signal.SIGINT)  # the first came in a finalizer, which drops it
    stage.quiet()
    stage.may_end.set()


def _let_end(stage: Stage) -> None:
    stage.is_asked.set()
    assert stage.is_ending.wait(patient(20))
    stage.quiet()
    stage.may_end.set()


def _end_session(client: Client, session_id: str) -> None:
    async def delete() -> None:
        delivery = client.core.delivery
        request = Request("DELETE", f"/v1/sessions/{session_id}")
        await delivery.send(delivery.endpoints.current, request, 5_000)

    client.call(delete())


WAYS: dict[str, tuple[Callable[[Stage, Entrance], None], str]] = {
    "returns": (_returns, "ended, next, over"),
    "fails": (_fails, "ended, next, over: WorkError"),
    "is lost": (_is_lost, "told, next, ended, over: LockLostError"),
    "is revoked": (_is_revoked, "next, told, ended, over: LockLostError"),
    "is closed": (_is_closed, "told, next, ended, over: ClientClosedError"),
    "is interrupted": (_is_interrupted, "ended, next, over: KeyboardInterrupt"),
}
"""Each way, and the story that is right unless ``ELSE`` has another one.

A revocation is by force: the next one is let in at once (docs/locks.md). Whatever else ends, no
other is granted before the thread can know it, or has ended."""

ITS_OWN = no("its client is its own, and closed when it has ended")
ELSE: dict[str, str] = {
    "Lock.acquire is lost": "told, next, ended, over",  # `release` returns False
    "Lock.acquire is revoked": "next, told, ended, over",
    "Election.run is lost": "told, next, ended, over",  # elected again, it runs again
    "Election.run is revoked": "next, told, ended, over",
    "exclusive is closed": "told, next, ended, over: LockLostError",
    "execute_exclusive is closed": "told, next, ended, over: LockLostError",
    "run_exclusive is lost": ITS_OWN,
    "run_exclusive is revoked": ITS_OWN,
    "run_exclusive is closed": ITS_OWN,
    "Partitioner.run returns": "told, ended, next, over",
    "Partitioner.run fails": "ended, next, over, told: WorkError",
    "Partitioner.run is lost": "told, next, ended, over",
    "Partitioner.run is revoked": "next, told, ended, over",
    "Partitioner.run is interrupted": "told, ended, next, over: KeyboardInterrupt",
    "Membership.with is lost": "told, next, ended, over",  # a name keeps nobody from working
    "Membership.with is revoked": "next, told, ended, over",
    "Delivery.with returns": "ended, over",  # the item is done: nobody gets it
    "Delivery.with is lost": "told, next, ended, over: SessionExpiredError",
    "Delivery.with is revoked": "next, told, ended, over: SessionExpiredError",
}

ALSO = {
    "Membership.with is lost": "told, ended, next, over",  # its own client may join again first
}
"""Other stories that are right, where two may be the first."""

# --- the table

clock = SkippingClock()


@pytest.fixture(scope="module")
def member() -> Iterator[ServedMember]:
    with serving_by(clock) as member:
        yield member


@pytest.fixture
def stage(member: ServedMember, request: pytest.FixtureRequest) -> Iterator[Stage]:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    with (
        connect(member.url, clock=clock, session_timeout=LEASE_S) as holder,
        connect(member.url, clock=clock, session_timeout=600) as other,
    ):
        yield Stage(clock, member, holder, other, name)


def perform(stage: Stage, entrance: Entrance, way: str, *, has_next: bool = True) -> str:
    """Let the work begin and end in that way; return what happened, in order."""

    def take() -> None:
        if entrance.take(stage.other, stage.name) is not None:
            stage.note("next")

    def conduct() -> None:
        try:
            assert stage.has_begun.wait(patient(20)), "it never began"
            taking = threads.submit(take)
            WAYS[way][0](stage, entrance)
            stage.wait("ended", *["next"] * has_next)
            stage.other.close()  # who contends again, gets it now
            taking.exception(patient(20))
            stage.wait("over")
        finally:
            stage.is_asked.set()
            stage.may_end.set()

    with ThreadPoolExecutor(3) as threads:
        conducting = threads.submit(conduct)
        if way == "is interrupted":
            stage.run(entrance.enter)
        else:
            threads.submit(stage.run, entrance.enter)
        done(conducting)
    return stage.story()


ROWS = [
    (name, way)
    for name in ENTRANCES
    for way in WAYS
    if not isinstance(ELSE.get(f"{name} {way}"), no)
]

_IDS = [f"{name} {way}".replace(",", "").replace(" ", "-") for name, way in ROWS]


@pytest.mark.parametrize(("name", "way"), ROWS, ids=_IDS)
def test_nobody_is_granted_what_a_thread_still_works_under_without_knowing(
    stage: Stage, name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a verb over while its work runs."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", stage.member.url)
    session, tell_end = stage.holder.session(), Session._report_end

    async def spied(self: Session, timeout_ms: int) -> bool:
        if self is session:
            stage.note_whether_told()
        return await tell_end(self, timeout_ms)

    monkeypatch.setattr(Session, "_report_end", spied)
    expected = ELSE.get(f"{name} {way}", WAYS[way][1])

    found = perform(stage, ENTRANCES[name], way, has_next="next" in expected)

    assert found in (expected, ALSO.get(f"{name} {way}"))
    assert all(stage.was_told), "in the step in which it is lost, and before the server is"


def test_run_is_over_when_its_threads_are_also_if_its_client_was_closed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the client does not wait for them; the thread that called ``run`` does."""
    monkeypatch.setattr(loop_thread, "_CALLS_S_MAX", 0.02)
    monkeypatch.setattr(loop_thread, "_CLEAN_UP_S_MAX", 0.02)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(stage.run, _partition)
        assert stage.has_begun.wait(patient(20))
        stage.holder.close()
        stage.wait("told")
        stage.quiet()
        assert stage.order == ["told"]
        _let_end(stage)
        stage.wait("over")

    assert stage.order == ["told", "ended", "over"]
    assert isinstance(stage.error, ClientClosedError)
    assert "has ended" in stage.error.message


def test_a_second_after_ctrl_c_a_partition_is_still_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``run`` waits so long for its threads, as its docstring says; nobody else gets what is
    theirs before they return."""
    monkeypatch.setattr(loop_thread, "_CLEAN_UP_S_MAX", 0.02)
    main = threading.main_thread().ident
    assert main is not None
    entrance = ENTRANCES["Partitioner.run"]

    def conduct(main: int) -> None:
        assert stage.has_begun.wait(patient(20))
        taking = threads.submit(entrance.take, stage.other, stage.name)
        taking.add_done_callback(lambda _: stage.note("next"))
        signal.pthread_kill(main, signal.SIGINT)
        stage.wait("told", "over")
        stage.quiet()
        _let_end(stage)
        stage.wait("next")

    with ThreadPoolExecutor(2) as threads:
        conducting = threads.submit(conduct, main)
        stage.run(_partition)
        done(conducting)

    assert stage.order == ["told", "over", "ended", "next"]
    assert isinstance(stage.error, KeyboardInterrupt)


def entrances() -> set[str]:
    """Return what the recipes offer that runs a body or a function of the program."""
    found = set()
    for name in coordinator.recipes.__all__:
        offered = getattr(coordinator.recipes, name)
        if not inspect.isclass(offered) or name.islower():
            found |= {name} if callable(offered) else set()
            continue
        if hasattr(offered, "__enter__"):
            found.add(f"{name}.with")
        for verb, method in inspect.getmembers(offered, inspect.isfunction):
            takes = [str(each.annotation) for each in inspect.signature(method).parameters.values()]
            is_given = any("Callable" in each or "OnAsked" in each for each in takes)
            if is_given and not verb.startswith("_"):
                found.add(f"{name}.{verb}")
    return found


def test_each_entrance_of_each_recipe_has_a_row_or_a_reason() -> None:
    """A new one fails until it is in the table."""
    rows = {name.partition(",")[0] for name in ENTRANCES}
    assert entrances() - rows - NOT_COVERED.keys() == set()
    assert NOT_COVERED.keys() - entrances() == set()
    assert {f"{name} {way}" for name in ENTRANCES for way in WAYS} >= ELSE.keys()
