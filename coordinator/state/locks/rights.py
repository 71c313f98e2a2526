"""The right to be granted what a contender waits for, decided when it would be granted.

1. A contender had the right when it entered; its identity may have lost it since, or its
   credential. Then it is never granted. The places of a multi-lock need the right to each of their
   queues.
2. A holder keeps its grant when its roles change, and loses it with its credential.
"""

from __future__ import annotations

from coordinator.model.access import Verb
from coordinator.state.access.table import AccessTable
from coordinator.state.locks.contender import ContenderRecord, Ending
from coordinator.state.paths import parent_of
from coordinator.state.sessions import SessionTable


class LockRights:
    """The rights of those that are queued."""

    def __init__(self, access: AccessTable, sessions: SessionTable) -> None:
        self._access = access
        self._sessions = sessions

    def are_lost(self, contender: ContenderRecord) -> bool:
        """Whether nothing may be granted to this contender any more.

        A session that another end has reached goes whole, and nothing it holds counts."""
        access, sessions, session_id = self._access, self._sessions, contender.session_id
        if not (access.is_on or sessions.revoked or sessions.leaving):
            return False
        session = sessions.find(session_id)
        if session is None:
            departure = sessions.leaving.get(session_id)
            return departure is None or departure.how is Ending.FORCED
        if not access.is_on:
            return False
        for path in contender.group or (contender.path,):
            if not access.allows(session.caller, Verb.LOCK, parent_of(path)):
                return True
        return False
