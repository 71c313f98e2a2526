"""The read index: linearizable reads on every member (Raft thesis, 6.4).

A leader that has applied the first entry of its term asks a quorum whether it still leads; a
follower asks the leader to do so. All readers of one pass share one round (``barrier``) and, on a
follower, one request. Then the member waits until that index is applied.

If there is no leader, one reader asks again for all that wait: thousands of readers cost an
election no more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import NoLeaderError, NoSpaceError, OutcomeUnknownError, ShuttingDownError
from coordinator.raft.consensus import Consensus
from coordinator.raft.engine import Role
from coordinator.raft.time_limit import TimeLimit
from coordinator.waiting import SharedAnswer, Waiters

_INDEX_BYTES_MAX = 9
"""A number as it is packed."""
READ_INDEX = "raft.read_index"
RETRY_MS = 10

Ask = Callable[[str, str, bytes], Awaitable[bytes]]


class ReadIndex:
    """The reads that wait on one member."""

    def __init__(
        self, member_id: str, *, timeout_ms: int, ask: Ask, wake: Callable[[], None]
    ) -> None:
        self._member_id = member_id
        self._limit = TimeLimit(timeout_ms / 1000)
        self._ask = ask
        self._wake = wake
        self._waiters = Waiters()
        self._asking: asyncio.Task[int] | None = None
        self._next_asking: asyncio.Task[int] | None = None
        self._answers: dict[asyncio.Future[int], SharedAnswer[int]] = {}
        """The waiters of each request under way."""
        self._later: SharedAnswer[int] = SharedAnswer()
        """The readers that were refused because there was no leader."""
        self._trying_again: asyncio.Task[None] | None = None

    async def barrier(self, running: Callable[[], Consensus]) -> int:
        """Return a read index; NoLeaderError if there is none in time.

        ``running`` returns the member's consensus, or raises ShuttingDownError."""
        try:
            with self._limit():
                while True:
                    try:
                        consensus = running()
                        if consensus.is_leader_ready:
                            index = await self._joined(consensus).wait()
                        else:
                            index = await self._index_or_later(running)
                        consensus = running()
                        if consensus.core.applied_index < index:
                            await self.wait_applied(consensus, index)
                        return index
                    except (NoLeaderError, OutcomeUnknownError):
                        pass  # a read may be asked again
        except TimeoutError:
            raise NoLeaderError("no quorum confirmed a leader in time; try again") from None

    async def confirm(self, consensus: Consensus) -> int:
        """Return the term in which a quorum confirmed, after the call, that this member leads."""
        term = consensus.core.term
        await self._join_round(consensus)
        if consensus.core.term != term or consensus.core.role is not Role.LEADER:
            raise NoLeaderError(f"member {self._member_id} does not lead any more")
        return term

    async def answer(self, consensus: Consensus) -> bytes:
        """Answer a follower's request."""
        packed: bytes = msgpack.packb(await self._join_round(consensus))
        return packed

    async def wait_applied(self, consensus: Consensus, index: int) -> None:
        """Return once ``index`` is applied; NoSpaceError if a full disk prevents it."""
        if consensus.core.applied_index >= index:
            return
        if consensus.following.is_out_of_reach(index):
            raise NoSpaceError(
                f"the disk of member {self._member_id} is full, and entry {index} is not on it"
            )
        await self._waiters.until(index)

    def on_applied(self, applied_index: int) -> None:
        """Wake those that wait for an index up to this one."""
        self._waiters.on_reached(applied_index)

    def fail(self, error: ShuttingDownError) -> None:
        """Fail all reads that wait: the member stops."""
        self._waiters.wake_all(lambda: ShuttingDownError(error.message))

    async def _join_round(self, consensus: Consensus) -> int:
        if not consensus.is_leader_ready:
            raise NoLeaderError(f"member {self._member_id} does not lead")
        return await self._joined(consensus).wait()

    def _joined(self, consensus: Consensus) -> SharedAnswer[int]:
        """Return the next round of this leader."""
        rounds = consensus.rounds
        if rounds.joining is None:  # who is first has woken this member
            self._wake()
        return rounds.join()

    async def _with_others(self, shared: asyncio.Future[int]) -> int:
        """Return what becomes of ``shared``, which is not done."""
        answer = self._answers.get(shared)
        if answer is None:
            answer = self._answers[shared] = SharedAnswer()
            shared.add_done_callback(self._settle)
        return await answer.wait()

    def _settle(self, shared: asyncio.Future[int]) -> None:
        answer = self._answers.pop(shared)
        error = NoLeaderError("no reader is left") if shared.cancelled() else shared.exception()
        if isinstance(error, Exception):
            found = error
            answer.fail(lambda: found)
        else:
            answer.resolve(shared.result())

    async def _index_or_later(self, running: Callable[[], Consensus]) -> int:
        try:
            return await self._index(running())
        except (NoLeaderError, OutcomeUnknownError):
            pass  # it waits behind the try
        if self._trying_again is None:
            trying = self._try_again(running)
            self._trying_again = asyncio.get_running_loop().create_task(trying)
        return await self._later.wait()

    async def _try_again(self, running: Callable[[], Consensus]) -> None:
        """Ask for all refused readers until none waits; each try is for those before it."""
        try:
            while self._later.waiting():
                await asyncio.sleep(RETRY_MS / 1000)
                waiting = self._later.waiting()
                try:
                    index = await self._index(running())
                except (NoLeaderError, OutcomeUnknownError):
                    continue
                self._later.resolve(index, waiting)
                await asyncio.sleep(0)
        except ShuttingDownError as error:
            message = error.message
            self._later.fail(lambda: ShuttingDownError(message))
        finally:
            self._trying_again = None

    async def _index(self, consensus: Consensus) -> int:
        if consensus.core.role is Role.LEADER:
            return await self._join_round(consensus)
        return await self._with_others(self._next_question(consensus))

    def _next_question(self, consensus: Consensus) -> asyncio.Task[int]:
        """Return the request that is sent next; one under way began too early."""
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
            raise NoLeaderError("no leader is known; try again")
        if leader_id == self._member_id:
            return await self._join_round(consensus)
        answer = await self._ask(leader_id, READ_INDEX, b"")
        index = msgpack.unpackb(answer) if len(answer) <= _INDEX_BYTES_MAX else None
        if type(index) is not int:
            raise OutcomeUnknownError(f"member {leader_id!r} did not answer with an index")
        return index


def _retrieve(task: asyncio.Task[int]) -> None:
    """Fetch the error: its waiters may all be gone."""
    if not task.cancelled():
        task.exception()
