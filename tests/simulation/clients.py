"""Simulated clients: the real client library, doing a mix of work over a link that breaks.

Each client is a process with a clock of its own; it may be paused, and killed and begun anew. What
it asked and what it was told is written into the history, and what it may believe at each moment
(its session, its locks) is open to the world.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from coordinator.client import RetryPolicy, connect
from coordinator.client.async_client import AsyncClient
from coordinator.client.locks import Acquired
from coordinator.client.sessions.session import Session, SessionState
from coordinator.client.watches.watching import ChangeStream
from coordinator.errors import (
    BadArgumentsError,
    CompactedError,
    CoordinatorError,
    OutcomeUnknownError,
    SessionExpiredError,
    UnknownRouteError,
)
from coordinator.model.events import Change
from coordinator.model.operations import Check, Create, Delete, SetData
from tests.history.operations import Recorder
from tests.simulation.contending import Contending
from tests.simulation.link import ClientLink
from tests.simulation.loop import OwnClock, Owner
from tests.simulation.stream_link import StreamLink
from tests.simulation.told import Watching, Written

if TYPE_CHECKING:
    from tests.simulation.world import World

REGISTERS = ("/r0", "/r1", "/r2")
QUEUES = ("/q/0", "/q/1")
WATCHED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("/",), "subtree"),
    (("/r0", "/r1"), "znode"),
    (("/q",), "subtree"),
    (("/q/0", "/locks/a", "/e"), "children"),
    (("/locks",), "subtree"),
)


class SimulatedClient:
    """One life of one client."""

    def __init__(self, world: World, name: str, seed: int) -> None:
        self.world = world
        self.name = name
        self.random = draw = random.Random(seed)
        self.owner = Owner(name)
        rate = draw.uniform(*world.settings.client_clock_rates)
        self.clock = OwnClock(world.loop, rate, draw.randrange(1_000_000))
        self.link = ClientLink(world, self.owner, draw.randrange(1 << 60))
        self.stream = StreamLink(self.link, seed) if world.plan.speaks_stream(seed) else None
        self.session_timeout_ms = draw.choice((1_000, 1_500, 2_500, 4_000))
        self.client: AsyncClient
        self.contending = Contending(self)
        self.sessions: dict[str, Session] = {}
        self.workers: list[asyncio.Task[None]] = []
        self.is_stopping = False
        self.is_finished = False
        self._value_count = 0
        self._think_ms = draw.choice((80, 150, 400))

    def begin(self) -> None:
        self.owner.spawn(self._run())

    async def _connect(self) -> None:
        """Make the client of this life, who has all members for endpoints."""
        connector = connect(
            [member.url for member in self.world.members],
            transport=self.stream or self.link,
            clock=self.clock,
            timeout=3.0,
            session_timeout=self.session_timeout_ms / 1000,
            label=self.name,
            retry=RetryPolicy(seed=self.random.randrange(1 << 30), cap_ms=500),
        )
        self.client = await connector.open_async()
        self.client.delivery.entropy = self.client.delivery.random  # a seed makes the same world

    async def _run(self) -> None:
        await self._connect()
        draw = self.random
        works: list[Callable[[], Awaitable[None]]] = [self._registers, self._mixture]
        if draw.random() < 0.7:
            works.append(self.contending.once)
        if draw.random() < 0.6:
            works.append(self._watch)
        self.workers = [asyncio.create_task(self._forever(work)) for work in works]
        await asyncio.gather(*self.workers)
        await self._last_write()
        self.note_session()
        await self.client.close()
        self.is_finished = True
        self.world.record.trace.add(self.name, "finished")

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self.random.uniform(0, 2 * self._think_ms) / 1000)
            await work()
            self.note_session()

    def kill(self) -> None:
        self.world.record.trace.add(self.name, "killed")
        self.owner.kill()
        self.is_finished = True

    # --- what it believes

    def believes(self, session: Session) -> bool:
        """Say whether the client's program may rely on the session now; asks without a trace."""
        if self.owner.is_dead or session._state in (SessionState.LOST, SessionState.CLOSED):
            return False
        return session._lease.remaining_ms(self.clock.monotonic_ms()) > 0

    def believes_in(self, acquired: Acquired) -> bool:
        """Say whether the client's program may take what it was awarded for its own now."""
        grant_watch = acquired.session.grant_watch
        if not self.believes(acquired.session) or grant_watch.loss_reason(acquired.paths):
            return False
        return not acquired.is_bounded or grant_watch.hold_remaining_ms(acquired.paths) > 0

    def note_session(self) -> None:
        """Write down the session that the client has now, if it has one."""
        opening = self.client._session._opening if hasattr(self, "client") else None
        if opening is None or not opening.done() or opening.cancelled():
            return
        if opening.exception() is None:
            session = opening.result()
            self.sessions.setdefault(session.session_id, session)

    # --- registers, whose history is judged

    async def _registers(self) -> None:
        draw, path = self.random, self.random.choice(REGISTERS)
        kind = draw.choices(
            ("read", "stale_read", "set", "cas", "create", "delete", "multi"),
            (30, 4, 20, 20, 10, 6, 6),
        )[0]
        match kind:
            case "read" | "stale_read":
                await self._read(path, kind)
            case "set":
                await self._set(path, -1)
            case "cas":
                version = await self._read(path, "read")
                await self._set(path, draw.randint(0, 3) if version is None else version)
            case "create":
                value = self.value()
                call = self.client.create(path, value)
                await self._recorded(path, "create", call, {"value": value.decode()}, value)
            case "delete":
                version = draw.choice((-1, -1, draw.randint(0, 3)))
                call_ = self.client.delete(path, expected_version=version)
                await self._recorded(path, "delete", call_, {"expected_version": version}, None)
            case _:
                await self._set_both()

    async def _read(self, path: str, kind: str) -> int | None:
        recorder = self.world.recorder
        handle = recorder.call(self.name, path, kind)
        try:
            found = await self.client.get(path, stale=kind == "stale_read")
        except CoordinatorError as error:
            _tell_failure(recorder, handle, error)
            return None
        stat = found.stat
        recorder.answered(
            handle,
            value=found.data.decode(),
            version=stat.version,
            czxid=stat.czxid,
            mzxid=stat.mzxid,
        )
        self.note("read", path, f"{found.data!r} at {stat.mzxid}")
        return stat.version

    async def _set(self, path: str, version: int) -> None:
        value = self.value()
        asked = {"value": value.decode(), "expected_version": version}
        call = self.client.set(path, value, expected_version=version)
        await self._recorded(path, "set", call, asked, value)

    async def _recorded(
        self, path: str, kind: str, call: Awaitable[Any], asked: dict[str, Any], value: bytes | None
    ) -> None:
        recorder = self.world.recorder
        handle = recorder.call(self.name, path, kind, **asked)
        try:
            done = await call
        except CoordinatorError as error:
            _tell_failure(recorder, handle, error)
            self.note_failure(kind, path, value, error)
            return
        if value is None:
            recorder.answered(handle)
        else:
            stat = done.stat
            recorder.answered(handle, version=stat.version, czxid=stat.czxid, mzxid=stat.mzxid)
            self.world.written.append(Written(self.name, path, value, stat.mzxid))
        self.note(kind, path, "done")

    async def _set_both(self) -> None:
        """Two registers in one command: both or neither."""
        recorder, draw = self.world.recorder, self.random
        paths = draw.sample(REGISTERS, 2)
        values = [self.value() for _ in paths]
        handles = [
            recorder.call(self.name, path, "set", value=value.decode())
            for path, value in zip(paths, values, strict=True)
        ]
        try:
            done = await self.client.multi(
                [SetData(path, value) for path, value in zip(paths, values, strict=True)]
            )
        except OutcomeUnknownError as error:
            for handle in handles:
                recorder.unknown(handle)
            self.note_failure("multi", paths[0], None, error)
            return
        except CoordinatorError as error:
            for handle in handles:
                recorder.never_sent(handle)  # neither was done; which was refused is not said
            for value in values:
                self.note_failure("multi", paths[0], value, error)
            return
        for path, value, handle, result in zip(paths, values, handles, done.results, strict=True):
            stat = result.stat
            recorder.answered(handle, version=stat.version, czxid=stat.czxid, mzxid=stat.mzxid)
            self.world.written.append(Written(self.name, path, value, stat.mzxid))
        self.note("multi", paths[0], "done")

    # --- everything else

    async def _mixture(self) -> None:
        work = self.random.choices(
            (
                self._enqueue, self._drop_queue, self._live, self._guard, self._list, self._beat,
                self._fail, self.contending.look, self.contending.revoke, self.contending.resize,
            ),
            (25, 2, 15, 8, 8, 4, 1, 2, 2, 1),
        )[0]  # fmt: skip
        try:
            await work()
        except CoordinatorError as error:
            self.note_failure(work.__name__, "", None, error)

    async def _enqueue(self) -> None:
        queue, value = self.random.choice(QUEUES), self.value()
        try:
            done = await self.client.create(
                f"{queue}/n-", value, mode="persistent_sequential", parents="persistent"
            )
        except CoordinatorError as error:
            self.note_failure("enqueue", queue, value, error)
            return
        self.world.written.append(Written(self.name, done.path, value, done.stat.czxid))
        self.note("enqueue", done.path, "done")

    async def _drop_queue(self) -> None:
        await self.client.delete(self.random.choice(QUEUES), recursive=True)

    async def _live(self) -> None:
        """Create an ephemeral, look at it, maybe delete it."""
        value = self.value()
        path = f"/e/{self.name}-{self._value_count}"
        try:
            done = await self.client.create(path, value, mode="ephemeral", parents="container")
        except CoordinatorError as error:
            self.note_failure("live", path, value, error)
            return
        self.world.written.append(Written(self.name, path, value, done.stat.czxid))
        self.note("live", path, "done")
        if self.random.random() < 0.3:
            await self.client.delete(path)

    async def _guard(self) -> None:
        path, value = f"/g/{self.random.randrange(3)}", self.value()
        create = Create(path, value, parents="persistent")
        try:
            await self.client.guarded(
                [Check(path, exists=False)], [create], [SetData(path, value), Delete("/g/never")]
            )
        except CoordinatorError as error:
            self.note_failure("guard", path, value, error)

    async def _list(self) -> None:
        await self.client.children(self.random.choice(("/", "/e", *QUEUES)))

    async def _beat(self) -> None:
        """Only keep a session, for a while."""
        await self.client.session(timeout=2.0)

    async def _fail(self) -> None:
        """Say that it is not well: what it holds is lost, not given back."""
        session = await self.client.session(timeout=2.0)
        await session.fail("not well", 2_000)
        self.note("fail", session.session_id, "done")

    async def _watch(self) -> None:
        """Follow some paths until the end of the world, resuming wherever it goes on."""
        paths, kind = self.random.choice(WATCHED)
        stream = self.client.watch(*paths, kind=kind)  # type: ignore[arg-type]
        watching: Watching | None = None
        try:
            async with stream:
                watching = Watching(self.name, paths, kind, stream.zxid or 0)
                watching.told_zxid = watching.start_zxid
                self.world.watchings.append(watching)
                self.note("watch", ",".join(paths), f"{kind} from {stream.zxid}")
                await self._follow(stream, watching)
        except CompactedError as error:
            self.note("watch", ",".join(paths), "compacted")
            self.world.record.note_compacted(stream.zxid or 0, error.fields["floor_zxid"])
        except CoordinatorError as error:
            self.note_failure("watch", ",".join(paths), None, error)

    async def _follow(self, stream: ChangeStream, watching: Watching) -> None:
        reading: asyncio.Task[Change] | None = None
        while not self.world.is_all_told(watching):
            if reading is None:
                reading = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
            await asyncio.wait({reading}, timeout=0.5)
            if not reading.done():
                watching.told_zxid = stream.zxid or 0
                if self.random.random() < 0.05:  # a reader that gives up, and resumes
                    reading.cancel()
                    await asyncio.wait({reading})
                    reading = None
                continue
            change = reading.result()
            reading = None
            watching.changes.append(change)
            self.world.note_shown(change.zxid)
            watching.told_zxid = change.zxid
            if not self.is_stopping and self.random.random() < 0.003:
                await asyncio.sleep(self.random.uniform(0.0, 2.0))  # a slow reader
        if reading is not None:
            reading.cancel()

    async def _last_write(self) -> None:
        """After everything has healed a write must get through."""
        deadline_s = self.world.loop.time() + self.world.settings.settle_s
        while True:
            try:
                await self.client.create(f"/done-{self.name}", b"done")
                return
            except SessionExpiredError:
                return
            except CoordinatorError as error:
                self.note_failure("last write", "", None, error)
                if error.code == "NodeExists" or self.world.loop.time() > deadline_s:
                    return

    # --- inside

    def value(self) -> bytes:
        self._value_count += 1
        return f"{self.name}:{self._value_count}".encode()

    def note(self, kind: str, path: str, what: str) -> None:
        tally = self.world.record.tally
        tally.operations += 1
        tally.deeds[kind] += 1
        self.world.record.trace.add(self.name, f"{kind} {path} {what}")

    def note_failure(
        self, kind: str, path: str, value: bytes | None, error: CoordinatorError
    ) -> None:
        tally = self.world.record.tally
        tally.operations += 1
        tally.deeds[f"{kind} {error.code}"] += 1
        if isinstance(error, BadArgumentsError | UnknownRouteError):
            self.world.record.violate("sound requests are taken", f"{self.name} {kind}: {error!r}")
        if error.definite:
            if value is not None:
                self.world.refused[value] = error.code
        else:
            tally.unknown += 1
        self.world.record.trace.add(self.name, f"{kind} {path} {error.code}")


def _tell_failure(recorder: Recorder, handle: int, error: CoordinatorError) -> None:
    if error.definite:
        recorder.answered(handle, error=error.code)
    else:
        recorder.unknown(handle)
