"""Tables that a member keeps beside the state: none grows, or is given up, in one long step."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.clock import ManualClock
from coordinator.node.build import is_compiled
from coordinator.service.locks.denials import Denials
from coordinator.service.locks.hold_times import HoldTimes, LockClasses
from coordinator.service.sessions.hold_timers import HoldTimers
from coordinator.service.writes.reaper import Reaper
from coordinator.state.tree import IdleZnode
from tests.loop_meter import HELD_MS_MAX, fixed_work_speed
from tests.service.contexts import context_of

MANY = 700_000
"""A plain dict moves to another table at 699,051 keys, which takes up to 95 ms."""

TRIES = 3

Table = tuple[Callable[[int], object], Callable[[], object]]
"""What adds the n-th key, and what gives all of them up."""


def idle_znodes(clock: ManualClock) -> Table:
    machine = SimpleNamespace(idle=lambda path: IdleZnode(path, mzxid=1, pzxid=1, ttl_ms=60_000))
    reaper = Reaper(context_of(clock, SimpleNamespace(machine=machine)))  # type: ignore[arg-type]
    return lambda number: reaper._note(f"/queues/{number:09}"), reaper.stop


def bounded_holds(clock: ManualClock) -> Table:
    machine = SimpleNamespace(locks=SimpleNamespace(contender_paths=list, closings=list))
    timers = HoldTimers(context_of(clock, SimpleNamespace(machine=machine)))  # type: ignore[arg-type]

    def start(number: int) -> None:
        path = f"/locks/{number:09}/lock-0000000001"
        clock.advance(number % 2)
        timers._start_hold(holder_at(path, number))

    return start, timers.stop


def holds(clock: ManualClock) -> Table:
    locks = SimpleNamespace(
        record=lambda path: holder_at(path, 1), directories=list, directories_to_take=list
    )
    context = context_of(clock, SimpleNamespace(machine=SimpleNamespace(locks=locks)))  # type: ignore[arg-type]
    classes = LockClasses()
    times = HoldTimes(context, classes, Denials(clock))

    def hold(number: int) -> None:
        times._hold(f"/locks/{number:09}/lock-0000000001", number, is_whole=True)

    return hold, times.on_restore


def holder_at(path: str, czxid: int) -> Any:
    return SimpleNamespace(
        path=path, czxid=czxid, session_id=f"s{czxid % 1_000}", max_hold_ms=60_000, group=(),
        extensions=0,
    )  # fmt: skip


def long_steps_ms(made: Callable[[ManualClock], Table]) -> dict[str, float]:
    """Return the steps to add one of many keys that took long, and how long to give all up.

    In ms of this thread's processor time, as of a processor that does nothing else."""
    act, give_up = made(ManualClock())
    long_s: dict[str, float] = {}
    for number in range(MANY):
        began = time.thread_time()
        act(number)
        took_s = time.thread_time() - began
        if took_s > 0.001:
            long_s[f"key {number}"] = took_s
    began = time.thread_time()
    give_up()
    long_s["give up"] = time.thread_time() - began
    speed = fixed_work_speed()
    return {step: took_s * 1_000 / speed for step, took_s in long_s.items()}


@pytest.mark.check
@pytest.mark.skipif(is_compiled(), reason="compiled parts take no replica but a real one")
@pytest.mark.parametrize("made", [idle_znodes, bounded_holds, holds])
async def test_no_key_of_many_takes_long(
    made: Callable[[ManualClock], Table], request: pytest.FixtureRequest
) -> None:
    """By the processor's clock; so is the end of all of them, at the next leader's beginning.

    What a table does is as long each time. What the system does meanwhile, as to find memory, is
    not, and hits another step each time: so the least of a few tries counts for each step."""
    gc.disable()  # a member collects by other rules (garbage.py)
    request.addfinalizer(gc.enable)
    least_ms = long_steps_ms(made)
    for _ in range(1, TRIES):
        if max(least_ms.values()) <= HELD_MS_MAX:
            break
        await asyncio.sleep(0)
        again_ms = long_steps_ms(made)
        least_ms = {
            step: min(took_ms, again_ms.get(step, 0.0)) for step, took_ms in least_ms.items()
        }

    assert {step: took_ms for step, took_ms in least_ms.items() if took_ms > HELD_MS_MAX} == {}
    await asyncio.sleep(0)
