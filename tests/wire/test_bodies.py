"""Bodies that come in part or wait to be read: their bytes are bounded, in all and by client."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from coordinator.errors import ThrottledError
from coordinator.wire.routes.bodies import HeavyWork, body_places


async def test_bytes_that_wait_are_bounded() -> None:
    """Those of a body that was read make room for others, whatever it came to."""
    heavy, may_go_on, done = HeavyWork(body_places(200, 40)), threading.Event(), list[str]()

    def work(name: str) -> None:
        assert may_go_on.wait(10)
        done.append(name)
        if name == "bad":
            raise ValueError(name)

    try:
        waiting = [
            asyncio.ensure_future(heavy.run(lambda: work("bad"), 60, "one")),
            asyncio.ensure_future(heavy.run(lambda: work("good"), 40, "one")),
        ]
        await asyncio.sleep(0)
        with pytest.raises(ThrottledError, match=r"of one client .one. .* found 100 and 1 more"):
            await heavy.run(lambda: work("one too many"), 1, "one")
        may_go_on.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], ValueError)
        await heavy.run(lambda: work("as many again"), 100, "one")
    finally:
        may_go_on.set()
        heavy.close()

    assert done == ["bad", "good", "as many again"]


async def test_a_client_that_has_gone_makes_room() -> None:
    """What was not begun for it is not begun any more."""
    heavy, may_go_on, done = HeavyWork(body_places(200, 40)), threading.Event(), list[str]()
    try:
        first = asyncio.ensure_future(
            heavy.run(lambda: done.append(str(may_go_on.wait(10))), 50, "one")
        )
        gone = asyncio.ensure_future(heavy.run(lambda: done.append("gone"), 50, "one"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        last = asyncio.ensure_future(heavy.run(lambda: done.append("last"), 50, "one"))
        await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(first, last)
    finally:
        may_go_on.set()
        heavy.close()

    assert done == ["True", "last"]


async def test_what_is_not_waited_for_takes_no_memory() -> None:
    """Else who sends bodies and goes away could fill it: their bytes are counted no more."""

    class Body:
        """The bytes of one."""

        def read(self) -> None:
            raise AssertionError("nobody waits for it")

    heavy, may_go_on, body = HeavyWork(body_places(200, 40)), threading.Event(), Body()
    kept = weakref.ref(body)
    try:
        first = asyncio.ensure_future(heavy.run(lambda: may_go_on.wait(10), 50, "one"))
        gone = asyncio.ensure_future(heavy.run(body.read, 50, "one"))
        del body
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait({gone})
        del gone  # its error holds on to its frames
        gc.collect()
        assert kept() is None
        may_go_on.set()
        await first
    finally:
        may_go_on.set()
        heavy.close()


def test_one_client_takes_no_room_from_another() -> None:
    """However much it wants; nor do a few that all want as much as they get."""
    held = body_places(1_000, 40)
    for number in range(4):
        client = f"greedy {number}"
        while held.held_by(client) + 10 <= max(1_000 - held.total - 10, 40):
            held.take(client, 10)
        with pytest.raises(ThrottledError, match=f"of one client .{client}. "):
            held.take(client, 10)
    assert held.held_by("greedy 0") == 500, "alone it has half"
    held.take("new", 40)
    with pytest.raises(ThrottledError):
        held.take("new", 10)
    for number in range(4):
        held.give_back(f"greedy {number}", held.held_by(f"greedy {number}"))
    held.give_back("new", 40)

    assert (held.total, held._by_client) == (0, {})


def test_all_clients_together_are_bounded() -> None:
    """Of those that hold one body at most, too: nothing that is refused is counted."""
    held = body_places(100, 40)
    for number in range(10):
        held.take(f"client {number}", 10)
    with pytest.raises(ThrottledError, match="found 100 and 1 more"):
        held.take("client 1", 1)

    assert held.total == 100
