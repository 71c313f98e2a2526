"""Sessions: the replicated record of who is a client, from open to closed. Leases are not here.

1. A session is open while it is in the table; it ends once, by close or by expiry.
2. Its ephemeral znodes are found through the tree. They go in the command that ends it, or, when
   they are many, in commands that follow at once; it is ``leaving`` until then.
3. No time takes part: ``timeout_ms`` is what the leader's lease promises, ``opened_ms`` is
   for people.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from coordinator.errors import BadArgumentsError, QuotaExceededError
from coordinator.state.commands import OpenSession
from coordinator.state.limits import MachineLimits
from coordinator.state.locks.contender import Departure

SESSION_ID = re.compile(r"[!-~]{1,64}")
LABEL_CHARACTERS_MAX = 256


@dataclass(frozen=True, slots=True)
class Session:
    """One open session. ``opened_index`` is the log index of the command that opened it."""

    session_id: str
    timeout_ms: int
    label: str
    opened_ms: int
    opened_index: int
    opened_zxid: int


class SessionTable:
    """The open sessions, in the order in which they were opened."""

    def __init__(
        self,
        limits: MachineLimits,
        sessions: Iterable[Session] = (),
        leaving: Iterable[tuple[str, Departure]] = (),
    ) -> None:
        self.limits = limits
        self._sessions = {session.session_id: session for session in sessions}
        self.leaving: dict[str, Departure] = dict(leaving)
        """Sessions that have ended and own ephemerals still, which go by commands that follow."""
        self.is_changed = False
        """Whether this command changed something here."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._sessions

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def page(self, after_zxid: int, limit: int | None) -> list[Session]:
        """Return at most ``limit`` of the sessions opened after ``after_zxid``, in their order.

        ``limit`` is 0 or more.
        """
        sessions = list(self._sessions.values())
        start = bisect_right(sessions, after_zxid, key=attrgetter("opened_zxid"))
        return sessions[start:] if limit is None else sessions[start : start + limit]

    def latest_first(self) -> Iterator[tuple[str, Session]]:
        """Iterate over ids and sessions, in the reverse order of their opening."""
        return reversed(self._sessions.items())

    def find(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def check(self, operation: OpenSession) -> None:
        """Check that a session can be opened; raises BadArguments or QuotaExceeded."""
        session_id, limits = operation.session_id, self.limits
        if SESSION_ID.fullmatch(session_id) is None:
            raise BadArgumentsError(
                "open session: expected an id of 1 to 64 printable ASCII characters, "
                f"found {session_id[:80]!a}"
            )
        if session_id in self._sessions or session_id in self.leaving:
            raise BadArgumentsError(
                f"open session {session_id}: a session of this id is open already",
                session_id=session_id,
            )
        if not limits.timeout_ms_min <= operation.timeout_ms <= limits.timeout_ms_max:
            raise BadArgumentsError(
                f"open session {session_id}: expected a timeout of {limits.timeout_ms_min} to "
                f"{limits.timeout_ms_max} ms, found {operation.timeout_ms}",
                session_id=session_id,
                timeout_ms=operation.timeout_ms,
                timeout_ms_min=limits.timeout_ms_min,
                timeout_ms_max=limits.timeout_ms_max,
            )
        if len(operation.label) > LABEL_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"open session {session_id}: expected a label of at most {LABEL_CHARACTERS_MAX} "
                f"characters, found {len(operation.label)}",
                session_id=session_id,
            )
        if len(self._sessions) >= limits.sessions_max:
            raise QuotaExceededError(
                f"open session {session_id}: {limits.sessions_max} sessions are open, "
                "the most allowed",
                limit="sessions_max",
                maximum=limits.sessions_max,
            )

    def add(self, session: Session) -> None:
        assert session.session_id not in self._sessions, "checked before"
        self._sessions[session.session_id] = session
        self.is_changed = True

    def remove(self, session_id: str) -> None:
        del self._sessions[session_id]
        self.is_changed = True

    def leave(self, session_id: str, departure: Departure) -> None:
        """Note that an ended session owns ephemerals still."""
        self.leaving[session_id] = departure

    def finish(self, session_id: str) -> None:
        """Forget an ended session of which nothing is left."""
        del self.leaving[session_id]
        self.is_changed = True
