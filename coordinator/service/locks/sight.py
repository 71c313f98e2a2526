"""The part of queues that a caller sees: those it may read or lock, and its own sessions by name.

Session ids of others are shown to operators. A session belongs to the identity that opened it, so
its id opens nothing; but it concerns no other client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from coordinator.errors import DeadlockError
from coordinator.model.access import SESSIONS, Caller, Verb
from coordinator.model.history import GrantRecord
from coordinator.model.views import Candidate, Contender, LockSummary
from coordinator.state.machine import StateMachine
from coordinator.state.paths import parent_of

LOOKING = (Verb.READ, Verb.LOCK)


class Sight:
    """What ``caller`` sees of ``machine`` now; made for each look, and used in its step."""

    __slots__ = ("_caller", "_is_whole", "_machine")

    def __init__(self, machine: StateMachine, caller: Caller) -> None:
        self._machine = machine
        self._caller = caller
        self._is_whole = machine.access.allows(caller, Verb.ADMIN, SESSIONS)

    def check(self, directory: str) -> None:
        """Refuse a queue that the caller may neither read nor lock."""
        if not self.shows(directory):
            self._machine.access.check(self._caller, Verb.READ, directory)

    def shows(self, directory: str) -> bool:
        """Whether the caller may read the queue, or contend in it."""
        allows = self._machine.access.allows
        return any(allows(self._caller, verb, directory) for verb in LOOKING)

    def session_id(self, session_id: str) -> str:
        """Return ``session_id`` if it is the caller's own, or it may see all; else ""."""
        if self._is_whole or not session_id:
            return session_id
        session = self._machine.session(session_id)
        is_own = session is not None and session.caller.identity == self._caller.identity
        return session_id if is_own else ""

    @property
    def is_on(self) -> bool:
        """Whether rights are checked."""
        return self._machine.access.is_on

    @property
    def is_whole(self) -> bool:
        """Whether the sessions of others are shown."""
        return self._is_whole

    def contender(self, contender: Contender) -> Contender:
        """Return a contender without its session, if that is another's."""
        if self._is_whole:
            return contender
        return replace(contender, session_id=self.session_id(contender.session_id))

    def summary(self, summary: LockSummary) -> LockSummary:
        """Return a line of the list of locks likewise."""
        if self._is_whole:
            return summary
        holder = summary.holder
        return replace(summary, holder=None if holder is None else self.contender(holder))

    def candidate(self, candidate: Candidate) -> Candidate:
        """Return a candidate as ``caller`` may see it."""
        if self._is_whole:
            return candidate
        return replace(candidate, session_id=self.session_id(candidate.session_id))

    def record(self, record: GrantRecord) -> GrantRecord:
        """Return a grant of the history likewise; who opened an ended session is not known."""
        if self._is_whole:
            return record
        group = tuple([each for each in record.group if self.shows(parent_of(each))])
        return replace(record, session_id=self.session_id(record.session_id), group=group)

    def deadlock(self, error: DeadlockError) -> DeadlockError:
        """Return what a caller sees of a deadlock: of others only that they are in it."""
        cycle = error.fields.get("cycle", ())
        own = tuple([each for each in cycle if self.session_id(each["session_id"])])
        if self._is_whole or len(own) == len(cycle):
            return error
        what, count = error.message.partition(": deadlock: ")[0], error.fields["cycle_length"]
        return DeadlockError(
            f"{what}: deadlock: {count} owners wait for one another, some of other identities",
            **{**error.fields, "cycle": own},
        )

    def described(self, holder: Mapping[str, Any]) -> dict[str, Any]:
        """Return what an error says of a holder, without what the caller may not see."""
        return {**holder, "session_id": self.session_id(holder.get("session_id", ""))}
