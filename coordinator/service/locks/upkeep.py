"""The upkeep of queues by the leader: grants too many for one command, and lost rights."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from coordinator.errors import CoordinatorError
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import ACCESS_CHANGES, QUEUES, Interest
from coordinator.service.writes.pieces import Pieces
from coordinator.state.commands import Command, FinishGrants, TakeOut
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.locks.queues import LOOKED_AT_ONCE
from coordinator.state.outcomes import AccessChanged, Outcome

_SEEN_AT_ONCE = 500
"""Queues and waiters in a pass of the loop."""


class LostRights:
    """Takes out waiters that have lost the right to their lock, while this member leads.

    1. A waiter without the right is never granted (``state.locks.rights``). But until its turn came
       it would keep those behind it waiting, and would itself wait in vain.
    2. After each change of access rights the leader goes through all waiters, some at a time, and
       proposes commands that take out those without the right. Apply checks the right once more.
    3. A new leader goes through them once: the former one may not have finished. A change during a
       round makes it go through them once more, after this round.
    """

    interest: ClassVar[Interest] = ACCESS_CHANGES

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._replica = context.replica
        self._clock = context.clock
        self._timers = context.timers
        self._again_ms = context.config.sessions.tick_ms
        self._tasks = context.tasks
        self._leads = False
        self._is_due = False
        """Whether rights have changed since the present round began, if there is one."""
        self._is_running = False

    def start(self) -> None:
        """Begin: this member leads."""
        self._leads = self._is_due = True
        self._go_on()

    def stop(self) -> None:
        """This member no longer leads; the new leader looks for itself."""
        self._leads = False

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Look at the waiters after each change of rights."""
        result = outcome.result
        if type(result) is AccessChanged and result.was_changed:
            self._is_due = True
            self._go_on()

    def on_restore(self) -> None:
        """A leader is never sent a snapshot."""

    def _go_on(self) -> None:
        is_on = self._replica.machine.access.is_on
        if self._leads and self._is_due and is_on and not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._take_out(), "take out who lost the right")

    async def _take_out(self) -> None:
        try:
            while self._leads and self._is_due:
                self._is_due = False
                await self._round()
        except CoordinatorError:
            self._is_due = True
            self._timers.at(self._clock.monotonic_ms() + self._again_ms, self._go_on)
        finally:
            self._is_running = False

    async def _round(self) -> None:
        """Go through all who wait; queues may come, go and change in between."""
        lost: list[ContenderRecord] = []
        seen = 0
        for directory in list(self._replica.machine.locks.directories()):
            place = (-1, "")
            while self._leads:
                locks = self._replica.machine.locks
                waiters = locks.waiters_behind(directory, place, _SEEN_AT_ONCE)
                seen += 1 + len(waiters)
                lost += [each for each in waiters if locks.has_lost_right(each)]
                if seen >= _SEEN_AT_ONCE:
                    seen = 0
                    await asyncio.sleep(0)
                if len(lost) >= LOOKED_AT_ONCE:
                    await self._propose(lost)
                    lost = []
                if len(waiters) < _SEEN_AT_ONCE:
                    break
                place = (waiters[-1].number, waiters[-1].path)
        await self._propose(lost)

    async def _propose(self, lost: list[ContenderRecord]) -> None:
        """Take these out, with so many places in a command as one deletes."""
        paths: list[str] = []
        places = 0
        for at, each in enumerate(lost, 1):
            paths.append(each.path)
            places += each.places
            if places >= LOOKED_AT_ONCE or at == len(lost):
                await self._context.propose(TakeOut(tuple(paths)))
                paths, places = [], 0


class LaterGrants:
    """Goes on with grants that are too many for one command, while this member leads.

    The command that lets thousands share a lock grants to ``grants_per_command_max``, in the order
    of the queue; the leader proposes the rest at once. No newcomer gets in between: it queues
    behind all that wait."""

    interest: ClassVar[Interest] = QUEUES

    def __init__(self, context: MemberContext) -> None:
        self._replica = context.replica
        self._pieces = Pieces(context, "grant to more", self._next)
        self.start = self._pieces.start
        self.stop = self._pieces.stop

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Propose the next piece if this command could not grant all that it should."""
        is_of_queues = outcome.granted or outcome.events
        if is_of_queues and self._replica.machine.locks.has_ungranted:
            self._pieces.go_on()

    def on_restore(self) -> None:
        """A leader is never sent a snapshot."""

    def _next(self) -> tuple[FinishGrants, ...]:
        return (FinishGrants(),) if self._replica.machine.locks.has_ungranted else ()
