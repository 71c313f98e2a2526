"""Withdrawals: the contenders of an attempt that ended without a grant are removed, with retries.

1. A withdrawal is tried again, with a pause, until it is confirmed: a member without a leader, or
   with too much under way, must not leave a contender that is granted later and never released.
2. The client of an attempt with a request number may send it again to another member, wait and hold
   there. So such a withdrawal is given up after ``_DEADLINE_MS``, and does not release a grant that
   the repeated request may have returned (``spares_repeated``, ``spares_holder``). Without a number
   it is tried for as long as its session is open.
3. Nothing is tried by a member that stops, nor for a session that has ended: its contenders were
   deleted with it (a session that is not open here may still be opened here). Beyond ``_count_max``
   withdrawals under way, each further one is given up as those with a number are.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from coordinator.errors import (
    CoordinatorError,
    NotOwnerError,
    OutcomeUnknownError,
    RequestForgottenError,
    UnavailableError,
)
from coordinator.model.access import NOBODY, Caller
from coordinator.service.base.context import MemberContext
from coordinator.service.writes.proposals import Proposer, RequestContext
from coordinator.state.commands import Abandon, Release

_DEADLINE_MS = 10_000
_AGAIN_MS = 1_000
_WAIT_MS = 1_000
"""How long a caller whose time is up still waits to learn that nothing was left behind."""


@dataclass(frozen=True, slots=True)
class Leave:
    """How to withdraw an attempt of a session; ``word`` names its queue in the task's name."""

    operation: Release | Abandon
    session_id: str
    word: str
    has_number: bool
    """Whether its client has given it a request number, and may repeat it anywhere."""
    caller: Caller = NOBODY
    """Whose attempt it was."""


class Leaving:
    """The withdrawals under way on one member."""

    def __init__(self, context: MemberContext, proposer: Proposer) -> None:
        self._proposer = proposer
        self._replica = context.replica
        self._leadership = context.leadership
        self._timers = context.timers
        self._clock = context.clock
        self._tasks = context.tasks
        self._count_max = context.config.limits.lock_waiters_max
        self.count = 0
        """How many are under way."""

    def start(self, leave: Leave) -> asyncio.Task[bool]:
        """Leave in the background; the task says whether it is certain that it was done."""
        return self._tasks.spawn(self._until_done(leave), f"leave {leave.word}")

    async def is_done(self, leave: Leave) -> bool:
        """Leave; say whether that is known to be done within a moment. It goes on if not."""
        task = self.start(leave)
        try:
            async with self._timers.deadline(self._clock.monotonic_ms() + _WAIT_MS):
                await asyncio.wait({task})
        except TimeoutError:
            return False
        return not task.cancelled() and task.result()

    async def _until_done(self, leave: Leave) -> bool:
        is_own = not leave.has_number and self.count < self._count_max
        give_up_ms = self._clock.monotonic_ms() + _DEADLINE_MS
        was_open = self._is_open(leave)
        self.count += 1
        try:
            while True:
                now_ms = self._clock.monotonic_ms()
                is_done = await self._tried(leave, now_ms + _DEADLINE_MS if is_own else give_up_ms)
                has_ended = was_open and not self._is_open(leave)
                if is_done is not None or has_ended or self._leadership.is_stopping:
                    return is_done is True
                was_open = was_open or self._is_open(leave)
                again_ms = self._clock.monotonic_ms() + _AGAIN_MS
                if not is_own and again_ms >= give_up_ms:
                    return False
                await self._timers.sleep_until(again_ms)
        finally:
            self.count -= 1

    def _is_open(self, leave: Leave) -> bool:
        return self._replica.machine.session(leave.session_id) is not None

    async def _tried(self, leave: Leave, deadline_ms: int) -> bool | None:
        """Return True when it is done, False when it never will be, None when it is to be tried
        again: it was not proposed, or its outcome is unknown."""
        try:
            await self._proposer.submit(
                leave.operation, RequestContext(None, deadline_ms, caller=leave.caller)
            )
        except NotOwnerError:
            return True  # it was not there any more
        except RequestForgottenError:
            return False  # it cannot be named any more, and is deleted with its session
        except (UnavailableError, OutcomeUnknownError):
            return None
        except CoordinatorError:
            return False
        return True
