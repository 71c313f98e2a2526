"""Large bodies that wait to be read: their bytes are bounded, and what is refused was not begun."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator.errors import ThrottledError
from coordinator.wire.routes.bodies import HeavyWork


async def test_bytes_that_wait_are_bounded_and_one_body_is_always_taken() -> None:
    """Those of a body that was read make room for others, whatever it came to."""
    heavy, may_go_on, done = HeavyWork(100), threading.Event(), list[str]()

    def work(name: str) -> None:
        assert may_go_on.wait(10)
        done.append(name)
        if name == "bad":
            raise ValueError(name)

    try:
        waiting = [
            asyncio.ensure_future(heavy.run(lambda: work("bad"), 60)),
            asyncio.ensure_future(heavy.run(lambda: work("good"), 40)),
        ]
        await asyncio.sleep(0)
        with pytest.raises(ThrottledError, match="found 100 and 1 more"):
            await heavy.run(lambda: work("one too many"), 1)
        may_go_on.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], ValueError)
        await heavy.run(lambda: work("larger than all that may wait"), 1_000)
    finally:
        may_go_on.set()
        heavy.close()

    assert done == ["bad", "good", "larger than all that may wait"]


async def test_a_client_that_has_gone_makes_room() -> None:
    """What was not begun for it is not begun any more."""
    heavy, may_go_on, done = HeavyWork(100), threading.Event(), list[str]()
    try:
        first = asyncio.ensure_future(heavy.run(lambda: done.append(str(may_go_on.wait(10))), 50))
        gone = asyncio.ensure_future(heavy.run(lambda: done.append("gone"), 50))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        last = asyncio.ensure_future(heavy.run(lambda: done.append("last"), 50))
        await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(first, last)
    finally:
        may_go_on.set()
        heavy.close()

    assert done == ["True", "last"]
