"""Three replicas of a service under ``coordinator elect``: each fault, and the time without one.

    python -m tests.cluster.singletons [--rounds 3] [--lease 2] [--faults kill,cut] [--data DIR]

Each replica writes its token to a fenced store every 10 ms and looks at nothing, so only the
supervisor ends it in time. For each round: the time from the fault to the first write of the next
leader, in leases (of a killed member: the longest pause of the same leader); how many writes of the
old one came after the grant of the new one (``late``), and how many of those the store took
(``taken``, which must be none). All processes run on this machine, so its clocks are one: a host
whose clock is stepped is simulated elsewhere.

Exit status: 0 nothing violated, 1 something was.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coordinator import Election, connect
from coordinator.client import AsyncClient
from tests.cluster.fenced_store import FencedStore
from tests.cluster.processes import ProcessCluster
from tests.cluster.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]
NAME = "singleton"
WITHIN_LEASES = 10.0
_SETTLES_S = 30.0
_MAY_BE_LATE = frozenset({"pause all"})
"""Here the guard is paused, too, as by a machine that is suspended: the store has to refuse."""


class SeenStore(FencedStore):
    """A fenced store that knows when each write came: wall time in s, token, and whether taken."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int, bool]] = []
        self._seen_guard = threading.Lock()

    def take(self, token: int) -> bool:
        """Note it, and say whether it was taken."""
        with self._seen_guard:
            is_taken = super().take(token)
            self.seen.append((time.time(), token, is_taken))
        return is_taken

    @property
    def token(self) -> int:
        """The largest seen."""
        return max(self.tokens, default=0)


class Replica:
    """One ``coordinator elect`` with proxies of its own before the members."""

    def __init__(self, name: str, cluster: ProcessCluster, directory: Path, lease_s: float) -> None:
        self.name = name
        self.proxies = [Proxy(port) for port in cluster.client_ports.values()]
        self._file = directory / f"leader-{name}"
        self._log = directory / f"replica-{name}.log"
        self._lease_s = lease_s
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, store: str) -> None:
        """Start its proxies, and its process."""
        for proxy in self.proxies:
            await proxy.start()
        self.run(store)

    def run(self, store: str) -> None:
        """Start its process, maybe again."""
        arguments = ["elect", NAME, "--label", self.name, "--ttl", str(self._lease_s), "--quiet",
                     "--restart", "always", "--backoff", "0.05", "--resume", str(self._file),
                     "--endpoints", ",".join(proxy.url for proxy in self.proxies), "--",
                     sys.executable, "-S", str(ROOT / "tests/cluster/singleton_writer.py"),
                     store]  # fmt: skip
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coordinator", *arguments], cwd=ROOT, stderr=log, stdout=log
            )

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pids(self) -> list[int]:
        """Return the supervisor, its guard, and the command."""
        assert self.process is not None
        found = [self.process.pid]
        while children := _children(found[-1]):
            found.append(children[0])
        return found

    async def stop(self) -> None:
        """End it, and its proxies."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for proxy in self.proxies:
            await proxy.stop()


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@dataclass
class Seen:
    """What came of the rounds of one fault."""

    leases: list[float] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    """How the history says that the leaderships ended; "" for those that did not."""
    silent_ms: list[int] = field(default_factory=list)
    """For how long the Raft leader had heard nothing when it ended the session of one of those."""
    late: int = 0
    taken: int = 0


class World:
    """A cluster, a store and three replicas."""

    def __init__(self, directory: Path, lease_s: float) -> None:
        self.lease_s = lease_s
        self.cluster = ProcessCluster(directory)
        self.store = SeenStore()
        self.replicas = {
            name: Replica(name, self.cluster, directory, lease_s) for name in ("a", "b", "c")
        }

    async def run(self, faults: Sequence[str], rounds: int) -> dict[str, Seen]:
        """Do each fault ``rounds`` times; return what came of each."""
        seen = {fault: Seen() for fault in faults}
        self.cluster.start(*self.cluster.ids)
        try:
            await self.cluster.wait_ready_async(*self.cluster.ids)
            with self.store:
                async with connect(self.cluster.endpoints, timeout=20) as client:
                    for replica in self.replicas.values():
                        await replica.start(self.store.address)
                    for _ in range(rounds):
                        for fault in faults:
                            await self._round(client, fault, seen[fault])
                for replica in self.replicas.values():
                    await replica.stop()
        finally:
            for replica in self.replicas.values():
                if replica.process is not None:
                    replica.process.kill()
            self.cluster.stop()
        return seen

    async def _round(self, client: AsyncClient, fault: str, seen: Seen) -> None:
        before = await self._settled(client)
        leader, epoch = self.replicas[before[0]], before[1]
        began = time.time()  # before, since to bring it about may take long on a busy machine
        heal = await FAULTS[fault](self, leader, client)
        writes = len(self.store.seen)
        if fault == "member":
            await asyncio.sleep(1.5 * self.lease_s)
            without_s = self._longest_pause(writes, epoch)
        else:
            while not (now := self._next(writes, epoch, fault)):
                elapsed = (time.time() - began) / self.lease_s
                assert elapsed < WITHIN_LEASES, f"{fault}: nobody leads after {elapsed:.1f} leases"
                await asyncio.sleep(0.005)
            without_s = now - began
        seen.leases.append(without_s / self.lease_s)
        if heal is not None:
            await heal()
            await asyncio.sleep(0.5 * self.lease_s)  # what it has left to write comes now
        grants = [each async for each in client.grants(NAME, is_election=True) if each.granted_ms]
        granted = {each.fencing_token: each.granted_ms / 1000 for each in grants}
        ended = [each for each in grants if each.fencing_token == epoch]
        seen.ends += [each.how for each in ended]
        expired = [each.silent_ms for each in ended if each.how == "expired"]
        early = [ms for ms in expired if ms < self.lease_s * 1000]
        assert not early, f"{fault}: a session of {self.lease_s} s was ended after {early} ms"
        seen.silent_ms += expired
        after = [each for each in granted if each > epoch]
        if after:
            taken_over = granted[min(after)]
            old = [(at, taken) for at, token, taken in self.store.seen if token == epoch]
            late = [taken for at, taken in old if at > taken_over + 0.002]
            if fault not in _MAY_BE_LATE:
                assert not late, f"{fault}: {len(late)} writes of {epoch} after the next grant"
            seen.late += len(late)
            seen.taken += sum(late)

    def _next(self, writes: int, epoch: int, fault: str) -> float:
        """Return when the next leader wrote first; of a command, when any did."""
        for at, token, taken in self.store.seen[writes:]:
            if taken and (token > epoch or fault == "command"):
                return at
        return 0.0

    def _longest_pause(self, writes: int, epoch: int) -> float:
        """Return the longest time between two writes since; all are of the same leader."""
        seen = self.store.seen[writes:]
        assert {token for _, token, _ in seen} == {epoch}, "the death of a member moved it"
        times = [at for at, _, _ in seen]
        return max(after - before for before, after in itertools.pairwise(times))

    async def _settled(self, client: AsyncClient) -> tuple[str, int]:
        """Wait until one leads and writes, and two wait; return its label and epoch."""
        ends = time.monotonic() + _SETTLES_S
        while True:
            view = await client.election(NAME)
            elected = view.elected
            are_there = view.candidate_count == len(self.replicas) - 1
            if are_there and elected is not None and elected.epoch == self.store.token:
                return elected.label, elected.epoch
            for each in self.replicas.values():
                if not each.is_running():
                    each.run(self.store.address)
            assert time.monotonic() < ends, f"three replicas are not there: {view}"
            await asyncio.sleep(0.05)


Heal = Callable[[], Awaitable[None]] | None


async def _kill(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """The supervisor is killed; it is started again when another leads."""
    leader.signal(signal.SIGKILL)
    assert leader.process is not None
    await asyncio.to_thread(leader.process.wait)
    return None


async def _restart(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """The supervisor is killed and started again at once, and takes over from itself."""
    await _kill(world, leader, client)
    leader.run(world.store.address)
    return None


async def _command(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """Its command is killed, and started again under the same epoch."""
    os.kill(leader.pids()[-1], signal.SIGKILL)
    await asyncio.sleep(0.02)  # what it had sent has arrived
    return None


async def _pause(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """The supervisor is paused until another one leads."""
    leader.signal(signal.SIGSTOP)
    return _continued([leader.pids()[0]])


async def _pause_all(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """The supervisor, its guard and the command are paused, as on a machine that is suspended."""
    pids = leader.pids()
    for pid in reversed(pids):
        os.kill(pid, signal.SIGSTOP)
    return _continued(pids[::-1])


def _continued(pids: list[int]) -> Callable[[], Awaitable[None]]:
    async def heal() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.05)  # the command first, as if the guard were late

    return heal


async def _cut(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """It reaches no member any more, but the store."""
    for proxy in leader.proxies:
        proxy.cut()

    async def heal() -> None:
        for proxy in leader.proxies:
            proxy.heal()

    return heal


async def _stop(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """It is asked to end, and resigns."""
    leader.signal(signal.SIGTERM)
    return None


async def _hand_over(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """It is asked to let the last of those who wait follow."""
    last = (await client.election(NAME)).candidates[-1]
    await Election(client, NAME).ask(last.grant_id)
    return None


async def _member(world: World, leader: Replica, client: AsyncClient) -> Heal:
    """The Raft leader is killed; whoever is elected stays so."""
    member = await asyncio.to_thread(world.cluster.leader)
    world.cluster.kill(member)

    async def heal() -> None:
        world.cluster.start(member)
        await world.cluster.wait_ready_async(member)

    return heal


FAULTS: dict[str, Callable[[World, Replica, AsyncClient], Awaitable[Heal]]] = {
    "kill": _kill,
    "pause": _pause,
    "pause all": _pause_all,
    "cut": _cut,
    "stop": _stop,
    "hand over": _hand_over,
    "restart": _restart,
    "command": _command,
    "member": _member,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--data", type=Path)
    options = parser.parse_args(arguments)
    directory = options.data or Path(tempfile.mkdtemp(prefix="singletons-"))
    try:
        world = World(directory, options.lease)
        seen = asyncio.run(world.run(options.faults.split(","), options.rounds))
    finally:
        if options.data is None:
            shutil.rmtree(directory, ignore_errors=True)
    print("fault      rounds  leases: median  most   late  taken")
    for fault, each in seen.items():
        middle, most = statistics.median(each.leases), max(each.leases)
        times = f"{len(each.leases):>6} {middle:>15.2f} {most:>5.2f}"
        print(f"{fault:<10} {times} {each.late:>6} {each.taken:>6}")
        print(json.dumps({"fault": fault, "lease_s": options.lease, "leases": each.leases,
                          "ends": each.ends, "silent_ms": each.silent_ms, "late": each.late,
                          "taken": each.taken}))  # fmt: skip
    return 1 if any(each.taken for each in seen.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
