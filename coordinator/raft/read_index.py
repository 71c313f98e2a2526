"""Linearizable reads on every member: an index that was committed after the question, applied here.

A leader that has applied the first entry of its term asks a quorum whether it still leads; a
follower asks the leader to do so. Whoever asks in one pass shares one round (``barrier``), and on a
follower one question. Then the member waits until that index is applied (Raft thesis, 6.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import NoLeaderError, NoSpaceError, OutcomeUnknownError, ShuttingDownError
from coordinator.raft.consensus import Consensus
from coordinator.raft.engine import Role
from coordinator.waiting import Waiters

READ_INDEX = "raft.read_index"
RETRY_MS = 10

Ask = Callable[[str, str, bytes], Awaitable[bytes]]


class ReadIndex:
    """The reads that wait on one member."""

    def __init__(
        self, member_id: str, *, timeout_ms: int, ask: Ask, wake: Callable[[], None]
    ) -> None:
        self._member_id = member_id
        self._timeout_ms = timeout_ms
        self._ask = ask
        self._wake = wake
        self._waiters = Waiters()
        self._asking: asyncio.Task[int] | None = None
        self._next_asking: asyncio.Task[int] | None = None

    async def barrier(self, running: Callable[[], Consensus]) -> int:
        """Return an index as the module says; NoLeaderError when none is had in time.

        ``running`` returns the member's consensus, or raises ShuttingDownError."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._timeout_ms / 1000
        while True:
            consensus = running()
            try:
                async with asyncio.timeout_at(give_up_at):
                    index = await self._index(consensus)
                    await self.wait_applied(consensus, index)
                    return index
            except (NoLeaderError, OutcomeUnknownError):
                pass  # a read may be asked again
            except TimeoutError:
                raise NoLeaderError("no quorum confirmed a leader in time") from None
            if loop.time() + RETRY_MS / 1000 >= give_up_at:
                raise NoLeaderError("no quorum confirmed a leader in time")
            await asyncio.sleep(RETRY_MS / 1000)

    async def confirm(self, consensus: Consensus) -> int:
        """Return the term in which a quorum confirmed, after the call, that this member leads."""
        term = consensus.core.term
        await self._join_round(consensus)
        if consensus.core.term != term or consensus.core.role is not Role.LEADER:
            raise NoLeaderError(f"member {self._member_id} does not lead any more")
        return term

    async def answer(self, consensus: Consensus) -> bytes:
        """Answer a follower's question."""
        packed: bytes = msgpack.packb(await self._join_round(consensus))
        return packed

    async def wait_applied(self, consensus: Consensus, index: int) -> None:
        if consensus.core.applied_index >= index:
            return
        if consensus.is_out_of_reach(index):
            raise NoSpaceError(
                f"the disk of member {self._member_id} is full, and entry {index} is not on it"
            )
        await self._waiters.until(index)

    def on_applied(self, applied_index: int) -> None:
        self._waiters.on_reached(applied_index)

    def fail(self, error: ShuttingDownError) -> None:
        """The member stops."""
        self._waiters.wake_all(lambda: ShuttingDownError(error.message))

    async def _join_round(self, consensus: Consensus) -> int:
        if not consensus.is_leader_ready:
            raise NoLeaderError(f"member {self._member_id} does not lead")
        joined = consensus.rounds.join()
        self._wake()
        return await asyncio.shield(joined)

    async def _index(self, consensus: Consensus) -> int:
        if consensus.core.role is Role.LEADER:
            return await self._join_round(consensus)
        return await asyncio.shield(self._next_question(consensus))

    def _next_question(self, consensus: Consensus) -> asyncio.Task[int]:
        """Return the question that is asked next; one that is under way began too early."""
        if self._next_asking is None:
            task = asyncio.get_running_loop().create_task(self._question(consensus, self._asking))
            self._next_asking = task
            task.add_done_callback(_retrieve)
        return self._next_asking

    async def _question(self, consensus: Consensus, before: asyncio.Task[int] | None) -> int:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._asking, self._next_asking = self._next_asking, None
        leader_id = consensus.leader_id
        if leader_id is None:
            raise NoLeaderError("no leader is known")
        if leader_id == self._member_id:
            return await self._join_round(consensus)
        index = msgpack.unpackb(await self._ask(leader_id, READ_INDEX, b""))
        if type(index) is not int:
            raise OutcomeUnknownError(f"member {leader_id!r} did not answer with an index")
        return index


def _retrieve(task: asyncio.Task[int]) -> None:
    """Nobody may be left to take the error."""
    if not task.cancelled():
        task.exception()
