"""The turns of handshakes, by address: a crowd behind one address delays nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter

from coordinator.tls.handshakes import BURST_S, SHARE, Handshakes


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes by what is done in it, and goes to the next timer when idle."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def skip(self) -> None:
        due_s = [each.when() for each in self._scheduled]
        self.now_s = max([self.now_s, *sorted(due_s)[:1]])


class Work:
    """A handshake that takes ``took_s``, and notes when it was done."""

    def __init__(self, loop: VirtualLoop, address: str, took_s: float) -> None:
        self.address = address
        self._loop, self._took_s = loop, took_s
        self.done_s: float | None = None

    def shake(self) -> None:
        self._loop.now_s += self._took_s
        self.done_s = self._loop.now_s

    def fail(self, error: Exception) -> None:
        raise error


def played(loop: VirtualLoop, works: list[Work]) -> None:
    """Let each take its turn, until all are done."""
    handshakes = Handshakes(1_000)

    async def play() -> None:
        for each in works:
            handshakes.take_turn(each)
        while any(each.done_s is None for each in works):
            await asyncio.sleep(0)
            if not handshakes._due:
                loop.skip()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    assert not handshakes._waiting


def test_a_crowd_of_one_address_delays_nobody_else() -> None:
    """It has a burst at once, and then a tenth of the time; another caller goes ahead of it."""
    loop = VirtualLoop()
    crowd = [Work(loop, "10.0.0.1", 0.003) for _ in range(500)]
    other = Work(loop, "10.0.0.2", 0.003)
    played(loop, [*crowd, other])

    assert other.done_s is not None
    done = sorted(each.done_s or 0.0 for each in crowd)
    assert other.done_s <= BURST_S + 0.1
    assert done[-1] >= SHARE * (500 * 0.003 - BURST_S) - 0.1
    assert [each.done_s for each in crowd] == done, "in their order"


def test_few_handshakes_wait_for_nobody() -> None:
    """Programs that start together behind one address have a burst."""
    loop = VirtualLoop()
    works = [Work(loop, "10.0.0.1", 0.001) for _ in range(150)]
    played(loop, works)

    assert max(each.done_s or 0.0 for each in works) < 0.16


def test_what_has_no_address_is_not_counted() -> None:
    """A client's own connections, and those of members, which their port counts otherwise."""
    loop = VirtualLoop()
    works = [Work(loop, "", 0.003) for _ in range(300)]
    played(loop, works)

    assert Counter(each.done_s is not None for each in works) == {True: 300}
    assert max(each.done_s or 0.0 for each in works) < 300 * 0.003 + 0.01
