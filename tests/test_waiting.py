"""Turns: one after the other, no two in one pass of the loop, whoever gives up."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from coordinator.waiting import OneByOne


async def passes_of(count: int, cancelled: tuple[int, ...] = ()) -> dict[int, int]:
    """Return in which pass of the loop each of so many callers goes on; some are cancelled."""
    turns, at, now = OneByOne(), {}, 0

    async def call(number: int) -> None:
        await turns.turn()
        at[number] = now

    tasks = [asyncio.create_task(call(number)) for number in range(count)]
    for number in range(3 * count + 5):
        await asyncio.sleep(0)
        now += 1
        if number == 1:
            for each in cancelled:
                tasks[each].cancel()
    assert [each.cancelled() for each in tasks] == [n in cancelled for n in range(count)]
    return at


async def test_each_goes_on_in_a_pass_for_itself() -> None:
    """In the order in which they came."""
    at = await passes_of(20)

    assert list(at) == list(range(20))
    assert len(set(at.values())) == 20


@pytest.mark.parametrize("cancelled", [(5,), (2, 3, 4), (19,), tuple(range(4, 20))])
async def test_who_gives_up_holds_nobody_up(cancelled: tuple[int, ...]) -> None:
    """Wherever it stands in the line."""
    at = await passes_of(20, cancelled)

    assert list(at) == [each for each in range(20) if each not in cancelled]
    assert len(set(at.values())) == len(at)


async def test_a_cancelled_turn_that_had_begun_is_passed_on() -> None:
    """Told to go on, and cancelled before it could."""
    turns = OneByOne()
    first, second, third = (asyncio.create_task(turns.turn()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()  # it waits for the next pass
    await asyncio.sleep(0)
    second.cancel()  # it was told in this one
    await asyncio.wait_for(third, 10)
    await asyncio.wait_for(turns.turn(), 10)


def test_turns_keep_no_loop_alive() -> None:
    """They may be kept for a loop that has ended."""
    turns = OneByOne()
    loop = asyncio.new_event_loop()

    async def both() -> None:
        await asyncio.gather(*[turns.turn() for _ in range(3)])

    loop.run_until_complete(both())
    gone = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None
