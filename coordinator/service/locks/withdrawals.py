"""Leaving a queue: what an attempt that ended without a grant left is taken back, until it is done.

1. A leave is tried again, with a pause, while nobody confirms it: a member without a leader, or
   with too much under way, must not leave a contender that is granted later and never released.
2. One without a request number is nobody else's, and tried for as long as its session is open. One
   with a number its client may repeat at another member, wait and hold there: so that is given up
   after ``_DEADLINE_MS``, and takes no grant that a repetition may have told
   (``spares_repeated``, ``spares_holder``).
3. Nothing is tried by a member that stops, nor for a session that has ended: its contenders went
   with it (one that is not open here may be still to come here). Beyond ``count_max`` leaves under
   way, each further one is given up as those with a number are.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from coordinator.clock import Clock
from coordinator.errors import (
    CoordinatorError,
    NotOwnerError,
    OutcomeUnknownError,
    RequestForgottenError,
    UnavailableError,
)
from coordinator.service.leadership import Leadership
from coordinator.service.proposals import Proposer
from coordinator.service.replica import MachineReplica
from coordinator.service.tasks import Tasks
from coordinator.service.timers import Timers
from coordinator.state.commands import Abandon, Release

_DEADLINE_MS = 10_000
_AGAIN_MS = 1_000
_WAIT_MS = 1_000
"""How long a caller whose time is up still waits to learn that nothing was left behind."""


@dataclass(frozen=True, slots=True)
class Leave:
    """What takes an attempt of a session back; ``word`` names its queue in the task's name."""

    operation: Release | Abandon
    session_id: str
    word: str
    has_number: bool
    """Its client has given it a request number, and may repeat it anywhere."""


class Leaving:
    """The leaves under way on one member."""

    def __init__(
        self,
        *,
        proposer: Proposer,
        replica: MachineReplica,
        leadership: Leadership,
        timers: Timers,
        clock: Clock,
        tasks: Tasks,
        count_max: int,
    ) -> None:
        self._proposer = proposer
        self._replica = replica
        self._leadership = leadership
        self._timers = timers
        self._clock = clock
        self._tasks = tasks
        self._count_max = count_max
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
        again: it was not proposed, or nobody knows."""
        try:
            await self._proposer.submit(leave.operation, request=None, deadline_ms=deadline_ms)
        except NotOwnerError:
            return True  # it had gone before
        except RequestForgottenError:
            return False  # what cannot be named any more goes with its session
        except (UnavailableError, OutcomeUnknownError):
            return None
        except CoordinatorError:
            return False
        return True
