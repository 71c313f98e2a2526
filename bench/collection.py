"""What garbage collection costs a member, by its thresholds: processor time and the longest stop.

A member in memory with many znodes serves pairs of acquire and release; settings take turns. The
figure is the least of the rounds, in relation to a collector that is off.

    python -m bench.collection [--rounds 8] [--znodes 50000]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Mapping

from bench.memory import KINDS, InService
from coordinator.clock import SystemClock
from coordinator.model.operations import Create
from coordinator.node import garbage
from coordinator.node.config import Config
from coordinator.node.garbage import SmallSteps
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.service.writes.proposals import RequestContext

TURNS = 60
"""Of the pairs of ``InService``, for one round."""
SETTINGS: dict[str, tuple[int, int, int] | None] = {
    "off": None,
    "Python's own": (700, 10, 10),
    "as members begin": garbage._THRESHOLDS,
    "5,000 10 3": (5_000, 10, 3),
    "20,000 10 3": (20_000, 10, 3),
    "50,000 20 5": (50_000, 20, 5),
}


class Stops:
    """How long collections took, and the longest."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.count = 0
        self._began_s = 0.0

    def __call__(self, phase: str, _facts: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.count += 1
            self.longest_ms = max(self.longest_ms, 1e3 * (time.thread_time() - self._began_s))


def choose(name: str) -> None:
    """Let the collector run as this setting says; what is there now is frozen, as in a member."""
    setting = SETTINGS[name]
    gc.unfreeze()
    gc.collect()
    if setting is None:
        gc.disable()
        return
    gc.enable()
    if name == "Python's own":
        gc.callbacks[:] = [each for each in gc.callbacks if isinstance(each, Stops)]
    else:
        SmallSteps().begin()
    gc.set_threshold(*setting)


async def measure(rounds: int, znodes: int) -> None:
    clock = SystemClock()
    member = Member(Config(), LoopbackEngine(), clock, random=random.Random(1))
    await member.start()
    deadline_ms = clock.monotonic_ms() + 600_000
    for number in range(znodes):
        path = f"/n{number // 1000}" + (f"/{number}" if number % 1000 else "")
        await member.proposer.submit(Create(path, b"x" * 100), RequestContext(None, deadline_ms))
    session = await member.open_session(600_000, "bench", None, deadline_ms)
    service = InService(member, session.session_id)
    least: dict[str, float] = {}
    stops = {name: Stops() for name in SETTINGS}
    turns = list(SETTINGS)
    for _ in range(rounds):
        turns.append(turns.pop(0))
        for name in turns:
            choose(name)
            gc.callbacks.insert(0, stops[name])
            began = time.process_time()
            for _ in range(TURNS):
                await service.pairs(*KINDS["lock"])
            took = time.process_time() - began
            gc.callbacks.remove(stops[name])
            least[name] = min(least.get(name, took), took)
    await member.stop()
    print("| thresholds | processor time | longest stop, ms | stops a round |\n|---|---|---|---|")
    for name in SETTINGS:
        ratio = least[name] / least["off"]
        each = stops[name]
        print(f"| {name} | {ratio:.3f} | {each.longest_ms:.1f} | {each.count / rounds:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.collection", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--znodes", type=int, default=50_000)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.rounds, arguments.znodes))


if __name__ == "__main__":
    main()
