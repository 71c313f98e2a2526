"""What an operation of our own client costs the members: the leader and a follower, apart.

Each revision named by ``--at`` gets a cluster of its own; all are driven in turns by the client of
this source, over the stream, so that ratios mean something on a machine that does other work, too.
Processor µs for each operation, medians of the turns with the least; or calls of Python functions
(``--frames``; compiled functions are not seen), which no other work on the machine moves.

    python -m bench.cycles [--at . --at ../other] [--loads lock-64,write-64,write-256]
                           [--turns 5] [--seconds 2] [--frames]

*lock*: an acquire and its release of a lock that no other client wants. *write*: 100 bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.our_client import OurAsync
from bench.peers.work import Spec
from bench.rounds import FRAMES_SHOWN, Revision

WARM_UP_S = 1.0
Operation = Callable[[], Awaitable[object]]


async def _go_on() -> None:
    """Hold a lock for no longer than it takes."""


@dataclass(slots=True)
class Driven:
    """A revision under one load: its client, and what each turn came to, in µs."""

    revision: Revision
    client: OurAsync
    operations: list[Operation]
    leader: list[float] = field(default_factory=list)
    follower: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)

    async def turn(self, seconds: float) -> None:
        """Measure one turn."""
        order = self.revision.in_order()
        before = [self.revision.processor_s(each) for each in order]
        began_s = time.perf_counter()
        count = await self.load(seconds)
        took_s = time.perf_counter() - began_s
        spent = [
            (self.revision.processor_s(each) - was) / count * 1e6
            for each, was in zip(order, before, strict=True)
        ]
        self.leader.append(spent[0])
        self.follower.append(statistics.mean(spent[1:]))
        self.rate.append(count / took_s)

    async def load(self, seconds: float) -> int:
        """Let each worker repeat its operation; return how many that came to."""
        end_s, count = time.perf_counter() + seconds, 0

        async def repeat(operation: Operation) -> None:
            nonlocal count
            while time.perf_counter() < end_s:
                await operation()
                count += 1

        await asyncio.gather(*(repeat(each) for each in self.operations))
        return count

    async def frames(self, seconds: float, shown: int) -> None:
        """Print the calls of Python functions of the leader, and of one follower."""
        self.revision.frames()
        count = await self.load(seconds)
        found = self.revision.frames()
        for role, member in zip(("leader", "follower"), self.revision.in_order()[:2], strict=True):
            print(f"  {self.revision.root.name} {role}: {found[member].total() / count:.0f} frames")
            _print_rooms(found[member], count, shown)

    def print(self) -> None:
        whole = [one + 2 * other for one, other in zip(self.leader, self.follower, strict=True)]
        columns = {"leader": self.leader, "follower": self.follower, "members": whole}
        said = ", ".join(
            f"{name} {statistics.median(column):6.0f} µs (least {min(column):.0f})"
            for name, column in columns.items()
        )
        rate = statistics.median(self.rate)
        print(f"  {self.revision.root.name:12} {said}, {rate:6.0f}/s", flush=True)


def _print_rooms(frames: Counter[str], count: int, shown: int) -> None:
    rooms: Counter[str] = Counter()
    for name, calls in frames.items():
        rooms[name.split(":")[0]] += calls
    for some, indent in ((rooms, ""), (frames, "    ")):
        for name, calls in some.most_common(shown):
            print(f"    {calls / count:8.2f}  {indent}{name}")


async def driven(revision: Revision, kind: str, workers: int) -> Driven:
    """Connect a client of ``workers`` tasks to the members of ``revision``."""
    order = revision.in_order()
    urls, pids = revision.urls, [each.pid for each in revision.processes.values()]
    leader = revision.ids.index(order[0])
    client = OurAsync(Spec("ours", kind, workers, tuple(urls), leader, tuple(pids)))

    async def operation(number: int) -> Operation:
        work = await client.worker(number)
        return lambda: work(_go_on)

    operations = [await operation(number) for number in range(workers)]
    return Driven(revision, client, operations)


async def measure(arguments: argparse.Namespace, directory: Path) -> None:
    revisions: list[Revision] = []
    try:
        for number, root in enumerate(arguments.at):
            revisions.append(Revision(directory / str(number), root, arguments.frames))
        for revision in revisions:
            await asyncio.to_thread(revision.wait_ready)
        for load in arguments.loads.split(","):
            kind, _, workers = load.partition("-")
            print(load, flush=True)
            each_driven = [await driven(each, kind, int(workers)) for each in revisions]
            for each in each_driven:
                await each.load(WARM_UP_S)
            if arguments.frames:
                for each in each_driven:
                    await each.frames(arguments.seconds, arguments.shown)
            else:
                for _ in range(arguments.turns):
                    for each in each_driven:
                        await each.turn(arguments.seconds)
                for each in each_driven:
                    each.print()
            for each in each_driven:
                await each.client.close()
    finally:
        for revision in revisions:
            revision.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cycles", description=__doc__)
    parser.add_argument("--at", action="append", help="a checked-out revision; again for another")
    parser.add_argument("--loads", default="lock-64,write-64,write-256")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--frames", action="store_true", help="count calls of Python functions")
    parser.add_argument("--shown", type=int, default=FRAMES_SHOWN, help="how many functions")
    arguments = parser.parse_args()
    arguments.at = [Path(root).resolve() for root in arguments.at or ["."]]
    with tempfile.TemporaryDirectory(prefix="coordinator-bench-") as directory:
        asyncio.run(measure(arguments, Path(directory)))


if __name__ == "__main__":
    main()
