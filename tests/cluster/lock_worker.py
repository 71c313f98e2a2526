"""A process that takes locks of all kinds, one after the other in several tasks or threads.

    python -m tests.cluster.lock_worker ENDPOINTS NAME SEED SECONDS SESSION_S async|sync

Prints one JSON object a line. ``held`` tells a hold that is over (or was lost): what the holder
knew, by its own clocks. ``doing`` and ``done`` tell work that was done once, takes of permits and
errors. Times are wall times in ms, as the members' labels are; only a test that leaves all clocks
of its machine alone compares the two. ``certain_ms`` is the last time at which its grant told the
holder that it is certainly held: the question was put after that time was read.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from coordinator import connect
from coordinator.client import AsyncClient, Client
from coordinator.client.calling.retry import RetryPolicy
from coordinator.client.sync_and_async import ClientT
from coordinator.clock import SystemClock
from coordinator.errors import CoordinatorError
from coordinator.recipes import (
    Election,
    Grant,
    Lock,
    MultiLock,
    Once,
    ReentrantLock,
    RWLock,
    Semaphore,
    TokenBucket,
    TreeLock,
)

RATE, BURST = 20, 10
SLOTS = 3
ONCE_KEYS = 12
BOUND_S, DELAY_S = 0.7, 0.4
_TASKS = 5
_STEP_S = 0.005
_HOLD_S = 0.02
_LONG = {"bounded": (0.1, 60.0), "delayed": (0.4, 1.0), "read": (0.3, 2.0), "slot": (0.3, 2.0)}
"""How often a hold of some kinds lasts how many seconds."""
_OVERDUE_S = 20.0
_printing = threading.Lock()
_clock = SystemClock()

KINDS = (
    "lock", "lock", "bounded", "delayed", "tree", "read", "read", "write", "downgrade", "slot",
    "slot", "multi", "multi", "reentrant", "election", "once", "bucket", "nested", "nested", "try",
    "cancelled", "cancelled",
)  # fmt: skip
CANCELLED = ("lock", "tree", "read", "slot", "multi", "election", "bounded")
Grants = Sequence[Grant[ClientT]]


def say(event: str, **fields: Any) -> None:
    """One line for the test to read."""
    with _printing:
        print(json.dumps({"event": event, **fields}), flush=True)


class Hold:
    """What the holder of some grants knows of them; several share one hold."""

    def __init__(self, who: str, doing: str, grants: Sequence[Grant[Any]]) -> None:
        self.granted_ms = _clock.wall_ms()
        self.certain_ms = 0
        self.downgraded_ms: int | None = None
        self.writes: list[int] = []
        self.refused = 0
        self._who, self._doing, self._grants = who, doing, grants
        self.paths = [grant.path for grant in grants]
        self.token = grants[0].fencing_token

    def look(self) -> None:
        """Raise LockLostError unless it is certainly held."""
        now_ms = _clock.wall_ms()
        self._grants[0].check()
        self.certain_ms = now_ms

    def wrote(self, written: Any) -> None:
        self.writes.append(written.stat.mzxid)

    def tell(self) -> None:
        grant = self._grants[0]
        said = {
            "who": self._who,
            "doing": self._doing,
            "paths": self.paths,
            "token": self.token,
            "granted_ms": self.granted_ms,
            "certain_ms": self.certain_ms,
            "max_hold_ms": grant.max_hold_ms,
            "is_lost": not grant.is_released and grant.is_lost,
        }
        say("held", **said, downgraded_ms=self.downgraded_ms, writes=self.writes)


class Worker:
    """What all the tasks, or threads, of this process do; ``source`` is of one of them."""

    def __init__(self, name: str, until: float) -> None:
        self.name = name
        self.until = until
        self.errors: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    def note(self, doing: str, error: BaseException | None) -> None:
        """Count what came of one round."""
        if error is None:
            self.done[doing] += 1
        else:
            self.errors[f"{doing}: {type(error).__name__}"] += 1

    def contender(self, client: Any, doing: str, source: random.Random, patience: float) -> Any:
        """Return what ``doing`` acquires; grants of it come one or several."""
        if doing == "try":
            patience = 0.0
            doing = source.choice(["lock", "tree", "read", "write", "slot", "multi", "bounded"])
        one = source.choice("ab")
        match doing:
            case "lock":
                return Lock(client, one, timeout=patience)
            case "bounded":
                return Lock(client, one, timeout=patience, max_hold=BOUND_S)
            case "delayed":
                return Lock(client, "c", timeout=patience, lock_delay=DELAY_S)
            case "tree":
                return TreeLock(client, one, timeout=patience)
            case "read":
                return RWLock(client, "rw", timeout=patience).read()
            case "write" | "downgrade":
                return RWLock(client, "rw", timeout=patience).write()
            case "slot":
                return Semaphore(client, "slots", SLOTS, timeout=patience)
            case "multi":
                names = source.choice([("a", "b"), ("b", "a", "m"), ("m", "rw")])
                return MultiLock(client, *names, timeout=patience)
            case "election":
                return Election(client, "e", timeout=patience)
        raise AssertionError(doing)


def hold_s(source: random.Random, doing: str = "") -> float:
    """Return how long to hold: mostly short, now and then long enough to be lost."""
    share, long_s = _LONG.get(doing, (0.0, 0.0))
    return long_s if source.random() < share else source.uniform(0.0, 2.0) * _HOLD_S


def errands(source: random.Random) -> str:
    return source.choice(KINDS)


def several(grants: Any) -> tuple[Grant[Any], ...]:
    return grants if isinstance(grants, tuple) else (grants,)


# --- asyncio


class AsyncRounds:
    """One task after the other thing it does."""

    def __init__(self, worker: Worker, client: AsyncClient, name: str, seed: str) -> None:
        self._worker, self._client, self._name = worker, client, name
        self._random = random.Random(seed)
        self._bucket = TokenBucket(client, "permits", rate=RATE, burst=BURST)
        self._once = Once(client, timeout=5.0)

    async def run(self) -> None:
        while not self._worker.is_over:
            doing = errands(self._random)
            try:
                async with asyncio.timeout(_OVERDUE_S):
                    await self._do(doing)
            except CoordinatorError as error:
                self._worker.note(doing, error)
            except TimeoutError:
                say("overdue", who=self._name, doing=doing)
            else:
                self._worker.note(doing, None)
            await asyncio.sleep(self._random.uniform(0.0, 0.02))

    async def _do(self, doing: str) -> None:
        patience = self._random.uniform(0.5, 6.0)
        if doing == "once":
            await self._work_once()
        elif doing == "bucket":
            if await self._bucket.take(timeout=0.2):
                say("took", at_ms=_clock.wall_ms())
        elif doing == "reentrant":
            async with ReentrantLock(self._client, "b", timeout=patience) as outer:
                async with ReentrantLock(self._client, "b", timeout=patience) as inner:
                    assert inner.fencing_token == outer.fencing_token
                    await self._hold(doing, (inner,))
                outer.check()
        elif doing == "nested":
            first, second = self._random.sample(["a", "m", "slots", "rw"], 2)
            async with self._any(first, patience) as outer:
                await self._hold(doing, several(outer), 0.3)
                async with self._any(second, patience) as inner:
                    await self._hold(doing, several(inner), 0.3)
        elif doing == "cancelled":
            await self._cancel()
        else:
            contender = self._worker.contender(self._client, doing, self._random, patience)
            async with contender as grants:
                await self._hold(doing, several(grants))

    def _any(self, name: str, patience: float) -> Any:
        if name == "slots":
            return Semaphore(self._client, name, SLOTS, timeout=patience)
        lock = RWLock(self._client, name, timeout=patience)
        return lock.read() if name == "rw" else lock.write()

    async def _hold(
        self, doing: str, grants: Sequence[Grant[AsyncClient]], part: float = 1
    ) -> None:
        hold = Hold(self._name, doing, grants)
        until = time.monotonic() + part * hold_s(self._random, doing)
        try:
            hold.look()
            while time.monotonic() < until:
                hold.look()
                if self._random.random() < 0.1:
                    await self._write(hold, grants)
                await asyncio.sleep(_STEP_S)
            if doing == "downgrade":
                called_ms = _clock.wall_ms()
                await grants[0].downgrade()
                hold.downgraded_ms = called_ms
                await asyncio.sleep(part * hold_s(self._random))
                hold.look()
        finally:
            hold.tell()

    async def _write(self, hold: Hold, grants: Grants[AsyncClient]) -> None:
        hold.wrote(await self._client.set("/work", b"%d" % hold.token, if_held=grants))

    async def _work_once(self) -> None:
        key = f"key-{self._random.randrange(ONCE_KEYS)}"

        async def work(attempt: Any) -> str:
            await asyncio.sleep(hold_s(self._random))
            return f"{self._name} {attempt.number}"

        done = await self._once.run(key, work)
        say("once", key=key, result=done.result, is_first=done.is_first, attempts=done.attempts)

    async def _cancel(self) -> None:
        doing = self._random.choice(
            ["lock", "tree", "read", "slot", "multi", "election", "bounded"]
        )
        contender = self._worker.contender(self._client, doing, self._random, 6.0)

        async def take() -> None:
            async with contender:
                await asyncio.sleep(60)

        task = asyncio.create_task(take())
        await asyncio.sleep(self._random.uniform(0.0, 0.1))
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error


# --- threads


class SyncRounds:
    """The same for a thread with the client for plain code."""

    def __init__(self, worker: Worker, client: Client, name: str, seed: str) -> None:
        self._worker, self._client, self._name = worker, client, name
        self._random = random.Random(seed)
        self._bucket = TokenBucket(client, "permits", rate=RATE, burst=BURST)
        self._once = Once(client, timeout=5.0)

    def run(self) -> None:
        while not self._worker.is_over:
            doing = errands(self._random)
            if doing == "cancelled":
                continue
            try:
                self._do(doing)
            except CoordinatorError as error:
                self._worker.note(doing, error)
            else:
                self._worker.note(doing, None)
            time.sleep(self._random.uniform(0.0, 0.02))

    def _do(self, doing: str) -> None:
        patience = self._random.uniform(0.5, 6.0)
        if doing == "once":
            self._work_once()
        elif doing == "bucket":
            if self._bucket.take(timeout=0.2):
                say("took", at_ms=_clock.wall_ms())
        elif doing == "reentrant":
            with ReentrantLock(self._client, "b", timeout=patience) as outer:
                with ReentrantLock(self._client, "b", timeout=patience) as inner:
                    assert inner.fencing_token == outer.fencing_token
                    self._hold(doing, (inner,))
                outer.check()
        elif doing == "nested":
            first, second = self._random.sample(["a", "m"], 2)
            with Lock(self._client, first, timeout=patience) as outer:
                self._hold(doing, (outer,), 0.3)
                with Lock(self._client, second, timeout=patience) as inner:
                    self._hold(doing, (inner,), 0.3)
        else:
            contender = self._worker.contender(self._client, doing, self._random, patience)
            with contender as grants:
                self._hold(doing, several(grants))

    def _hold(self, doing: str, grants: Grants[Client], part: float = 1) -> None:
        hold = Hold(self._name, doing, grants)
        until = time.monotonic() + part * hold_s(self._random, doing)
        try:
            hold.look()
            while time.monotonic() < until:
                hold.look()
                if self._random.random() < 0.1:
                    hold.wrote(self._client.set("/work", b"%d" % hold.token, if_held=grants))
                time.sleep(_STEP_S)
            if doing == "downgrade":
                called_ms = _clock.wall_ms()
                grants[0].downgrade()
                hold.downgraded_ms = called_ms
                time.sleep(part * hold_s(self._random))
                hold.look()
        finally:
            hold.tell()

    def _work_once(self) -> None:
        key = f"key-{self._random.randrange(ONCE_KEYS)}"

        def work(attempt: Any) -> str:
            time.sleep(hold_s(self._random))
            return f"{self._name} {attempt.number}"

        done = self._once.run(key, work)
        say("once", key=key, result=done.result, is_first=done.is_first, attempts=done.attempts)


# --- the process


def run_async(endpoints: str, worker: Worker, seed: str, session_s: float) -> None:
    async def main() -> None:
        async with connect(endpoints, **_settings(worker, seed, session_s)) as client:
            rounds = [
                AsyncRounds(worker, client, f"{worker.name}{number}", f"{seed}/{number}")
                for number in range(_TASKS)
            ]
            async with asyncio.TaskGroup() as group:
                for each in rounds:
                    group.create_task(each.run())

    asyncio.run(main())


def run_sync(endpoints: str, worker: Worker, seed: str, session_s: float) -> None:
    failures: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> Callable[[], None]:
        def body() -> None:
            try:
                run()
            except BaseException as error:
                failures.append(error)

        return body

    with connect(endpoints, **_settings(worker, seed, session_s)) as client:
        rounds = [
            SyncRounds(worker, client, f"{worker.name}{number}", f"{seed}/{number}")
            for number in range(_TASKS)
        ]
        threads = [threading.Thread(target=guarded(each.run)) for each in rounds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _settings(worker: Worker, seed: str, session_s: float) -> dict[str, Any]:
    return {
        "timeout": 6.0,
        "session_timeout": session_s,
        "label": worker.name,
        "retry": RetryPolicy(seed=random.Random(seed).getrandbits(32)),
    }


def main() -> None:
    endpoints, name, seed, seconds, session_s, face = sys.argv[1:7]
    worker = Worker(name, time.monotonic() + float(seconds))
    say("ready")
    (run_async if face == "async" else run_sync)(endpoints, worker, seed, float(session_s))
    say("end", done=worker.done, errors=worker.errors)


if __name__ == "__main__":
    main()
