"""Years of a daily job: crashes, lost answers, stepped clocks, daylight saving time, new leaders.

``python -m tests.recipes.job_days --days 10000``: each day is 24 h of a member's clocks, in which
a few hosts come, late or early, with clocks of their own, some of which die on the way. At a change
of leader (of its clock, which is all that a job sees of it) the time may step by up to 20 hours
either way. Each run writes its day in the command that says "done"; at the end each day that began
must be there once, none beside them, and the tokens must grow.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from typing import Any

from coordinator.client import AsyncClient, Create
from coordinator.errors import CoordinatorError
from coordinator.node.config import Config
from coordinator.recipes import Job, Jobs, Run
from coordinator.recipes.jobs.schedule import Schedule
from coordinator.wire.http.app import create_app
from tests.client.memory_cluster import LEFT, RIGHT, MemoryCluster, Network
from tests.client.virtual_time import LoopClock, run
from tests.met import Met

DAY_MS = 86_400_000
SCHEDULE = {"every": "1d", "at": "02:30", "tz": "Europe/Berlin"}


class Leader(LoopClock):
    """The clock of whoever leads: ``step_ms`` from the truth."""

    step_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.step_ms


class Host(LoopClock):
    """The clock of a host: it goes with the truth, and is wrong by some hours."""

    def __init__(self, truth: LoopClock, wrong_ms: int) -> None:
        super().__init__(asyncio.get_running_loop())
        self._truth = truth
        self._wrong_ms = wrong_ms

    def monotonic_ms(self) -> int:
        return self._truth.monotonic_ms()

    def wall_ms(self) -> int:
        return LoopClock.wall_ms(self._truth) + self._wrong_ms

    def boot_id(self) -> str:
        return f"host-{self._wrong_ms}"


class Years:
    """One world of many days."""

    def __init__(self, seed: int, guarantee: str) -> None:
        self.random = random.Random(seed)
        self.met = Met()
        self.clock = Leader(asyncio.get_running_loop())
        self.world = MemoryCluster(self.clock)
        self.options: dict[str, Any] = {
            **SCHEDULE,
            "guarantee": guarantee,
            "catch_up": "all" if guarantee == "at_least_once" else "last",
            "attempts_max": 1_000_000,
            "history": 5,
        }
        self.done: list[tuple[int, int]] = []
        """The start of the interval, and the token, of each work that came to its end."""
        self.begun: list[int] = []
        self._dead = 0
        self._doors = {
            url: create_app(self.world.member, Config().http, self.clock) for url in (LEFT, RIGHT)
        }

    async def run(self, days: int) -> None:
        """Let so many days pass, then a calm one; judge them."""
        await self.world.member.start()
        try:
            for day in range(days):
                await self._day()
                if day % 100 == 99 and sys.stderr.isatty():
                    print(day + 1, "days", file=sys.stderr)
            self.clock.step_ms = 0
            self.clock.paused_ms += 2 * DAY_MS  # beyond any step that was forward
            await self._host(0.0)
            self.clock.paused_ms += DAY_MS
            await self._host(0.0)
            await self._judge()
        finally:
            await self.world.member.stop()

    async def _day(self) -> None:
        source = self.random
        if source.random() < 0.1:
            self.clock.step_ms = source.choice(
                [0, 0, -72_000_000, -5_000, 700, 3_600_000, 72_000_000]
            )
            self.met["leaders"] += 1
        before_ms = self.clock.monotonic_ms()
        hosts = [asyncio.create_task(self._host(0.25)) for _ in range(source.choice([1, 2, 2, 3]))]
        await asyncio.gather(*hosts)
        if self._dead:
            self._dead = 0
            await asyncio.sleep(4)  # their sessions end
        if source.random() < 0.03:
            self.met["days off"] += 1
            self.clock.paused_ms += 3 * DAY_MS
        passed_ms = self.clock.monotonic_ms() - before_ms
        self.clock.paused_ms += DAY_MS - passed_ms % DAY_MS

    async def _host(self, danger: float) -> None:
        """One host comes, as its cron starts it; it may die, or lose answers."""
        source = self.random
        network = Network(self._doors)
        if danger:
            await asyncio.sleep(source.choice([0, 0, 0.01, 1, 3]))
            if source.random() < danger:
                network.loses_reply_of = lambda _: source.random() < 0.1
                self.met["losing"] += 1
        clock = Host(self.clock, source.choice([0, 0, -4, 9]) * 3_600_000)

        async def life() -> None:
            async with self.world.client(
                network, session_timeout=2, timeout=20, clock=clock
            ) as client:
                try:
                    await Job(client, "daily", timeout=30, **self.options).run(self._work(client))
                except (CoordinatorError, RuntimeError) as error:
                    self.met[type(error).__name__] += 1

        task = asyncio.create_task(life())
        if source.random() < danger:
            await asyncio.sleep(source.choice([0.001, 0.01, 0.05, 0.2, 0.6]) * source.random())
            if not task.done():
                self.met["killed"] += 1
                self._dead += 1
                network.is_cut = True
                task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    def _work(self, client: AsyncClient) -> Any:
        async def work(run: Run[AsyncClient]) -> None:
            self.begun.append(run.start_ms)
            run.also(Create(f"/done/{run.start_ms}", b"", parents="persistent"))
            await asyncio.sleep(self.random.choice([0, 0, 0.02, 0.5]))
            if self.random.random() < 0.05:
                self.met["failed"] += 1
                raise RuntimeError("the work fails")
            self.done.append((run.start_ms, run.fencing_token))
            self.met["again"] += run.attempt > 1

        return work

    async def _judge(self) -> None:
        schedule = Schedule.of(**SCHEDULE)
        async with self.world.client() as observer:
            names: list[str] = []
            after: str | None = None
            while True:
                page = await observer.children("/done", after=after)
                names += page.names
                if (after := page.next) is None:
                    break
            view = await Jobs(observer).look("daily")
        assert view is not None
        found = sorted(int(each) for each in names)
        expected = [found[0]]
        while (following := schedule.next(expected[-1])) <= schedule.latest(self.clock.wall_ms()):
            expected.append(following)
        self.met["days"] = len(expected)
        self.met["twice begun"] = len(self.begun) - len(set(self.begun))
        assert not set(found) - set(expected), "a run of an interval that did not begin"
        if self.options["guarantee"] == "at_least_once":
            assert found == expected, "each day once"
            assert view.ledger.settled_ms == expected[-1]
        else:
            assert self.met["twice begun"] == 0, "at most once"
            self.met["lost"] = len(expected) - len(found)
        tokens = [token for _, token in sorted(self.done, key=lambda each: each[1])]
        assert [start for start, _ in sorted(self.done, key=lambda each: each[1])] == sorted(
            start for start, _ in self.done
        ), "tokens grow with the intervals"
        assert len(set(tokens)) == len(tokens) or self.options["catch_up"] == "all"
        assert len(view.runs) <= 5


def years(seed: int, days: int, guarantee: str = "at_least_once") -> Met:
    """Run a world of so many days."""

    async def main() -> Met:
        made = Years(seed, guarantee)
        await made.run(days)
        return made.met

    return run(main())


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guarantee", choices=["at_least_once", "at_most_once"])
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # the leases begin again in full each day
    both = ("at_least_once", "at_most_once")
    for guarantee in both if options.guarantee is None else (options.guarantee,):
        began = time.monotonic()
        met = years(options.seed, options.days, guarantee)
        text = ", ".join(f"{name} {count}" for name, count in sorted(met.items()))
        print(f"{guarantee}: {text} ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
