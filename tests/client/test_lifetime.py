"""What a caller does while its session lives is ended with the session, and nothing else is."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Session
from coordinator.errors import SessionExpiredError
from tests.client.memory_cluster import MemoryCluster, in_memory


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _end(session: Session) -> None:
    session.note_end(SessionExpiredError("it has ended", session_id=session.session_id))


@in_memory
async def test_the_end_of_the_session_ends_the_work_and_not_its_task(world: MemoryCluster) -> None:
    """The task goes on after it, and is not cancelled at its next wait."""
    async with world.client() as client:
        session = await client.session()
        asyncio.get_running_loop().call_later(1, _end, session)

        with pytest.raises(SessionExpiredError):
            await session.while_alive(_for_ever())

        await asyncio.sleep(1)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@in_memory
async def test_work_that_finds_the_end_itself_is_not_cancelled_later(world: MemoryCluster) -> None:
    """It notes the end and returns at once: there is nothing left to cancel."""
    async with world.client() as client:
        session = await client.session()

        async def work() -> str:
            _end(session)
            return "done"

        assert await session.while_alive(work()) == "done"
        await asyncio.sleep(1)


@in_memory
async def test_of_a_session_that_has_ended_no_work_goes_on(world: MemoryCluster) -> None:
    """It ends at its first wait."""
    async with world.client() as client:
        session = await client.session()
        _end(session)

        with pytest.raises(SessionExpiredError):
            await session.while_alive(_for_ever())


@pytest.mark.parametrize("is_first", [True, False])
@in_memory
async def test_a_cancellation_beside_the_end_of_the_session_is_a_cancellation(
    world: MemoryCluster, is_first: bool
) -> None:
    """Whichever comes first in one pass of the loop: the caller's own is never swallowed."""
    async with world.client() as client:
        session = await client.session()
        working = asyncio.create_task(session.while_alive(_for_ever()))
        await asyncio.sleep(0.1)
        if is_first:
            working.cancel()
        _end(session)
        await asyncio.sleep(0)
        if not is_first:
            working.cancel()

        await asyncio.wait({working})

        assert working.cancelled()
