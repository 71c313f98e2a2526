"""What the door cleans up behind clients that have gone: until it is done, or the door closes."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import (
    CoordinatorError,
    NotOwnerError,
    OutcomeUnknownError,
    ShuttingDownError,
    ThrottledError,
)
from coordinator.node.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.routes.door import Door
from tests.client.virtual_time import LoopClock, run

HTTP = HttpConfig(request_deadline_ms=5_000, connections_max=2)


class Undo:
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
def test_what_was_refused_for_a_moment_is_done_again(is_lasting: bool) -> None:
    """Too much was under way, and then nobody knew."""

    async def scene() -> None:
        undo, front = Undo(ThrottledError("too much"), OutcomeUnknownError("who knows")), door()

        front.clean_up.begin(undo, "clean up", is_lasting=is_lasting)
        await front.finish()

        assert undo.count == 3

    run(scene())


def test_only_a_lasting_clean_up_goes_on_beyond_a_request_s_time() -> None:
    """A client with a request number may have gone on elsewhere since."""

    async def scene() -> None:
        front = door()
        undo, lasting = (Undo(then=ThrottledError("too much")) for _ in range(2))

        front.clean_up.begin(undo, "clean up", is_lasting=False)
        front.clean_up.begin(lasting, "clean up", is_lasting=True)
        await asyncio.sleep(60)

        assert undo.count == 5
        assert lasting.count == 60
        front.close()
        await front.finish()

    run(scene())


def test_a_door_that_closes_waits_for_no_further_try() -> None:
    """Settling ends as soon as what runs has ended."""

    async def scene() -> None:
        front, undo = door(), Undo(then=ThrottledError("too much"))
        front.clean_up.begin(undo, "clean up", is_lasting=True)
        await asyncio.sleep(10.5)
        count, began = undo.count, asyncio.get_running_loop().time()

        front.close()
        front.clean_up.begin(undo, "clean up", is_lasting=True)
        await front.finish()

        assert asyncio.get_running_loop().time() == began
        assert undo.count == count + 1

    run(scene())


@pytest.mark.parametrize("error", [NotOwnerError("gone"), ShuttingDownError("this member stops")])
def test_what_cannot_succeed_is_not_done_again(error: CoordinatorError) -> None:
    """It is answered for good, or this member never will do it."""

    async def scene() -> None:
        front, undo = door(), Undo(error)

        front.clean_up.begin(undo, "clean up", is_lasting=True)
        await front.finish()

        assert undo.count == 1

    run(scene())


def test_lasting_clean_ups_are_bounded() -> None:
    """Beyond as many as there may be connections, they last as long as a request."""

    async def scene() -> None:
        front, clean_ups = door(), [Undo(then=ThrottledError("too much")) for _ in range(4)]

        for each in clean_ups:
            front.clean_up.begin(each, "clean up", is_lasting=True)
        await asyncio.sleep(30)

        assert [each.count > 5 for each in clean_ups] == [True, True, False, False]
        front.close()
        await front.finish()

    run(scene())
