"""Which grants were taken from sessions that live on, so that their next heartbeat tells them.

A holder that closes, releases or expires knows by itself. One whose grant was forced out by a
person, ended by its ``max_hold_ms``, or deleted over the tree, does not: it is told with every
acknowledged heartbeat, until its session ends. Kept by every member, from the history of grants.

The latest hundred are told, in the order of their ends, the same by each member: who hears none
that it heard before may have missed some (``coordinator.client.locks.grant_watch``).
"""

from __future__ import annotations

from collections import deque

from coordinator.model.sessions import LOST_MAX, LostGrant
from coordinator.service.replica import MachineReplica
from coordinator.state.commands import (
    Command,
    Delete,
    EndHold,
    Guarded,
    Multi,
    Reap,
    Revoke,
)
from coordinator.state.locks.contender import Ending
from coordinator.state.locks.grant_history import Grant
from coordinator.state.outcomes import Outcome, SessionEnded

_TAKING = frozenset({Revoke, EndHold, Delete, Multi, Guarded, Reap})
_TAKEN = frozenset({Ending.FORCED, Ending.MAX_HOLD, Ending.DELETED})


class TakenGrants:
    """The latest grants taken from each open session."""

    def __init__(self, replica: MachineReplica) -> None:
        self._replica = replica
        self._taken: dict[str, deque[LostGrant]] = {}

    def of(self, session_id: str) -> tuple[LostGrant, ...]:
        """Return the latest grants that were taken from a session, the oldest first."""
        return tuple(self._taken.get(session_id, ()))

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        if outcome.is_repeat:
            return
        machine = self._replica.machine
        if self._taken and isinstance(outcome.result, SessionEnded):
            # Without ephemerals its end has no events; a void expiry is no end at all.
            session_id = outcome.result.session_id
            if machine.session(session_id) is None:
                self._taken.pop(session_id, None)
        elif outcome.events and type(command.operation) in _TAKING:
            for grant in reversed(machine.locks.ended_at(outcome.zxid)):
                self._note(grant)

    def on_restore(self) -> None:
        self._taken.clear()
        for grant in self._replica.machine.locks.ended():
            self._note(grant)

    def _note(self, grant: Grant) -> None:
        session_id = grant.session_id
        if grant.how not in _TAKEN or session_id is None:
            return
        if self._replica.machine.session(session_id) is None:
            return
        taken = self._taken.setdefault(session_id, deque(maxlen=LOST_MAX))
        lost = LostGrant(grant.path, grant.czxid, grant.how.value, grant.by, grant.reason)
        taken.append(lost)
