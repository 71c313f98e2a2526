"""Sessions: the replicated records of clients, from open to closed. Leases are not here.

1. A session is open while it is in the table. It ends once, by close or by expiry.
2. The tree finds its ephemeral znodes. They are deleted in the command that ends the session, or,
   if there are many, in commands that follow at once; until then the session is ``leaving``.
3. No address and no client id opens more than its share of the sessions, and only an operator opens
   the last of them (``limits``). Until there are identities, operators name themselves, on record.
4. No clock takes part: ``timeout_ms`` is what the leader's lease promises; ``opened_ms`` is for
   people.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from coordinator.errors import BadArgumentsError, QuotaExceededError
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import OpenSession
from coordinator.state.locks.contender import Departure

SESSION_ID = re.compile(r"[!-~]{1,64}")
LABEL_CHARACTERS_MAX = 256
ADDRESS = re.compile(r"[!-~]{0,64}")
CLIENT_ID = re.compile(r"[!-~]{0,64}")
BY_CHARACTERS_MAX = 256


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One open session. ``opened_index`` is the log index of the command that opened it; the
    rest is as in ``OpenSession``."""

    session_id: str
    timeout_ms: int
    label: str
    opened_ms: int
    opened_index: int
    opened_zxid: int
    address: str = ""
    client_id: str = ""
    by: str = ""


class SessionTable:
    """The open sessions, in the order in which they were opened."""

    def __init__(
        self,
        limits: MachineLimits,
        sessions: Iterable[SessionRecord] = (),
        leaving: Iterable[tuple[str, Departure]] = (),
    ) -> None:
        self.limits = limits
        self._sessions: dict[str, SessionRecord] = {}
        self._by_address: dict[str, int] = {}
        self._by_client: dict[str, int] = {}
        for session in sessions:
            self._enter(session)
        self.leaving: dict[str, Departure] = dict(leaving)
        """Sessions that have ended but still own ephemerals; later commands delete those."""
        self.is_changed = False
        """Whether this command changed a session."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._sessions

    def __iter__(self) -> Iterator[SessionRecord]:
        return iter(tuple(self._sessions.values()))

    def shares(self, address: str, client_id: str) -> tuple[int, int]:
        """Return the number of sessions of this address and of this client id."""
        return self._by_address.get(address, 0), self._by_client.get(client_id, 0)

    def largest_address(self) -> tuple[str, int]:
        """Return the address with the most sessions, and their number; ("", 0) if none is known."""
        return max(self._by_address.items(), key=itemgetter(1), default=("", 0))

    def page(self, after_zxid: int, limit: int | None) -> list[SessionRecord]:
        """Return at most ``limit`` of the sessions opened after ``after_zxid``, in their order.

        ``limit`` is 0 or more.
        """
        sessions = list(self._sessions.values())
        start = bisect_right(sessions, after_zxid, key=attrgetter("opened_zxid"))
        return sessions[start:] if limit is None else sessions[start : start + limit]

    def latest_first(self) -> Iterator[tuple[str, SessionRecord]]:
        """Iterate over ids and sessions, in the reverse order of their opening."""
        return reversed(self._sessions.items())

    def find(self, session_id: str) -> SessionRecord | None:
        """Return an open session, None if there is none."""
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
        self._check_origin(operation)
        self._check_room(operation)

    def _check_origin(self, operation: OpenSession) -> None:
        session_id = operation.session_id
        if ADDRESS.fullmatch(operation.address) is None:
            raise BadArgumentsError(
                f"open session {session_id}: expected an address of at most 64 printable ASCII "
                f"characters, found {operation.address[:80]!a}",
                session_id=session_id,
            )
        if CLIENT_ID.fullmatch(operation.client_id) is None:
            raise BadArgumentsError(
                f"open session {session_id}: expected a client id of at most 64 printable ASCII "
                f"characters, found {operation.client_id[:80]!a}",
                session_id=session_id,
            )
        if len(operation.by) > BY_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"open session {session_id}: expected by of at most {BY_CHARACTERS_MAX} "
                f"characters, found {len(operation.by)}",
                session_id=session_id,
            )

    def _check_room(self, operation: OpenSession) -> None:
        session_id, limits, count = operation.session_id, self.limits, len(self._sessions)
        if count >= limits.sessions_max:
            raise QuotaExceededError(
                f"open session {session_id}: {limits.sessions_max} sessions are open, "
                "the most allowed",
                limit="sessions_max",
                maximum=limits.sessions_max,
            )
        if operation.by:
            return
        ordinary_max = limits.ordinary_max("sessions_max")
        if count >= ordinary_max:
            raise QuotaExceededError(
                f"open session {session_id}: {count} sessions are open, and the last "
                f"{limits.sessions_max - ordinary_max} of sessions_max ({limits.sessions_max}) are "
                "kept for operators; end some (coordinator sessions close) or raise the limit",
                limit="sessions_max",
                maximum=ordinary_max,
            )
        address, client_id = operation.address, operation.client_id
        of_address, of_client = self.shares(address, client_id)
        if address and of_address >= limits.sessions_per_address_max:
            raise QuotaExceededError(
                f"open session {session_id}: {of_address} sessions of the address {address} are "
                "open, the most allowed; end some (coordinator sessions close --address), let "
                "programs share one, or raise sessions_per_address_max",
                limit="sessions_per_address_max",
                maximum=limits.sessions_per_address_max,
                address=address,
            )
        if client_id and of_client >= limits.sessions_per_client_max:
            raise QuotaExceededError(
                f"open session {session_id}: {of_client} sessions of the client {client_id} are "
                "open, the most allowed; end some (coordinator sessions close --client), keep one "
                "open for all it does, or raise sessions_per_client_max",
                limit="sessions_per_client_max",
                maximum=limits.sessions_per_client_max,
                client_id=client_id,
            )

    def add(self, session: SessionRecord) -> None:
        """Add a session that has just been opened."""
        assert session.session_id not in self._sessions, "checked before"
        self._enter(session)
        self.is_changed = True

    def _enter(self, session: SessionRecord) -> None:
        self._sessions[session.session_id] = session
        _count(self._by_address, session.address, 1)
        _count(self._by_client, session.client_id, 1)

    def remove(self, session_id: str) -> None:
        """Remove a session that has ended."""
        session = self._sessions.pop(session_id)
        _count(self._by_address, session.address, -1)
        _count(self._by_client, session.client_id, -1)
        self.is_changed = True

    def leave(self, session_id: str, departure: Departure) -> None:
        """Note that an ended session still owns ephemerals."""
        self.leaving[session_id] = departure

    def finish(self, session_id: str) -> None:
        """Forget an ended session that owns nothing any more."""
        del self.leaving[session_id]
        self.is_changed = True


def _count(counts: dict[str, int], name: str, step: int) -> None:
    """Count one more or one less of ``name``; "" is not counted."""
    if not name:
        return
    count = counts.get(name, 0) + step
    if count:
        counts[name] = count
    else:
        del counts[name]
