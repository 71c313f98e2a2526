"""Grants that were taken from sessions that are still open, reported with their heartbeats.

A holder that closes, releases or expires knows it. One whose grant was forced out by a person,
ended by its ``max_hold_ms``, or deleted over the tree, does not: each acknowledged heartbeat
reports it, until the session ends. Kept by every member, from the history of grants.

After a snapshot the history is read in slices; until all of it was, no heartbeat is answered
(``is_starting``). The latest hundred are reported, in the order of their ends, the same by each
member. A client that finds none of those it knew may have missed some
(``coordinator.client.sessions.grant_watch``).
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import ClassVar

from coordinator.model.sessions import LOST_MAX, LostGrant
from coordinator.service.base.replica import SESSION_ENDS, Interest, MachineReplica
from coordinator.state.commands import (
    Command,
    Delete,
    EndHold,
    Guarded,
    Multi,
    Reap,
    Revoke,
)
from coordinator.state.locks.contender import ContenderRecord, Departure, EndedGrant, Ending
from coordinator.state.outcomes import Outcome, SessionEnded
from coordinator.waiting import in_turns

_NOTED_AT_ONCE = 500

_TAKING = frozenset({Revoke, EndHold, Delete, Multi, Guarded, Reap})
_TAKEN = frozenset({Ending.FORCED, Ending.MAX_HOLD, Ending.DELETED})


class Revocations:
    """The latest grants taken from each open session."""

    interest: ClassVar[Interest] = SESSION_ENDS | _TAKING

    def __init__(self, replica: MachineReplica) -> None:
        self._replica = replica
        self._taken: dict[str, deque[EndedGrant]] = {}
        self.is_starting = False
        """Whether some may not be known yet: the history of a snapshot is being read."""

    def of(self, session_id: str) -> tuple[LostGrant, ...]:
        """Return the latest grants that were taken from a session, the oldest first."""
        return tuple(
            [
                _lost(each.contender, each.departure) for each in self._taken.get(session_id, ())
            ]
        )

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Note for its session each grant that ended without its holder."""
        if outcome.is_repeat:
            return
        machine = self._replica.machine
        if self._taken and isinstance(outcome.result, SessionEnded):
            # Without ephemerals its end has no events; an expiry that was refused ends nothing.
            session_id = outcome.result.session_id
            if machine.session(session_id) is None:
                self._taken.pop(session_id, None)
        elif outcome.events and type(command.operation) in _TAKING:
            for ended in reversed(machine.locks.ended_at(outcome.zxid)):
                self._note(ended)

    def on_restore(self) -> None:
        """Read the history in turns, the latest first; what is taken until then follows it."""
        taken: dict[str, deque[EndedGrant]] = {}
        self._taken = taken
        self.is_starting = True
        ends = chain(self._replica.machine.locks.ends(), (None,))
        in_turns(ends, lambda ended: self._note_before(ended, taken), _NOTED_AT_ONCE)

    def _note_before(self, ended: EndedGrant | None, taken: dict[str, deque[EndedGrant]]) -> None:
        if self._taken is not taken:
            return  # another snapshot came
        if ended is None:
            self.is_starting = False
        elif self._is_reported(ended):
            reported = self._reported(ended)
            if len(reported) < LOST_MAX:
                reported.appendleft(ended)

    def _note(self, ended: EndedGrant) -> None:
        if self._is_reported(ended):
            self._reported(ended).append(ended)

    def _is_reported(self, ended: EndedGrant) -> bool:
        if ended.departure.how not in _TAKEN:
            return False
        return self._replica.machine.session(ended.contender.session_id) is not None

    def _reported(self, ended: EndedGrant) -> deque[EndedGrant]:
        session_id = ended.contender.session_id
        reported = self._taken.get(session_id)
        if reported is None:
            reported = self._taken[session_id] = deque(maxlen=LOST_MAX)
        return reported


def _lost(contender: ContenderRecord, departure: Departure) -> LostGrant:
    how, by, reason = departure.how.value, departure.by, departure.reason
    return LostGrant(contender.path, contender.czxid, how, by, reason)
