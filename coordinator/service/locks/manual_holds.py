"""Locks that are held by hand: how many, and which for longer than their holder has planned.

1. They are znodes below ``/manual-locks``, made by clients, on the condition that they hold the
   lock. While one is there, ``queues`` answers no client that the lock is granted.
2. The alarm goes by the wall clock from the znode's ctime: good enough for people.
3. Each leader says in its log, once for each hold and each time it was planned for, that it is
   overdue; every member counts them in gauges, and in a sentence of its status.
"""

from __future__ import annotations

import logging
import shlex
from typing import Final
from urllib.parse import unquote

from coordinator.model.access import Caller, Verb
from coordinator.model.manual_holds import ROOT, ManualHold
from coordinator.service.base.context import MemberContext
from coordinator.service.locks.contenders import LOCKS
from coordinator.state.machine import StateMachine
from coordinator.wording import lasting

logger = logging.getLogger(__name__)

LOOK_EVERY_MS: Final = 5_000
_LOOKED_AT_ONCE: Final = 200
_SAID_AT_ONCE: Final = 20


def hold_path(directory: str) -> str:
    """Return the path of the znode that says that the lock of this queue is held by hand."""
    return ROOT + directory[len(LOCKS.root) :]


def is_held_by_hand(machine: StateMachine, directory: str) -> bool:
    """Whether the lock of this queue is held by hand; an election never is."""
    if not directory.startswith(LOCKS.root):
        return False
    return machine.stat(hold_path(directory)) is not None


def in_words(machine: StateMachine, directory: str, caller: Caller) -> str:
    """Say by whom the lock of this queue is held by hand, if ``caller`` may know; "" if it is not.

    A hold that cannot be read is one without a word."""
    path = hold_path(directory)
    data = machine.data(path) if is_held_by_hand(machine, directory) else None
    if data is None:
        return ""
    hold = ManualHold.of(data)
    if hold is None or not machine.access.allows(caller, Verb.READ, path):
        return "it is held by hand"
    by = f" by {hold.by!r}" if hold.by else ""
    return f"it is held by hand{by}: {hold.note!r}"


def held_of(machine: StateMachine, directory: str, wall_ms: int) -> tuple[int, bool] | None:
    """Return for how many ms the lock of this queue is held by hand, by wall clocks, and whether
    that is longer than planned; None if it is not."""
    found = machine.get(hold_path(directory)) if is_held_by_hand(machine, directory) else None
    if found is None:
        return None
    data, stat = found
    held_ms = max(0, wall_ms - stat.ctime_ms)
    return held_ms, (ManualHold.of(data) or ManualHold()).is_overdue(held_ms)


def how_to_release(machine: StateMachine, directory: str, wall_ms: int, caller: Caller) -> str:
    """Return what ends a hold by hand, a line each, and of one that is overdue also what plans
    again; "" if there is none, or ``caller`` may not know."""
    held, path = held_of(machine, directory, wall_ms), hold_path(directory)
    data = None if held is None else machine.data(path)
    if held is None or data is None or not machine.access.allows(caller, Verb.READ, path):
        return ""
    hold, (held_ms, is_overdue) = ManualHold.of(data) or ManualHold(), held
    # The holder chose the name of the lock, and a person copies these lines into a shell.
    name = LOCKS.name_at(directory)
    which = f"{'-- ' if name.startswith('-') else ''}{shlex.quote(name)} {hold.fencing_token}"
    lines = [f"Held for {lasting(held_ms)}.", f"Release it: coordinator unlock {which}"]
    if is_overdue:
        lines[0] = f"Held for {lasting(held_ms)}; planned were {lasting(hold.alarm_after_ms)}."
        lines.append(f"Or plan again: coordinator extend --by SECONDS {which}")
    return "\n".join(lines)


class ManualHolds:
    """The manual locks, as this member sees them."""

    def __init__(self, context: MemberContext) -> None:
        self._clock = context.clock
        self._replica = context.replica
        self._leadership = context.leadership
        self._metrics = context.metrics
        self._after = ""
        """The last name that was looked at in this round."""
        self._overdue = 0
        self._in_round = 0
        self._warned: dict[tuple[str, int, int], None] = {}
        """The holds that were reported, as they were planned then."""
        self._warned_before: dict[tuple[str, int, int], None] = {}

    def look(self, now_ms: int) -> None:
        """Look at the next of them; a round is over when all were looked at."""
        del now_ms
        machine = self._replica.machine
        names = machine.children(ROOT, self._after or None, _LOOKED_AT_ONCE) or []
        logged = 0
        for name in names:
            path = f"{ROOT}/{name}"
            found = machine.get(path)
            if found is None:
                continue
            data, stat = found
            hold = ManualHold.of(data) or ManualHold()
            held_ms = self._clock.wall_ms() - stat.ctime_ms
            if not hold.is_overdue(held_ms):
                continue
            self._in_round += 1
            key = (path, stat.czxid, hold.alarm_after_ms)
            if key in self._warned_before:
                self._warned[key] = None
            elif logged < _SAID_AT_ONCE and self._leadership.is_leader:
                logged += 1
                self._warned[key] = None
                self._say(name, hold, held_ms)
        self._after = names[-1] if len(names) == _LOOKED_AT_ONCE else ""
        if not self._after:
            self._end_round()

    def warnings(self) -> tuple[str, ...]:
        """Return the sentence of the status; without names, which not everybody may read."""
        if not self._overdue:
            return ()
        locks = "1 lock is" if self._overdue == 1 else f"{self._overdue} locks are"
        return (f"{locks} held by hand for longer than planned; see coordinator diagnose",)

    def _end_round(self) -> None:
        self._overdue, self._in_round = self._in_round, 0
        self._warned_before, self._warned = self._warned, {}
        stat = self._replica.machine.stat(ROOT)
        self._metrics.manual_locks.set(0 if stat is None else stat.num_children)
        self._metrics.manual_locks_overdue.set(self._overdue)

    def _say(self, name: str, hold: ManualHold, held_ms: int) -> None:
        logger.warning(
            "manual lock %r, token %d, has been held for %d s; planned were %d s; by %r: %r",
            unquote(name),
            hold.fencing_token,
            held_ms // 1_000,
            hold.alarm_after_ms // 1_000,
            hold.by,
            hold.note,
        )
