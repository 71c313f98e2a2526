"""The loop under a simulated world: time that jumps, processes that pause and die whole."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.loop import (
    BEGINNING_S,
    NothingWillHappenError,
    OwnClock,
    Owner,
    TimeStandsStillError,
    run,
)


def test_time_passes_only_by_waiting() -> None:
    """An hour takes no time, and ends when it should."""

    async def main() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    assert run(main()) == BEGINNING_S + 3_600


def test_timers_of_one_instant_run_in_the_order_in_which_they_were_set() -> None:
    """Not in an order of the heap's own."""

    async def main() -> list[int]:
        loop, order = asyncio.get_running_loop(), list[int]()
        for number in range(50):
            loop.call_at(BEGINNING_S + 1, order.append, number)
        await asyncio.sleep(2)
        return order

    assert run(main()) == list(range(50))


def test_a_paused_process_runs_nothing_until_it_is_resumed() -> None:
    """Neither its timers nor its tasks run; then all of them do, and its clock went on."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        owner, ticks = Owner("paused"), list[float]()

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append(loop.time() - BEGINNING_S)

        owner.spawn(tick())
        await asyncio.sleep(2.5)
        owner.pause()
        await asyncio.sleep(5)
        owner.resume()
        await asyncio.sleep(1.5)
        return ticks

    assert run(main()) == [1.0, 2.0, 7.5, 8.5]


def test_a_killed_process_cleans_nothing_up() -> None:
    """What it was about to do never happens, not even in its finally."""

    async def main() -> list[str]:
        owner, deeds = Owner("killed"), list[str]()

        async def work() -> None:
            try:
                deeds.append("begun")
                await asyncio.sleep(1)
                deeds.append("done")
            finally:
                deeds.append("cleaned up")

        owner.spawn(work())
        await asyncio.sleep(0.5)
        owner.kill()
        owner.resume()
        await asyncio.sleep(5)
        return list(deeds)

    assert run(main()) == ["begun"]


def test_at_the_end_of_the_world_a_killed_process_does_nothing_but_end() -> None:
    """Its tasks are ended; a timer of it, which might write to its disk, is dropped."""
    deeds = list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(3)
        finally:
            deeds.append("ended")

    async def main() -> None:
        owner = Owner("killed")
        owner.spawn(work())
        owner.at(BEGINNING_S + 2, deeds.append, "timer")
        await asyncio.sleep(1)
        owner.kill()
        await asyncio.sleep(4)

    run(main())

    assert deeds == ["ended"]


def test_a_task_belongs_to_the_process_that_started_it() -> None:
    """Also one that was started by a task of that process."""

    async def main() -> list[str]:
        owner, deeds = Owner("parent"), list[str]()

        async def child() -> None:
            await asyncio.sleep(2)
            deeds.append("child")

        async def parent() -> None:
            _keep.append(asyncio.create_task(child()))

        _keep: list[asyncio.Task[None]] = []
        owner.spawn(parent())
        await asyncio.sleep(1)
        owner.kill()
        await asyncio.sleep(5)
        return list(deeds)

    assert run(main()) == []


def test_a_world_in_which_nothing_can_happen_ends() -> None:
    """It is an error, not a hang."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingWillHappenError):
        run(main())


def test_a_world_in_which_time_stands_still_ends() -> None:
    """Whoever asks for the next pass again and again is stopped, though it would never end."""

    async def main() -> None:
        def again() -> None:
            asyncio.get_running_loop().call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(TimeStandsStillError, match=r"at 1000\.0000 s"):
        run(main())


def test_clocks_run_at_their_own_rate() -> None:
    """One percent fast is one percent ahead; the wall clock jumps alone."""

    async def main() -> tuple[int, int]:
        clock = OwnClock(asyncio.get_running_loop(), 1.01, 0)
        began_ms = clock.monotonic_ms()
        await asyncio.sleep(100)
        passed_ms = clock.monotonic_ms() - began_ms
        clock.wall_offset_ms -= 50_000
        return passed_ms, clock.monotonic_ms() - began_ms

    assert run(main()) == (101_000, 101_000)
