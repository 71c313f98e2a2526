"""A member through its lives: the real engine, journal, snapshots and service on simulated parts.

The disk stays; everything else is new in each life. A member that fails by itself may do so only
because of a fault that was injected into its disk, and says nothing to anybody from then on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from coordinator.errors import StorageError
from coordinator.node.config import Config, MemberConfig
from coordinator.raft.blocking import start_in_place
from coordinator.raft.core import Core
from coordinator.raft.engine import Applied, Replica, Role
from coordinator.raft.network.messages import Appended, Message
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.rejoin import recovering
from coordinator.service.member import Member
from coordinator.state.codec import decode_command
from coordinator.state.commands import EndHold, ExpireSession, Operation, Reopen
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk
from tests.simulation.left_syncs import LeftSyncs
from tests.simulation.loop import NOBODY, OwnClock, Owner
from tests.simulation.network import NetworkEnd
from tests.simulation.planted import Planted
from tests.simulation.record import ObservedReplica, Record

if TYPE_CHECKING:
    from tests.simulation.world import World

Result = TypeVar("Result")

EXIT_S = (0.0, 0.3)
"""How long the process of a failed member takes to end."""
STOP_S_MAX = 13.0
"""After so long whoever stops a member in order ends it, as ``server`` does."""
CALM_SYNC_MS = 100.0

STALL_S = 1.25
"""A leader that stood still for so long begins all leases again (``sessions.leases``, rule 4)."""
JUST_READ_S = 0.5
SHORT = 64
"""Bytes; a command that ends a session is shorter."""


class ObservedEngine:
    """The real engine; what it applies is written down, and what it proposes is looked at."""

    def __init__(
        self,
        real: PySyncObjEngine,
        record: Record,
        who: str,
        planted: Planted,
        *,
        on_halt: Callable[[BaseException], None],
        read_late: dict[str, float],
    ) -> None:
        self.real = real
        self.record = record
        self.who = who
        self.planted = planted
        self.on_halt = on_halt
        self.read_late = read_late
        """When a heartbeat of each session was read that had lain in a socket for ``STALL_S``."""
        self.member_id = real.member_id
        self.stop, self.hand_over = real.stop, real.hand_over
        self.read_barrier, self.confirm_leadership = real.read_barrier, real.confirm_leadership
        self.wait_applied, self.on_request = real.wait_applied, real.on_request
        self.on_role_change, self.on_leader_change = real.on_role_change, real.on_leader_change
        self.on_failure, self.status, self.metrics = real.on_failure, real.status, real.metrics
        self.contact_age_ms = real.contact_age_ms

    @property
    def cluster_id(self) -> str:
        return self.real.cluster_id

    @property
    def led_ms(self) -> int | None:
        return self.real.led_ms

    @property
    def term(self) -> int:
        return self.real.term

    @property
    def leader_id(self) -> str | None:
        return self.real.leader_id

    async def propose(self, command: bytes, *, is_patient: bool = False) -> Applied:
        if len(command) <= SHORT or b"/locks/" in command:
            operation = decode_command(command).operation
            self.planted.refuse(operation)
            self._look_at(operation)
        return await self.real.propose(command, is_patient=is_patient)

    async def request(self, member_id: str, kind: str, payload: bytes) -> bytes:
        return self.planted.told(kind, await self.real.request(member_id, kind, payload))

    def _look_at(self, operation: Operation) -> None:
        now_s = self.record.now_s()
        if isinstance(operation, EndHold | Reopen):
            extensions = operation.extensions if isinstance(operation, EndHold) else 0
            self.record.ends_proposed[self.who, operation.path, extensions] = now_s
        if isinstance(operation, ExpireSession):
            self.record.expiries_proposed[self.who, operation.session_id] = now_s
            read_s = self.read_late.get(operation.session_id)
            if read_s is not None and now_s - read_s < JUST_READ_S:
                self.record.violate(
                    "no session ends early",
                    f"{self.who} proposes {operation} though it has just been woken, and read "
                    f"a heartbeat that came while it stood still at {read_s:.4f}",
                )

    def halt(self, error: BaseException, note: str) -> None:
        self.real.halt(error, note)
        self.on_halt(error)

    async def start(self, replica: Replica) -> None:
        await self.real.start(ObservedReplica(replica, self.record, self.who))


class SimulatedMember:
    """One member of the cluster, whichever life it is in."""

    def __init__(self, world: World, member_id: str) -> None:
        draw = world.random
        self.world = world
        self.member_id = member_id
        self.url = f"http://member-{member_id}:1"
        self.disk = SimulatedDisk(draw.randrange(1 << 30), is_orderly=draw.random() < 0.5)
        self.disks_before: list[SimulatedDisk] = []
        """Those that were lost."""
        self.is_old_copy = False
        """An old copy of its disk was put back, and nobody has noticed yet."""
        self.clock = OwnClock(world.loop, draw.uniform(0.99, 1.01), draw.randrange(1_000_000))
        self.random = random.Random(draw.randrange(1 << 30))
        self.sync_ms_max = 0.0
        self._left_syncs = LeftSyncs(self)
        is_in_place = draw.random() < 0.25
        self.is_in_place = self._left_syncs.are_there or is_in_place
        self.life = 0
        self.is_up = False
        self.is_started = False
        self.is_stopping = False
        self.may_fail = False
        """A fault of its disk was injected in this life: it may, and soon must, stop."""
        self.failure: BaseException | None = None
        self.may_differ = False
        """Its memory was changed by hand in this life: it may, and soon must, halt."""
        self.is_halted = False
        """It has been found to differ, and says so; nothing else, to anybody."""
        self.rotten_path: str | None = None
        """The file of its log in which a bit was flipped while it was down."""
        self.read_late: dict[str, float] = {}
        self.owner = Owner(f"m{member_id}")
        self.service: Member
        self.engine: ObservedEngine
        self.transport: NetworkEnd
        self.on_gone: list[Callable[[SimulatedMember], None]] = []

    @property
    def who(self) -> str:
        return f"m{self.member_id}.{self.life}"

    def boot(self) -> None:
        """Begin a new life."""
        assert not self.is_up, f"{self.who} is up"
        world = self.world
        self.life += 1
        self.is_up, self.is_started, self.failure = True, False, None
        self.is_stopping = self.may_differ = self.is_halted = False
        self.may_fail = any(fault.count for fault in self.disk.faults) or (
            self.disk.capacity_bytes is not None or self.rotten_path is not None
        )
        self.may_fail |= world.changed_settings.is_refused(self.member_id)
        self.owner = Owner(self.who)
        self.read_late = {}
        config = world.planted.config_of(world.config_of(self.member_id))
        self.owner.spawn(self._boot(config))
        world.record.trace.add(self.who, "boots")

    async def _boot(self, config: Config) -> None:
        world, owner = self.world, self.owner
        self.transport = NetworkEnd(world.network, self.member_id, owner, self._check_sending)
        engine = PySyncObjEngine(
            config.cluster,
            MemberConfig(member_id=self.member_id, data_dir="data"),
            config.raft,
            clock=self.clock,
            disk=self.disk,
            random=random.Random(self.random.randrange(1 << 30)),
            transport=self.transport,
            run_blocking=self._run_blocking,
            start_sync=self._left_syncs.start if self._left_syncs.are_there else start_in_place,
            sync_in_place_ms_max=5.0 if self.is_in_place else 0.0,
        )
        self.engine = ObservedEngine(
            engine,
            world.record,
            self.who,
            world.planted,
            on_halt=self._halt,
            read_late=self.read_late,
        )
        self.engine.on_role_change(self._note_role)
        entropy = random.Random(self.random.randrange(1 << 60))
        self.service = Member(
            config,
            self.engine,
            self.clock,
            random=entropy,
            rules=world.changed_settings.rules_of(self.member_id),
        )
        self.service.on_failure(lambda error: self._fail(owner, error))
        try:
            await self.service.start()
            self.is_started = True
            world.record.trace.add(self.who, "runs")
        except (StorageError, SimulatedCrashError) as error:
            self._fail(owner, error)
        except Exception as error:
            world.record.violate("stays up", f"{self.who} cannot boot: {error!r}")

    async def _run_blocking(self, call: Callable[[], Result], /) -> Result:
        """Take simulated time over it, before and after the deed."""
        before, after = (self.random.uniform(0.0, self.sync_ms_max) for _ in "ab")
        await asyncio.sleep(before / 1000)
        result = call()
        await asyncio.sleep(after / 1000)
        return result

    # --- the ends of a life

    def kill(self, *, is_power_cut: bool) -> None:
        """End it between two callbacks; a power cut loses what was not synced."""
        if not self.is_up:
            return
        self.is_up = self.is_started = False
        self.owner.kill()
        if hasattr(self, "transport"):
            self.transport.vanish()
        if is_power_cut:
            self.disk.crash()
        else:
            self.disk.kill()
        self.world.record.trace.add(self.who, "power cut" if is_power_cut else "killed")
        for listener in self.on_gone:
            listener(self)

    def stop(self, grace_s: float) -> None:
        """Stop it in order: its door takes nobody new, requests have a moment, then it stops."""
        if self.is_started and not self.is_stopping:
            self.is_stopping = True
            self.world.record.trace.add(self.who, "is told to stop")
            self.owner.spawn(self._stop(self.owner, grace_s))

    async def _stop(self, owner: Owner, grace_s: float) -> None:
        record, pauses = self.world.record, owner.pause_count
        was_calm = self.sync_ms_max <= CALM_SYNC_MS
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await asyncio.sleep(grace_s)
                await self.service.stop()
            record.trace.add(self.who, "has stopped")
        except TimeoutError:
            record.trace.add(self.who, "does not stop in time")
            is_calm = was_calm and self.sync_ms_max <= CALM_SYNC_MS
            if is_calm and owner.pause_count == pauses:
                record.violate("stops in order", f"{self.who} has not stopped in {STOP_S_MAX} s")
        except SimulatedCrashError as error:
            self._fail(owner, error)
        except Exception as error:
            record.violate("stops in order", f"{self.who}: {error!r}")
        record.tally.stops += 1
        asyncio.get_running_loop().call_soon(self._end, owner, context=NOBODY)

    def _end(self, owner: Owner) -> None:
        if owner is self.owner:
            self.kill(is_power_cut=False)

    def replace_disk(self, disk: SimulatedDisk, *, is_old_copy: bool = False) -> None:
        assert not self.is_up, f"{self.who} is up"
        self.disks_before.append(self.disk)
        self.disk = disk
        self.is_old_copy = is_old_copy

    def _fail(self, owner: Owner, error: BaseException) -> None:
        """It says that it must stop; its process ends soon."""
        if owner is not self.owner or self.failure is not None:
            return
        self.failure = error
        record = self.world.record
        record.trace.add(self.who, f"fails: {error!r}")
        if isinstance(error, SimulatedCrashError):
            self.kill(is_power_cut=True)
            return
        if not self.may_fail:
            record.violate("stays up", f"{self.who} failed without a fault of its disk: {error!r}")
        exit_s = self.random.uniform(*EXIT_S)
        asyncio.get_running_loop().call_later(exit_s, self._exit, owner, context=NOBODY)

    def _halt(self, error: BaseException) -> None:
        """It has been told that its state is not that of the others."""
        self.is_halted = True
        self.world.record.trace.add(self.who, f"halts: {error}")
        if not self.may_differ:
            self.world.record.violate("stays up", f"{self.who} halts without a reason: {error}")

    def _exit(self, owner: Owner) -> None:
        if owner is self.owner and self.is_up:
            self.kill(is_power_cut=self.random.random() < 0.5)
            if self.rotten_path is not None and self.rotten_path in str(self.failure):
                # What an operator does who reads which file is damaged: begin with an empty disk.
                self.replace_disk(SimulatedDisk(self.random.randrange(1 << 30)))
                self.rotten_path = None

    def _check_sending(self, message: Message) -> None:
        """A member that failed says nothing more."""
        if self.failure is not None:
            self.world.record.violate(
                "stops when its disk fails", f"{self.who} says {message} after {self.failure!r}"
            )
        if self.is_halted:
            self.world.record.violate(
                "a member that differs is silent", f"{self.who} says {message} after it halted"
            )
        if isinstance(message, Appended) and message.is_success:
            self._check_durable(message)

    def _check_durable(self, message: Appended) -> None:
        """What is acknowledged in the present term is on the disk, in the log or in a snapshot."""
        snapshots = self.engine.real._passes.snapshots
        assert snapshots is not None
        durable_index = max(self.engine.real._log.durable_index, snapshots.snapshot_index)
        is_present = message.term == self._core().term
        if is_present and durable_index < message.next_index - 1:
            self.world.record.violate(
                "durable before promised", f"{self.who} says {message} with {durable_index} durable"
            )

    def _note_role(self, role: Role, term: int) -> None:
        self.world.record.trace.add(self.who, f"{role.value} in term {term}")
        if role is Role.LEADER:
            self.world.record.note_leader(self.member_id, term)

    # --- what the world asks

    @property
    def is_leading(self) -> bool:
        return self.is_started and self._core().role is Role.LEADER

    def _core(self) -> Core:
        """What ``engine.status()`` is made from, which is asked thousands of times a run."""
        consensus = self.engine.real._consensus
        assert consensus is not None
        return consensus.core

    @property
    def is_proven(self) -> bool:
        """Its disk holds what it promised (``raft.recovering``), whether it runs or not."""
        disk = self.disk
        if self.rotten_path is not None or self.is_old_copy:
            return False
        return "data" in disk.directories and not disk.exists(f"data/{recovering.NAME}")

    @property
    def applied_index(self) -> int:
        return self.service.labels()[2] if self.is_started else -1

    def machine(self) -> Any:
        return self.service._replica.machine
