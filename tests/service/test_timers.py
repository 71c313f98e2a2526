"""Timers: never before their time on the clock, and woken by the loop when nobody ticks."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.clock import ManualClock, SystemClock
from coordinator.service.base.timers import NOT_BEFORE_LONG_MS, Deadline, Timers
from tests.service.fake_cluster import settle, soon


async def test_a_callback_fires_at_its_time_and_not_before() -> None:
    """Decided by the clock, to the millisecond, when the test ticks."""
    clock, fired = ManualClock(), list[str]()
    timers = Timers(clock)
    timers.at(105, lambda: fired.append("b"))
    timers.at(101, lambda: fired.append("a"))
    cancelled = timers.at(103, lambda: fired.append("never"))
    cancelled.cancel()

    timers.tick(100)
    assert fired == []
    timers.tick(104)
    assert fired == ["a"]
    timers.tick(105)

    assert fired == ["a", "b"]
    timers.close()


async def test_a_callback_may_cancel_another_that_is_due() -> None:
    """Whoever was cancelled by an earlier one does not fire."""
    clock, fired = ManualClock(), list[str]()
    timers = Timers(clock)
    timers.at(10, lambda: second.cancel())
    second = timers.at(10, lambda: fired.append("never"))

    timers.tick(10)

    assert fired == []
    timers.close()


async def test_a_period_goes_on_until_closed() -> None:
    """One call for each interval that is ticked; none after close."""
    clock, seen = ManualClock(), list[int]()
    timers = Timers(clock)
    timers.every(100, seen.append)
    for _ in range(3):
        clock.advance(100)
        timers.tick(clock.monotonic_ms())
    timers.close()
    clock.advance(100)
    timers.tick(clock.monotonic_ms())

    assert seen == [100, 200, 300]


async def test_a_deadline_ends_a_wait_and_only_that() -> None:
    """TimeoutError inside the scope; a wait that ended before is left alone."""
    clock = ManualClock()
    timers = Timers(clock)

    async def waits() -> str:
        async with timers.deadline(100):
            await asyncio.Event().wait()
        return "never"

    waiting = asyncio.create_task(waits())
    await settle()
    async with timers.deadline(100):
        pass
    clock.advance(100)
    timers.tick(100)

    with pytest.raises(TimeoutError):
        await soon(waiting)
    timers.close()


async def test_a_cancellation_from_outside_passes_through_a_deadline() -> None:
    """It is not mistaken for the deadline."""
    timers = Timers(ManualClock())

    async def waits() -> None:
        async with timers.deadline(100):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(waits())
    await settle()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    timers.close()


async def test_a_running_loop_looks_by_itself() -> None:
    """With the clock of the machine nobody has to tick; also for a time that has passed."""
    clock = SystemClock()
    timers = Timers(clock)

    await soon(timers.sleep_until(clock.monotonic_ms() + 20))
    await soon(timers.sleep_until(clock.monotonic_ms() - 20))

    timers.close()


async def test_the_loop_is_asked_to_look_once_for_each_period() -> None:
    """Not also a millisecond after each: an idle member would be woken three times as often."""
    clock, fired = ManualClock(), list[int]()
    timers = Timers(clock)
    for _ in range(4):
        timers.every(100, fired.append)

    for number in range(1, 4):
        clock.advance(100)
        timers._look_now()

        assert len(fired) == 4 * number
        assert timers._look_bucket == (clock.monotonic_ms() + 100) // 10
    timers.close()


async def test_a_period_is_paused_and_goes_on_in_step_and_may_say_when_it_is_needed() -> None:
    """Nothing is called while it is paused, or before the time that the callback named."""
    clock, seen = ManualClock(), list[int]()
    timers = Timers(clock)

    def called(now_ms: int) -> int | None:
        seen.append(now_ms)
        return 750 if now_ms == 500 else None

    period = timers.every(100, called)
    for until_ms in range(10, 1_001, 10):
        clock.advance(10)
        if until_ms == 250:
            period.pause()
        if until_ms == 430:
            period.go_on()
            period.go_on()
        timers.tick(clock.monotonic_ms())
    timers.close()

    assert seen == [100, 200, 500, 800, 900, 1_000]


async def test_a_period_that_goes_on_forgets_when_it_was_needed_before_its_pause() -> None:
    """Another leadership has other work: it is asked at the next time in step."""
    clock, seen = ManualClock(), list[int]()
    timers = Timers(clock)

    def called(now_ms: int) -> int:
        seen.append(now_ms)
        return now_ms + NOT_BEFORE_LONG_MS

    period = timers.every(100, called)
    for until_ms in range(10, 1_001, 10):
        clock.advance(10)
        timers.tick(clock.monotonic_ms())
        if until_ms in (230, 500, 900):
            period.pause()
        if until_ms in (430, 500, 900):
            period.go_on()
    timers.close()

    assert seen == [100, 500, 600, 1_000]


async def test_a_period_is_called_earlier_if_it_is_needed_and_never_later() -> None:
    """In step with the times before, or at once; not while it is paused."""
    clock, seen = ManualClock(), list[int]()
    timers = Timers(clock)

    def called(now_ms: int) -> int:
        seen.append(now_ms)
        return now_ms + NOT_BEFORE_LONG_MS

    period = timers.every(100, called)
    for until_ms in range(10, 1_001, 10):
        clock.advance(10)
        timers.tick(clock.monotonic_ms())
        if until_ms == 150:
            period.need_by(310)
            period.need_by(5_000)
        if until_ms == 500:
            period.need_by(0)
        if until_ms == 700:
            period.pause()
            period.need_by(800)
    timers.close()

    assert seen == [100, 400, 510]


async def test_a_deadline_that_is_cut_before_it_begins_ends_what_goes_on_inside() -> None:
    """Nothing is lost between the cut and the first step of the task."""
    scope = Deadline()
    scope.cut()

    with pytest.raises(TimeoutError):
        async with scope:
            await asyncio.sleep(3_600)

    assert scope.is_expired


async def test_a_deadline_that_is_cut_after_its_end_does_nothing() -> None:
    scope = Deadline()
    async with scope:
        pass

    scope.cut()
    await asyncio.sleep(0)

    assert not scope.is_expired
