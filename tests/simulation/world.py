"""One simulated world: members, clients, faults, and the judgement at its end. A run is a seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from coordinator.client.calling.answers import encoding_of
from coordinator.client.calling.transport import Request, Response
from coordinator.model.grants import AcquireLine, Granted
from coordinator.model.sessions import SessionLease, SessionLeases
from coordinator.model.views import LockView
from coordinator.node.config import Config, MemberConfig
from coordinator.wire.codec import from_body, union_from_body
from coordinator.wire.encoding import decode
from coordinator.wire.strict_json import decode_json
from tests.history.operations import Recorder
from tests.history.register import Register
from tests.simulation import changed_settings
from tests.simulation.beginnings import Beginning
from tests.simulation.beliefs import Beliefs
from tests.simulation.changed_settings import ChangedSettings
from tests.simulation.clients import SimulatedClient
from tests.simulation.differences import Differences
from tests.simulation.door import is_renewed, session_named_by
from tests.simulation.drawn_config import drawn_config
from tests.simulation.durable import check_quorum
from tests.simulation.faults import Faults
from tests.simulation.forgeries import Forgeries
from tests.simulation.keeper import Keeper
from tests.simulation.link import LinkWeather
from tests.simulation.loop import (
    NothingWillHappenError,
    Owner,
    TimeStandsStillError,
    WorldLoop,
    run,
)
from tests.simulation.members import SimulatedMember
from tests.simulation.more_faults import MoreFaults
from tests.simulation.network import MemberNetwork, Weather
from tests.simulation.onlooker import Onlooker
from tests.simulation.overdue import Overdue
from tests.simulation.plan import Plan
from tests.simulation.planted import Planted
from tests.simulation.properties import judge
from tests.simulation.quotas import Quotas
from tests.simulation.reading import ReadOrder
from tests.simulation.record import Record, Tally, Violation
from tests.simulation.recoveries import Recovery
from tests.simulation.rights import Rights
from tests.simulation.safe_times import check_safe_times
from tests.simulation.told import Looked, Told, Watching, Written

LOOK_EVERY_S = 0.05

@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is besides its seed."""

    seconds: float = 30.0
    """How long things go wrong."""
    settle_s: float = 25.0
    """After the last fault is undone everything must be finished within this time."""
    client_clock_rates: tuple[float, float] = (0.99, 1.01)
    """How fast the clocks of clients run, at the least and at the most."""
    only_faults: tuple[str, ...] = ()
    """The faults that happen, each as often; none named: as the seed draws them."""
    stops_at_first: bool = False
    """Whether the world ends with the first broken promise, for who looks for no more."""
    keep_lines: int | None = 400
    """How many of the last lines of the trace are kept; None: all."""
    planted: Planted | None = None
    """What goes wrong for a test of the judgement."""


@dataclass(frozen=True)
class Verdict:
    """What came of one run."""

    seed: int
    violations: list[Violation]
    tally: Tally
    trace_digest: str
    lines: list[str]
    line_total: int
    simulated_s: float
    log_length: int
    member_count: int
    problems: list[str] = field(default_factory=list)

    @property
    def is_fine(self) -> bool:
        return not self.violations


class World:
    """Everything that exists in one run."""

    def __init__(self, seed: int, settings: Settings) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        self.loop = loop
        self.seed = seed
        self.settings = settings
        self.planted = settings.planted or Planted()
        self.plan = plan = Plan(seed, settings.only_faults)
        self.is_stopped = False
        """An operator has stopped all members, and whatever starts them."""
        self.random = draw = random.Random(seed)
        self.record = Record(loop.time, keep_lines=settings.keep_lines)
        self.recorder = Recorder()
        self.registers: dict[str, Register] = {}
        """What was there before the recorded history, where that is known."""
        self.network = MemberNetwork(draw.randrange(1 << 60))
        self.calm_weather = Weather(delay_ms=draw.choice(((0.1, 1.0), (0.2, 5.0), (2.0, 15.0))))
        self.network.weather = replace(self.calm_weather)
        self.calm_link_weather = LinkWeather()
        self.link_weather = replace(self.calm_link_weather)
        self.calm_sync_ms = draw.choice((0.0, 1.0, 8.0))
        self.client_cuts: set[tuple[str, str]] = set()
        count = draw.choice((3, 3, 5))
        self._config = drawn_config(count, draw)
        if plan.has_changes:
            self._config = changed_settings.with_few_grants(seed, self._config)
        self.members = [SimulatedMember(self, str(number)) for number in range(1, count + 1)]
        for member in self.members:
            member.sync_ms_max = self.calm_sync_ms
        self.clients = [
            SimulatedClient(self, f"c{number}", draw.randrange(1 << 60))
            for number in range(1, draw.randint(6, 9) + 1)
        ]
        self.faults = Faults(self, draw.randrange(1 << 60))
        self.more_faults = MoreFaults(self)
        self.differences = Differences(self)
        self.changed_settings = ChangedSettings(self)
        self.forgeries = Forgeries(self)
        self.rights = Rights(self)
        self.quotas = Quotas(self)
        if plan.has_quotas:
            self.record.on_applied.append(self.quotas.note_applied)
            self.record.on_restored.append(self.quotas.note_restored)
        self.onlooker = Onlooker(self)
        self.keeper = Keeper(self) if plan.has_keeper else None
        self.watchings: list[Watching] = []
        self.grants: list[Told] = []
        """Each grant that a member told, whether it was heard or not."""
        self.looked: list[Looked] = []
        self.abandoned: list[tuple[str, int, int]] = []
        """(client id, number, length of the log) of each attempt that was reported as undone."""
        self.written: list[Written] = []
        self.conditions: dict[bytes, tuple[str, int]] = {}
        """The queue and the token of the grant under which each of these values was written."""
        self.refused: dict[bytes, str] = {}
        self.healed_s: float | None = None
        """When the last fault was undone."""
        self.final_zxid: int | None = None
        self._moment = 0
        self.reads = ReadOrder()
        self._overdue = Overdue(self)
        self.beliefs = Beliefs(self)
        self.record.on_entry.append(self._check_quorum)

    # --- the course of the world

    async def run(self) -> None:
        """Everything, from the first boot to the last check that needs the members."""
        if not self.settings.stops_at_first:
            await self._run()
            return
        broken = self.loop.create_future()
        self.record.on_violation.append(lambda: broken.done() or broken.set_result(None))
        running = asyncio.create_task(self._run())
        await asyncio.wait({running, broken}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()

    @property
    def is_cut_short(self) -> bool:
        return self.settings.stops_at_first and bool(self.record.violations)

    async def _run(self) -> None:
        self._trace_beginning()
        if not self.plan.begins_late:
            for member in self.members:
                self.boot(member)
        for client in self.clients:
            client.begin()
        if self.plan.has_more:
            self.onlooker.begin()
        if self.keeper is not None:
            self.keeper.begin()
        watching = asyncio.create_task(self._watch_over())
        if self.plan.begins_late:
            await Beginning(self).run()
        if self.plan.begins_again:
            await self._break_for(self.settings.seconds / 2)
            await Recovery(self).run()
            await self._break_for(self.settings.seconds / 2)
        else:
            await self._break_for(self.settings.seconds)
        self.healed_s = self.loop.time()
        await self._settle()
        watching.cancel()
        if self.plan.has_rights:
            self.rights.judge(self.record.log)
        for problem in self.loop.problems:
            self.record.violate("no task fails", problem)

    async def _break_for(self, seconds: float) -> None:
        """Let things go wrong for so long; everything is mended then."""
        breaking = [asyncio.create_task(self.faults.run())]
        breaking.append(asyncio.create_task(self.differences.run()))
        if self.plan.has_more:
            breaking.append(asyncio.create_task(self.more_faults.run()))
        if self.plan.has_changes:
            breaking.append(asyncio.create_task(self.changed_settings.run()))
        if self.plan.has_rights:
            breaking.append(asyncio.create_task(self.rights.run()))
        if self.plan.has_quotas:
            breaking.append(asyncio.create_task(self.quotas.run()))
        if self.plan.has_forgeries:
            breaking.append(asyncio.create_task(self.forgeries.run()))
        await asyncio.sleep(seconds)
        for each in breaking:
            each.cancel()
        await self.changed_settings.heal()
        await self.more_faults.heal()
        await self.faults.heal()
        await self.differences.heal()

    async def _settle(self) -> None:
        """All are to finish within the bound, and to agree in the end."""
        for client in self.live_clients():
            client.is_stopping = True
        deadline_s = self.loop.time() + self.settings.settle_s
        while self.loop.time() < deadline_s:
            for member in self.members:
                if not member.is_up:
                    self.boot(member)
            await asyncio.sleep(0.1)
            if self.final_zxid is None and all(
                client.is_finished or all(map(_is_over, client.workers[:2]))
                for client in self.clients
            ):
                self.final_zxid = max((each.outcome.zxid for each in self.record.log), default=0)
            if all(client.is_finished for client in self.clients) and self._is_quiet():
                return
        for client in self.clients:
            if not client.is_finished:
                waits = [task.get_name() for task in client.workers if not task.done()]
                self.record.violate("progress", f"{client.name} has not finished: {waits}")
        for member in self.members:
            if member.is_old_copy:
                what = f"{member.who} takes part with what it has forgotten"
                self.record.violate("an old copy is found out", what)
        if not self._is_quiet():
            states = [
                f"{member.who} up={member.is_up} started={member.is_started} "
                f"{member.engine.status() if member.is_started else ''}"
                for member in self.members
            ]
            self.record.violate("progress", f"the members do not agree: {states}")

    def _is_quiet(self) -> bool:
        """All members have applied all there is; no session is left, and no queue is closed."""
        if any(member.is_old_copy for member in self.members):
            return False
        if not all(member.is_started and member.failure is None for member in self.members):
            return False
        statuses = [member.engine.status() for member in self.members]
        indexes = {index for each in statuses for index in (each.applied_index, each.last_index)}
        if len(indexes) != 1:
            return False
        if self.record.locks.delays:
            return False
        return all(member.machine().session_count == 0 for member in self.members)

    async def _watch_over(self) -> None:
        """Look regularly at what clients believe."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.beliefs.look()
            self._overdue.look()

    # --- what the parts ask of the world

    def boot(self, member: SimulatedMember) -> None:
        if not member.is_up and not self.is_stopped:
            member.boot()

    def member_at(self, endpoint: str) -> SimulatedMember:
        return next(member for member in self.members if member.url == endpoint)

    def is_client_cut(self, owner: Owner, member: SimulatedMember) -> bool:
        return (owner.name, member.member_id) in self.client_cuts

    def live_clients(self) -> list[SimulatedClient]:
        return [client for client in self.clients if not client.is_finished]

    def replace_client(self, dead: SimulatedClient) -> None:
        """Begin another life of a client that was killed."""
        base, _, life = dead.name.partition("_")
        name = f"{base}_{int(life or 1) + 1}"
        client = SimulatedClient(self, name, self.random.randrange(1 << 60))
        self.clients.append(client)
        client.begin()

    def next_moment(self) -> int:
        self._moment += 1
        return self._moment

    def is_all_told(self, watching: Watching) -> bool:
        return self.final_zxid is not None and watching.told_zxid >= self.final_zxid

    def config_of(self, member_id: str) -> Config:
        config = replace(self._config, member=MemberConfig(member_id=member_id, data_dir="data"))
        return self.changed_settings.config_of(member_id, config)

    # --- what is judged at once

    def note_response(self, who: str, request: Request, response: Response, called_at: int) -> None:
        """A client hears this: nobody who asks afterwards must be shown an older state."""
        now = self.next_moment()
        for promise, what in self.reads.heard(request, response, called_at=called_at, now=now):
            self.record.violate(promise, f"{who} {what}")

    def note_shown(self, zxid: int) -> None:
        """A client is told of this state by a stream: of a grant, or of a change."""
        self.reads.note_shown(self.next_moment(), zxid)

    def _check_quorum(self, index: int, term: int, payload: bytes) -> None:
        disks = [(member.disk, *member.disks_before) for member in self.members]
        for promise, what in check_quorum(disks, index, term, payload):
            self.record.violate(promise, what)

    def check_served(self, task: asyncio.Task[None]) -> None:
        """A member answers every request, or refuses it by name; it has no other errors."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.loop.is_tearing_down:
            self.record.violate("no task fails", f"{task.get_name()}: {error!r}")

    def note_answer(
        self, who: SimulatedMember, request: Request, response: Response, arrived_s: float
    ) -> None:
        """A member answers so; what it says must be true, whether anybody hears it or not."""
        segments = request.target.partition("?")[0].split("/")
        session_id = session_named_by(request)
        if session_id is not None and is_renewed(response):
            self.record.tally.deeds["renewed beside a request"] += 1
            self.record.note_heartbeat(session_id, arrived_s)
            self.record.note_lease(session_id, arrived_s, {}, ())  # says that nothing was lost
        if response.status != 200:
            return
        match request.method, segments[2:]:
            case "POST", ["sessions", session_id, "heartbeat"]:
                body = decode(response.body, encoding_of(response.headers))
                self._note_lease(from_body(SessionLease, body), arrived_s)
            case "POST", ["sessions", "heartbeats"]:
                body = decode(response.body, encoding_of(response.headers))
                said = from_body(SessionLeases, body)
                for lease in said.sessions:
                    self._note_lease(lease, arrived_s)
                for session_id in said.ended:
                    self.record.note_said_ended(session_id)
            case "GET", ["locks", _]:
                body = decode(response.body, encoding_of(response.headers))
                view = from_body(LockView, body)
                for promise, what in check_safe_times(self, who, view, arrived_s):
                    self.record.violate(promise, what)
            case "DELETE", ["locks" | "elections", _, "attempts", client_id, number]:
                self.abandoned.append((client_id, int(number), len(self.record.log)))

    def _note_lease(self, lease: SessionLease, arrived_s: float) -> None:
        """A member acknowledges a heartbeat, and says this of the grants of its session."""
        self.record.note_heartbeat(lease.session_id, arrived_s)
        lost = [each.fencing_token for each in lease.lost]
        self.record.note_lease(lease.session_id, arrived_s, lease.holds, lost)

    def note_line(self, who: str, line: bytes, waited_at: str | None) -> None:
        """A member tells a contender that it holds; ``waited_at``: the life in which it waited."""
        if not line.startswith(b'{"type":"granted"'):
            return
        granted = union_from_body(AcquireLine, decode_json(line))
        assert isinstance(granted, Granted)
        told = Told.each(who, granted.grant)
        self.grants.extend(told)
        if waited_at is not None:
            self.record.check_late_word(waited_at, [each.path for each in told])

    def _trace_beginning(self) -> None:
        self.record.trace.add(
            "world", f"seed {self.seed}: {len(self.members)} members, {len(self.clients)} clients"
        )


def simulate(seed: int, settings: Settings | None = None) -> Verdict:
    """Run the world of ``seed`` and judge it."""
    settings = settings or Settings()
    made: list[World] = []

    async def main() -> None:
        world = World(seed, settings)
        made.append(world)
        await world.run()
        if not world.is_cut_short:
            judge(world)

    try:
        run(main())
    except NothingWillHappenError:
        made[0].record.violate("progress", "everything waits and nothing will ever happen")
    except TimeStandsStillError as error:
        made[0].record.violate("progress", str(error))
    world = made[0]
    record = world.record
    record.tally.locks = record.locks.tally
    return Verdict(
        seed=seed,
        violations=record.violations,
        tally=record.tally,
        trace_digest=record.trace.digest,
        lines=list(record.trace.lines),
        line_total=record.trace.line_total,
        simulated_s=world.loop.time() - 1_000.0,
        log_length=len(record.log),
        member_count=len(world.members),
        problems=world.loop.problems,
    )


def _is_over(task: asyncio.Task[None]) -> bool:
    return task.done()
