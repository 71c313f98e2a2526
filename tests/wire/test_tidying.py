"""What the door tidies up behind clients that have gone: until it is done, or the door closes."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.config import Config, HttpConfig
from coordinator.errors import (
    CoordinatorError,
    NotOwnerError,
    OutcomeUnknownError,
    ShuttingDownError,
    ThrottledError,
)
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.routes.door import Door
from tests.client.virtual_time import LoopClock, run

HTTP = HttpConfig(request_deadline_ms=5_000, connections_max=2)


class Chore:
    """Fails with ``errors``, one after the other, and ``then`` for ever."""

    def __init__(self, *errors: CoordinatorError, then: CoordinatorError | None = None) -> None:
        self._errors = list(errors)
        self._then = then
        self.count = 0

    async def __call__(self, _deadline_ms: int) -> None:
        self.count += 1
        error = self._errors.pop(0) if self._errors else self._then
        if error is not None:
            raise error


def door() -> Door:
    clock = LoopClock(asyncio.get_running_loop())
    return Door(Member(Config(), LoopbackEngine(), clock), HTTP, clock)


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_chore_that_was_refused_for_a_moment_is_done_again(is_lasting: bool) -> None:
    """Too much was under way, and then nobody knew."""

    async def scene() -> None:
        chore, front = Chore(ThrottledError("too much"), OutcomeUnknownError("who knows")), door()

        front.spawn(chore, "tidy", is_lasting=is_lasting)
        await front.settle()

        assert chore.count == 3

    run(scene())


def test_only_a_lasting_chore_goes_on_beyond_a_request_s_time() -> None:
    """A client with a request number may have gone on elsewhere since."""

    async def scene() -> None:
        front = door()
        chore, lasting = (Chore(then=ThrottledError("too much")) for _ in range(2))

        front.spawn(chore, "tidy", is_lasting=False)
        front.spawn(lasting, "tidy", is_lasting=True)
        await asyncio.sleep(60)

        assert chore.count == 5
        assert lasting.count == 60
        front.close()
        await front.settle()

    run(scene())


def test_a_door_that_closes_waits_for_no_further_try() -> None:
    """Settling ends as soon as what runs has ended."""

    async def scene() -> None:
        front, chore = door(), Chore(then=ThrottledError("too much"))
        front.spawn(chore, "tidy", is_lasting=True)
        await asyncio.sleep(10.5)
        count, began = chore.count, asyncio.get_running_loop().time()

        front.close()
        front.spawn(chore, "tidy", is_lasting=True)
        await front.settle()

        assert asyncio.get_running_loop().time() == began
        assert chore.count == count + 1

    run(scene())


@pytest.mark.parametrize("error", [NotOwnerError("gone"), ShuttingDownError("this member stops")])
def test_what_cannot_succeed_is_not_done_again(error: CoordinatorError) -> None:
    """It is answered for good, or this member never will do it."""

    async def scene() -> None:
        front, chore = door(), Chore(error)

        front.spawn(chore, "tidy", is_lasting=True)
        await front.settle()

        assert chore.count == 1

    run(scene())


def test_lasting_chores_are_bounded() -> None:
    """Beyond as many as there may be connections, they last as long as a request."""

    async def scene() -> None:
        front, chores = door(), [Chore(then=ThrottledError("too much")) for _ in range(4)]

        for each in chores:
            front.spawn(each, "tidy", is_lasting=True)
        await asyncio.sleep(30)

        assert [each.count > 5 for each in chores] == [True, True, False, False]
        front.close()
        await front.settle()

    run(scene())
