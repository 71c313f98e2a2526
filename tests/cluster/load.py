"""Traffic on a real cluster, recorded as it happens, for ``verdicts`` to judge afterwards.

Four kinds of clients, all in the test's own event loop, so that one clock orders what they saw:

1. *register* clients read, create, set (half of it with an expected version) and delete a few
   znodes and add sequential ones, at any member. Half of their writes carry a request number and
   are sent again, to other members, until answered;
2. *watchers* of the whole tree, each reconnecting from its last zxid at another member;
3. *contenders* take locks of several kinds with the product's own client (alone, as one of several
   readers, a slot of a semaphore, all locks at once), and look at their grant while they hold;
4. each contender's session has an *ephemeral*, which watchers must not see go while the client
   counts its lease as running.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from coordinator import connect
from coordinator.client import AsyncClient, Session
from coordinator.client.calling.retry import RetryPolicy
from coordinator.errors import CoordinatorError
from coordinator.recipes import Grant, Lock, MultiLock, RWLock, Semaphore
from tests.cluster.wire import NEVER_SENT, Answer, Wire
from tests.history.operations import Recorder

ROOT = "/load"
OPERATIONS_PER_KEY_MAX = 400
SLOTS = 2
"""Of the semaphore."""
_ATTEMPT_S = 4.0
_WRITE_DEADLINE_S = 12.0


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How much of what; ``per_second`` bounds all register clients together."""

    clients: int = 8
    watchers: int = 3
    contenders: int = 5
    locks: int = 2
    keys: int = 4
    per_second: int = 150
    session_s: float = 3.0
    hold_s: float = 0.15


@dataclass(slots=True)
class Reading:
    """One answered request in the order of the whole store. Times are of ``time.monotonic``."""

    called_at: float
    returned_at: float
    zxid: int
    is_write: bool
    what: str


@dataclass(slots=True)
class Added:
    """A sequential znode that was asked for; ``path`` and ``zxid`` when it was acknowledged."""

    value: str
    is_repeatable: bool
    path: str | None = None
    zxid: int | None = None
    is_refused: bool = False


@dataclass(slots=True)
class Held:
    """One grant as its holder saw it; ``certain_until`` is the last time its check passed.

    ``beside``: how many may hold at once with it, of its own kind: 1 for one that holds alone."""

    lock: str
    token: int
    granted_at: float
    certain_until: float
    beside: float = 1


@dataclass(slots=True)
class Watched:
    """What one watcher was told, in unbroken stretches."""

    stretches: list[Stretch] = field(default_factory=list)
    compacted_count: int = 0
    resync_count: int = 0


@dataclass(slots=True)
class Stretch:
    """Everything after ``from_zxid`` up to ``to_zxid``, as told: (zxid, events)."""

    from_zxid: int
    to_zxid: int
    changes: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)


class Load:
    """Begun with ``start``, ended with ``stop``; everything it saw stays in its fields.

    Args:
        urls: of the members, in a list that may be longer than the cluster (a URL twice).
        seed: of every choice the clients make.
    """

    def __init__(
        self, urls: Sequence[str], *, seed: int, options: LoadOptions | None = None
    ) -> None:
        self.options = options or LoadOptions()
        self.urls = list(urls)
        self.recorder = Recorder()
        self.readings: list[Reading] = []
        self.added: list[Added] = []
        self.held: list[Held] = []
        self.watched: list[Watched] = []
        self.violations: list[str] = []
        """What was seen to be wrong at the moment it happened."""
        self.keeps_history = True
        """Whether a history that is not linearizable is kept in a file."""
        self.refused_values: set[str] = set()
        self.seen_values: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.client_errors: Counter[type[CoordinatorError]] = Counter()
        self.write_times: list[float] = []
        self.sessions_lost = 0
        self.alive_ephemerals: dict[str, Session] = {}
        self.gone_ephemerals: set[str] = set()
        self.name = f"{seed}-{random.SystemRandom().getrandbits(32):08x}"
        self._seed = seed
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._values = itertools.count()
        self._key_uses: Counter[int] = Counter()
        self.wires = [Wire(url) for url in self.urls]
        self._gap_s = self.options.clients / self.options.per_second

    async def start(self) -> None:
        """Make the root and begin."""
        for path in (ROOT, f"{ROOT}/set", f"{ROOT}/sessions"):
            answer = NEVER_SENT
            while answer.status not in (201, 409):
                answer = await self.wires[0].request("POST", f"/v1/tree{path}", {})
        options = self.options
        for number in range(options.clients):
            self._spawn(_RegisterClient(self, number, self._random(f"r{number}")).run())
        for number in range(options.watchers):
            watched = Watched()
            self.watched.append(watched)
            self._spawn(_Watcher(self, watched, self._random(f"w{number}")).run())
        for number in range(options.contenders):
            self._spawn(_Contender(self, number, self._random(f"c{number}")).run())

    async def stop(self) -> None:
        """Let everybody finish what is under way, watchers last. Raises what broke a client."""
        self._stopping.set()
        done, late = await asyncio.wait(self._tasks, timeout=60)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for wire in self.wires:
            wire.close()
        for task in done:
            task.result()
        assert not late, f"still running after the end: {late}"

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def operation_count(self) -> int:
        return sum(self.outcomes.values())

    async def wait_write(self, after: float, timeout_s: float) -> float:
        """Wait until a write that began after ``after`` was answered; return how long it took."""
        end = after + timeout_s
        while True:
            times = [r.returned_at for r in self.readings[-400:]
                     if r.is_write and r.called_at >= after]  # fmt: skip
            if times:
                return min(times) - after
            if time.monotonic() > end:
                raise TimeoutError(f"no write was answered within {timeout_s} s")
            await asyncio.sleep(0.02)

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the end."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass

    def next_value(self) -> str:
        return f"v{next(self._values)}"

    def next_key(self, source: random.Random) -> str:
        """Return a znode to work on; one that was used often gives way to a new one."""
        slot = source.randrange(self.options.keys)
        self._key_uses[slot] += 1
        return f"{ROOT}/k{slot}-{self._key_uses[slot] // OPERATIONS_PER_KEY_MAX}"

    def wire(self, source: random.Random) -> Wire:
        return source.choice(self.wires)

    def note(self, answer: Answer, called_at: float, *, is_write: bool, what: str) -> None:
        """Keep the place of an answered request in the order of the store."""
        name = answer.fate if answer.fate != "unknown" or not answer.status else str(answer.status)
        self.outcomes[("write " if is_write else "read ") + name] += 1
        if answer.fate != "answered":
            return
        is_change = is_write and answer.status < 300
        now = time.monotonic()
        self.readings.append(Reading(called_at, now, answer.zxid, is_change, what))

    async def gap(self, source: random.Random, since: float) -> None:
        """Wait until it is time for the next request of a client that sent its last at ``since``.

        One that was answered too late for that waits no more, and does not make up for it."""
        due = since + source.uniform(0.2, 1.8) * self._gap_s
        await asyncio.sleep(max(0.0, due - time.monotonic()))

    def on_deleted(self, path: str) -> None:
        """A watcher saw a znode go."""
        self.gone_ephemerals.add(path)
        session = self.alive_ephemerals.get(path)
        if session is not None and session.remaining_safe_ms() > 0:
            self.violations.append(
                f"ephemeral {path} went while its client counts "
                f"{session.remaining_safe_ms()} ms of lease"
            )

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _random(self, name: str) -> random.Random:
        return random.Random(f"{self._seed}/{name}")


class _RegisterClient:
    """Asks one thing after the other; picks another member for each."""

    def __init__(self, load: Load, number: int, source: random.Random) -> None:
        self._load = load
        self._name = f"r{number}"
        self._random = source
        self._number = 0
        self._client_id = f"{load.name}-{number}"
        self._versions: dict[str, int] = {}

    async def run(self) -> None:
        while not self._load.is_stopping:
            began = time.monotonic()
            kind = self._random.choices(
                ("read", "set", "create", "delete", "add"), (60, 20, 5, 3, 12)
            )[0]
            if kind == "add":
                await self._add()
            else:
                await self._operate(kind)
            await self._load.gap(self._random, began)

    async def _operate(self, kind: str) -> None:
        load, key = self._load, self._load.next_key(self._random)
        input_: dict[str, Any] = {}
        target = f"/v1/tree{key}"
        if kind in ("set", "create"):
            input_["value"] = load.next_value()
        if kind == "set":
            version = self._versions.get(key, 0) if self._random.random() < 0.5 else -1
            input_["expected_version"] = version
        handle = load.recorder.call(self._name, key, kind, **input_)
        called_at = time.monotonic()
        if kind == "read":
            answer = await load.wire(self._random).request("GET", target, timeout_s=_ATTEMPT_S)
        else:
            method = {"set": "PUT", "create": "POST", "delete": "DELETE"}[kind]
            body = None if kind == "delete" else {
                "data" if name == "value" else name: value for name, value in input_.items()
            }  # fmt: skip
            answer = await self._write(method, target, body)
        load.note(answer, called_at, is_write=kind != "read", what=f"{kind} {key}")
        self._record(handle, kind, key, input_, answer)

    def _record(
        self, handle: int, kind: str, key: str, input_: dict[str, Any], answer: Answer
    ) -> None:
        recorder = self._load.recorder
        if answer.fate == "never_sent":
            recorder.never_sent(handle)
        elif answer.fate == "unknown":
            recorder.unknown(handle)
            if answer.is_refused and "value" in input_:
                self._load.refused_values.add(input_["value"])
        elif answer.code is not None:
            recorder.answered(handle, error=answer.code, zxid=answer.zxid)
        elif kind == "delete":
            recorder.answered(handle, zxid=answer.zxid)
        else:
            stat = answer.body["stat"]
            self._versions[key] = stat["version"]
            output = {name: stat[name] for name in ("version", "czxid", "mzxid")}
            if kind == "read":
                output["value"] = answer.body["data"]
                self._load.seen_values.add(answer.body["data"])
            recorder.answered(handle, **output, zxid=answer.zxid)

    async def _add(self) -> None:
        load, added = self._load, Added(self._load.next_value(), False)
        load.added.append(added)
        called_at = time.monotonic()
        body = {"data": added.value, "mode": "persistent_sequential"}
        answer = await self._write("POST", f"/v1/tree{ROOT}/set/n-", body)
        load.note(answer, called_at, is_write=True, what=f"add {added.value}")
        if answer.status == 201:
            added.path, added.zxid = answer.body["path"], answer.zxid
        elif answer.is_refused:
            added.is_refused = True

    async def _write(self, method: str, target: str, body: Any) -> Answer:
        if self._random.random() < 0.5:
            return await self._load.wire(self._random).request(
                method, target, body, timeout_s=_ATTEMPT_S
            )
        self._number += 1
        headers = {
            "Coordinator-Client-Id": self._client_id,
            "Coordinator-Request-Number": str(self._number),
        }
        return await self._write_until_answered(method, target, body, headers)

    async def _write_until_answered(
        self, method: str, target: str, body: Any, headers: dict[str, str]
    ) -> Answer:
        """Send it again under its number; what may have happened once stays unknown."""
        end = time.monotonic() + _WRITE_DEADLINE_S
        answer, may_have_happened = NEVER_SENT, False
        while time.monotonic() < end:
            answer = await self._load.wire(self._random).request(
                method, target, body, headers=headers, timeout_s=_ATTEMPT_S
            )
            if answer.fate == "answered":
                return answer
            if answer.fate == "unknown" and not answer.is_refused:
                may_have_happened = True
            await asyncio.sleep(self._random.uniform(0.02, 0.2))
        return Answer("unknown") if may_have_happened else answer


class _Watcher:
    """Follows the whole tree, member after member."""

    def __init__(self, load: Load, watched: Watched, source: random.Random) -> None:
        self._load = load
        self._watched = watched
        self._random = source

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=8)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while not self._load.is_stopping:
                try:
                    await self._follow(http)
                except (aiohttp.ClientError, TimeoutError, ValueError):
                    pass  # a cut stream; a half line is not JSON
                await self._load.pause(self._random.uniform(0.02, 0.2))

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        stretches = self._watched.stretches
        query = f"path={ROOT}&kind=subtree"
        if stretches:
            query += f"&from_zxid={stretches[-1].to_zxid}"
        url = f"{self._random.choice(self._load.urls)}/v1/watch?{query}"
        until = time.monotonic() + self._random.uniform(1.0, 6.0)
        async with http.get(url, headers={"Accept": "application/x-ndjson"}) as stream:
            if stream.status == 410:
                self._watched.compacted_count += 1
                await self._begin_anew()
                return
            if stream.status != 200:
                return
            async for line in stream.content:
                if line.strip():
                    self._take(json.loads(line))
                if self._load.is_stopping or time.monotonic() > until:
                    return

    async def _begin_anew(self) -> None:
        answer = await self._load.wire(self._random).request("GET", f"/v1/tree{ROOT}")
        if answer.status == 200:
            self._watched.stretches.append(Stretch(answer.zxid, answer.zxid))

    def _take(self, line: dict[str, Any]) -> None:
        stretches, zxid = self._watched.stretches, line.get("zxid", 0)
        if line["type"] == "watching":
            if not stretches:
                stretches.append(Stretch(zxid, zxid))
            elif zxid != stretches[-1].to_zxid:
                self._load.violations.append(
                    f"asked to watch from {stretches[-1].to_zxid}, watching from {zxid}"
                )
        elif line["type"] == "change":
            stretch = stretches[-1]
            if zxid <= stretch.to_zxid:
                self._load.violations.append(
                    f"a watcher that had seen {stretch.to_zxid} was told of {zxid}"
                )
            stretch.to_zxid = zxid
            stretch.changes.append((zxid, line["events"]))
            for event in line["events"]:
                if event["type"] == "NodeDeleted":
                    self._load.on_deleted(event["path"])
        elif line["type"] == "bookmark":
            if zxid < stretches[-1].to_zxid:
                self._load.violations.append(
                    f"a bookmark goes back from {stretches[-1].to_zxid} to {zxid}"
                )
            stretches[-1].to_zxid = max(zxid, stretches[-1].to_zxid)
        elif line["type"] == "resync":
            self._watched.resync_count += 1
            stretches.append(Stretch(zxid, zxid))


class _Contender:
    """Takes one lock after the other with the product's own client."""

    def __init__(self, load: Load, number: int, source: random.Random) -> None:
        self._load = load
        self._number = number
        self._random = source
        self._ephemeral = ""

    async def run(self) -> None:
        load = self._load
        async with connect(
            load.urls,
            timeout=6.0,
            session_timeout=load.options.session_s,
            label=f"contender {self._number}",
            retry=RetryPolicy(seed=self._random.getrandbits(32)),
        ) as client:
            while not load.is_stopping:
                try:
                    await self._show_session(client)
                    await self._hold(client)
                except CoordinatorError as error:
                    load.client_errors[type(error)] += 1
                await load.pause(self._random.uniform(0.01, 0.1))
            load.alive_ephemerals.pop(self._ephemeral, None)

    async def _show_session(self, client: AsyncClient) -> None:
        session = await client.session()
        path = f"{ROOT}/sessions/{session.session_id}"
        if path != self._ephemeral:
            if self._ephemeral:
                self._load.sessions_lost += 1
                self._load.alive_ephemerals.pop(self._ephemeral, None)
            self._ephemeral = path
            # Known before it is there: its end may be told before the answer of its creation.
            self._load.alive_ephemerals[path] = session
            await client.create(path, mode="ephemeral")

    async def _hold(self, client: AsyncClient) -> None:
        load, kind = self._load, self._random.choices(KINDS, (6, 2, 2, 2, 2))[0]
        names = [f"{load.name}-{number}" for number in range(load.options.locks)]
        name = self._random.choice(names)
        if kind == "multi":
            async with MultiLock(client, *names, timeout=8.0) as grants:
                await self._keep(grants)
            return
        taken: Lock[AsyncClient] | Semaphore[AsyncClient]
        beside: float = 1
        if kind == "slot":
            taken, beside = Semaphore(client, f"{load.name}-slots", SLOTS, timeout=8.0), SLOTS
        elif kind == "read":
            taken, beside = RWLock(client, name, timeout=8.0).read(), math.inf
        elif kind == "write":
            taken = RWLock(client, name, timeout=8.0).write()
        else:
            taken = Lock(client, name, timeout=8.0)
        async with taken as grant:
            await self._keep((grant,), beside)

    async def _keep(self, grants: Sequence[Grant[AsyncClient]], beside: float = 1) -> None:
        at = time.monotonic()
        until = at + self._random.uniform(0.2, 1.8) * self._load.options.hold_s
        held = [Held(grant.lock, grant.fencing_token, at, 0.0, beside) for grant in grants]
        self._load.held += held
        while time.monotonic() < until:
            now = time.monotonic()
            for grant, seen in zip(grants, held, strict=True):
                grant.check()
                seen.certain_until = now
            await asyncio.sleep(0.01)


KINDS = ("lock", "read", "write", "slot", "multi")
