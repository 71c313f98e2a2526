"""One cluster under load while faults are done to it, and what is said of it in the end."""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster.faults import canary
from tests.cluster.load import Load, LoadOptions
from tests.cluster.marks import Judged, Mark, Tick
from tests.cluster.processes import ProcessCluster
from tests.cluster.verdicts import judge, judge_end

RECOVERY_S_MAX = 60.0
"""Longer than any recovery may take; the pass marks of a row are judged from what was measured."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "raft": {"snapshot_every_entries": 400, "keep_entries_after_snapshot": 200}
}


class Skipped(Exception):
    """This machine lacks what the row needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a run is: ``scale`` of the faults of each row, for these numbers of members."""

    seed: int
    scale: float = 1.0
    members: tuple[int, ...] = (3, 5)
    per_second: int = 500
    watchers: int = 20

    def count(self, short: int) -> int:
        return max(1, round(short * self.scale))

    def load(self, **changes: Any) -> LoadOptions:
        options = {"per_second": self.per_second, "watchers": self.watchers}
        return LoadOptions(**{**options, **changes})

    def shares(self, short: int) -> Iterator[tuple[int, range]]:
        """Divide the faults of a row over the numbers of members: (members, numbers of faults).

        The numbers go on from size to size, so that kinds of faults that take turns all do."""
        first, total = 0, self.count(short)
        for place, members in enumerate(self.members):
            count = (total + len(self.members) - 1 - place) // len(self.members)
            if count:
                yield members, range(first, first + count)
            first += count


@dataclass(slots=True)
class Tally:
    """What one row came to, over all its worlds."""

    faults: int = 0
    operations: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Of the faults of a row that has several, how many there were of each."""
    violations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    measured_s: dict[str, list[float]] = field(default_factory=dict)
    calm: list[Tick] = field(default_factory=list)
    """What the canary saw between the faults: what this machine is like."""

    def measured(self, what: str, seconds: float) -> None:
        self.measured_s.setdefault(what, []).append(seconds)

    @property
    def missed(self) -> list[str]:
        """The pass marks that were missed on a machine that was not too busy for them."""
        return [str(mark) for mark in self.marks if mark.judged is Judged.MISSED]

    def summary(self) -> list[str]:
        """Return the notes, the figures in words, and the pass marks of time."""
        figures = [
            f"{what}: median {statistics.median(s):.2f} s, worst {max(s):.2f} s of {len(s)}"
            for what, s in self.measured_s.items()
        ]
        return [*figures, *self.notes, *(f"mark {mark}" for mark in self.marks)]


Phase = tuple[float, float]
"""From when to when, of ``time.monotonic``."""
MakeCluster = Callable[[Path, int], ProcessCluster]


def on_loopback(directory: Path, members: int) -> ProcessCluster:
    """The usual cluster."""
    return ProcessCluster(directory, members, SETTINGS)


class World:
    """``async with World(...)``: a cluster with its load; judged and taken away on the way out."""

    def __init__(
        self,
        plan: Plan,
        tally: Tally,
        *,
        members: int = 3,
        make: MakeCluster = on_loopback,
        options: LoadOptions | None = None,
    ) -> None:
        self.random = random.Random(f"{plan.seed}/{members}")
        self.tally = tally
        self.directory = Path(tempfile.mkdtemp(prefix="coordinator-faults-"))
        try:
            self.cluster = make(self.directory, members)
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self.load = Load(self.cluster.urls, seed=plan.seed, options=options or plan.load())
        self._canaries: list[subprocess.Popen[bytes]] = []
        self._violations_before = len(tally.violations)
        self._calm_phases: list[Phase] = []
        self.may_trace = False
        """Whether members may log the traceback of a failure that was done to them."""

    async def __aenter__(self) -> World:
        try:
            self.watch_machine()
            self.cluster.start()
            await asyncio.to_thread(self.cluster.wait_ready, deadline_s=60)
            await self.load.start()
            await self.flowing()
        except BaseException:
            await self._take_away()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._judge()
        finally:
            self.tally.operations += self.load.operation_count
            self.tally.calm += self.calm_ticks
            await self._take_away()

    async def _judge(self) -> None:
        await self.load.stop()
        found = await asyncio.to_thread(judge, self.load)
        found += await judge_end(self.cluster, self.load)
        if not self.may_trace:
            found += [f"member {each} logged a traceback" for each in self.cluster.tracebacks()]
        if not self.load.held:
            found.append("no lock was ever taken: the load did not do its work")
        if found or len(self.tally.violations) > self._violations_before:
            kept = Path(tempfile.mkdtemp(prefix="coordinator-faults-kept-"))
            for log in self.directory.glob("*.log"):
                shutil.copy(log, kept)
            found.append(f"the logs are kept in {kept}")
        self.tally.violations += found

    async def _take_away(self) -> None:
        for each in self._canaries:
            each.kill()
            each.wait()
        await asyncio.to_thread(self.cluster.stop)
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- what rows do and wait for

    async def term(self) -> int:
        """Return the term of the leader; it grows with each election."""
        status = await asyncio.to_thread(self.cluster.status, await self.leader())
        return int(status["term"]) if status else 0

    async def leader(self) -> str:
        return await asyncio.to_thread(self.cluster.leader, 60.0)

    async def follower(self) -> str:
        leader = await self.leader()
        return self.random.choice([each for each in self.cluster.ids if each != leader])

    async def highest_term(self) -> int:
        """Return the highest term of any member: there may be no leader to ask."""
        found = [await asyncio.to_thread(self.cluster.status, each) for each in self.cluster.ids]
        return max(int(status["term"]) for status in found if status is not None)

    async def flowing(self, since: float | None = None) -> float:
        """Wait for a write that began after ``since`` (now); return how long that took."""
        return await self.load.wait_write(since or time.monotonic(), RECOVERY_S_MAX)

    async def ready(self, *member_ids: str) -> None:
        await asyncio.to_thread(self.cluster.wait_ready, *member_ids, deadline_s=RECOVERY_S_MAX)

    async def calm(self, low_s: float = 0.3, high_s: float = 1.5) -> Phase:
        """Let nothing happen between two faults; return from when to when."""
        began = time.monotonic()
        await self.pause(low_s, high_s)
        self._calm_phases.append((began, time.monotonic()))
        return self._calm_phases[-1]

    async def pause(self, low_s: float = 0.3, high_s: float = 1.5) -> None:
        """Wait a while, in the middle of a fault."""
        await asyncio.sleep(self.random.uniform(low_s, high_s))

    def watch_machine(self, name: str = "canary", *url: str) -> None:
        """Let a canary look at this machine, or at what answers at ``url``, until the end."""
        script = str(Path(canary.__file__))
        files = (str(self.directory / f"{name}.ticks"), str(self.directory / f"{name}.synced"))
        self._canaries.append(subprocess.Popen([sys.executable, script, *files, *url]))

    def ticks(self, name: str, *phases: Phase) -> list[Tick]:
        """Return what a canary saw in these phases."""
        seen = list(canary.read(self.directory / f"{name}.ticks"))
        return [
            Tick(at, work_s, took_s, sync_s if sync_s >= 0 else None)
            for at, work_s, took_s, sync_s in seen
            if any(began <= at and at + took_s <= ended for began, ended in phases)
        ]

    @property
    def calm_ticks(self) -> list[Tick]:
        """What the canary saw between the faults of this world so far."""
        return self.ticks("canary", *self._calm_phases)

    def expect(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.tally.violations.append(otherwise)
