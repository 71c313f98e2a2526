"""Sessions: the replicated records of clients, from open to closed. Leases are not here.

1. A session is open while it is in the table. It ends once, by close or by expiry.
2. The tree finds its ephemeral znodes. They are deleted in the command that ends the session, or,
   if there are many, in commands that follow at once; until then the session is ``leaving``.
3. No address, no client id and no identity opens more than its share of the sessions, and only an
   operator opens the last of them (``limits``). While access rights are off, operators name
   themselves, on record.
4. A session belongs to the identity of its ``caller``, and lasts no longer than the credential
   under which it goes on. If that is revoked, the session counts as ended from that command on; it
   stays in the table until a later command ends it.
5. No clock takes part: ``timeout_ms`` is what the leader's lease promises; ``opened_ms`` is for
   people.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from coordinator.errors import BadArgumentsError, QuotaExceededError
from coordinator.model.access import NOBODY, Caller
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import OpenSession
from coordinator.state.emptying import emptied
from coordinator.state.locks.contender import Departure
from coordinator.state.thread_breaks import with_breaks

SESSION_ID: Final = re.compile(r"[!-~]{1,64}")
LABEL_CHARACTERS_MAX: Final = 256
ADDRESS: Final = re.compile(r"[!-~]{0,64}")
CLIENT_ID: Final = re.compile(r"[!-~]{0,64}")
BY_CHARACTERS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One open session; what is not said here is as in ``OpenSession``.

    ``bound_index``: the client whose id is that of the session is bound to it, and has made no
    request before this log index, that of the entry which opened it. 0: no client is bound.
    """

    session_id: str
    timeout_ms: int
    label: str
    opened_ms: int
    bound_index: int
    opened_zxid: int
    address: str = ""
    client_id: str = ""
    by: str = ""
    caller: Caller = NOBODY

    @property
    def is_bound(self) -> bool:
        """Whether the client of its id is bound to it: a member drew that id."""
        return self.bound_index > 0


class _Share(NamedTuple):
    """What one origin may have of the sessions: which limit says so, and how a refusal says it."""

    limit: str
    word: str
    fact: str
    cure: str


_ADDRESS: Final = _Share(
    "sessions_per_address_max", "address", "address",
    " (coordinator sessions close --address), let programs share one",
)  # fmt: skip
_CLIENT: Final = _Share(
    "sessions_per_client_max", "client", "client_id",
    " (coordinator sessions close --client), keep one open for all it does",
)  # fmt: skip
_IDENTITY: Final = _Share(
    "sessions_per_identity_max", "identity", "identity", ", let programs share one"
)


class SessionTable:
    """The open sessions, in the order in which they were opened."""

    def __init__(
        self,
        limits: MachineLimits,
        sessions: Iterable[SessionRecord] = (),
        leaving: Iterable[tuple[str, Departure]] = (),
        revoked: Iterable[tuple[Caller, Departure]] = (),
    ) -> None:
        self.limits = limits
        self._sessions: dict[str, SessionRecord] = {}
        self._by_address: dict[str, int] = {}
        self._by_client: dict[str, int] = {}
        self._by_identity: dict[str, int] = {}
        self._by_credential: dict[Caller, dict[str, None]] = {}
        self.revoked: dict[Caller, Departure] = dict(revoked)
        """Whose credentials are gone, as long as sessions of theirs are here, and how they end."""
        for session in with_breaks(sessions):
            self._enter(session)
        self.leaving: dict[str, Departure] = dict(leaving)
        """Sessions that have ended but still own ephemerals; later commands delete those."""
        self.is_changed = False
        """Whether this command changed a session."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def __contains__(self, session_id: str) -> bool:
        if not self.revoked:
            return session_id in self._sessions
        return self.find(session_id) is not None

    def is_kept(self, session_id: str) -> bool:
        """Whether a session is in the table: open, or revoked and still to be ended."""
        return session_id in self._sessions

    def has_ended(self, session_id: str) -> bool:
        """Whether a session has ended and may own znodes still."""
        if session_id in self.leaving:
            return True
        return bool(self.revoked) and session_id in self._sessions and session_id not in self

    def __iter__(self) -> Iterator[SessionRecord]:
        return iter(tuple(self._sessions.values()))

    def emptied(self) -> Iterator[None]:
        """Empty a table that is no longer used, by one value at each step."""
        counts = (self._by_address, self._by_client, self._by_identity)
        yield from emptied(self._sessions, *counts, self._by_credential)

    def shares(self, address: str, client_id: str) -> tuple[int, int]:
        """Return the number of sessions of this address and of this client id."""
        return self._by_address.get(address, 0), self._by_client.get(client_id, 0)

    def count_of(self, identity: str) -> int:
        """Return the number of sessions of an identity that it has proved."""
        return self._by_identity.get(identity, 0)

    def counts(self) -> tuple[int, ...]:
        """Return the size of each index."""
        return (
            len(self._by_address), len(self._by_client), len(self._by_identity),
            len(self._by_credential),
        )  # fmt: skip

    def counts_by_identity(self) -> Iterable[tuple[str, int]]:
        """Return the identities with sessions, each with their number."""
        return self._by_identity.items()

    def largest_address(self) -> tuple[str, int]:
        """Return the address with the most sessions, and their number; ("", 0) if none is known."""
        return max(self._by_address.items(), key=itemgetter(1), default=("", 0))

    def page(self, after_zxid: int, limit: int | None) -> list[SessionRecord]:
        """Return at most ``limit`` of the sessions opened after ``after_zxid``, in their order.

        ``limit`` is 0 or more.
        """
        sessions = list(self._sessions.values())
        if self.revoked:
            sessions = [each for each in sessions if each.caller not in self.revoked]
        start = bisect_right(sessions, after_zxid, key=attrgetter("opened_zxid"))
        return sessions[start:] if limit is None else sessions[start : start + limit]

    def latest_first(self) -> Iterator[tuple[str, SessionRecord]]:
        """Iterate over ids and sessions, in the reverse order of their opening."""
        return reversed(self._sessions.items())

    def find(self, session_id: str) -> SessionRecord | None:
        """Return an open session, None if there is none."""
        session = self._sessions.get(session_id)
        if self.revoked and session is not None and session.caller in self.revoked:
            return None
        return session

    def revoked_sessions(self, limit: int) -> list[str]:
        """Return at most ``limit`` sessions whose credential is gone: they are to be ended."""
        found: list[str] = []
        for caller in self.revoked:
            for session_id in self._by_credential[caller]:
                if len(found) >= limit:
                    return found
                found.append(session_id)
        return found

    def departure(self, session_id: str) -> Departure | None:
        """Return how a session of a revoked credential ends, None for all others."""
        if not self.revoked:
            return None
        return self.revoked.get(self._sessions[session_id].caller)

    def binding(self, client_id: str) -> SessionRecord | None:
        """Return the session that this client is bound to, None if there is none."""
        session = self._sessions.get(client_id)
        return session if session is not None and session.is_bound else None

    def check(self, operation: OpenSession, identity: str = "") -> None:
        """Check that a session can be opened; raises BadArguments or QuotaExceeded.

        ``identity`` is whose it would be; "" if it has a quota of its own (``access.quotas``)."""
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
        self._check_room(operation, identity)

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

    def _check_room(self, operation: OpenSession, identity: str) -> None:
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
        of_address, of_client = self.shares(operation.address, operation.client_id)
        for count, value, share in (
            (of_address, operation.address, _ADDRESS),
            (of_client, operation.client_id, _CLIENT),
            (self._by_identity.get(identity, 0), identity, _IDENTITY),
        ):
            maximum: int = getattr(limits, share.limit)
            if value and count >= maximum:
                raise QuotaExceededError(
                    f"open session {session_id}: {count} sessions of the {share.word} {value} are "
                    f"open, the most allowed; end some{share.cure}, or raise {share.limit}",
                    **{"limit": share.limit, "maximum": maximum, share.fact: value},
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
        _count(self._by_identity, session.caller.identity, 1)
        self._enter_credential(session)

    def _enter_credential(self, session: SessionRecord) -> None:
        if session.caller.credential:
            self._by_credential.setdefault(session.caller, {})[session.session_id] = None

    def _leave_credential(self, session: SessionRecord) -> None:
        caller = session.caller
        if caller.credential:
            others = self._by_credential[caller]
            del others[session.session_id]
            if not others:
                del self._by_credential[caller]
                self.revoked.pop(caller, None)

    def is_indexed(self, session: SessionRecord) -> bool:
        """Whether a session is found by its credential, if it has one."""
        caller = session.caller
        return not caller.credential or session.session_id in self._by_credential.get(caller, {})

    def renew(self, session: SessionRecord, caller: Caller) -> None:
        """Let an open session go on under another credential of its identity."""
        self._leave_credential(session)
        session = replace(session, caller=caller)
        self._sessions[session.session_id] = session
        self._enter_credential(session)
        self.is_changed = True

    def revoke(self, caller: Caller, departure: Departure) -> None:
        """Count the sessions of a credential that is gone as ended, from now on."""
        if caller in self._by_credential:
            self.revoked[caller] = departure

    def remove(self, session_id: str) -> SessionRecord:
        """Remove a session that has ended, and return it."""
        session = self._sessions.pop(session_id)
        _count(self._by_address, session.address, -1)
        _count(self._by_client, session.client_id, -1)
        _count(self._by_identity, session.caller.identity, -1)
        self._leave_credential(session)
        self.is_changed = True
        return session

    def leave(self, session_id: str, departure: Departure) -> None:
        """Note that an ended session still owns ephemerals."""
        self.leaving[session_id] = departure

    def finish(self, session_id: str) -> None:
        """Forget an ended session that owns nothing any more."""
        del self.leaving[session_id]
        self.is_changed = True


class EndedSessions:
    """Sessions that have ended and may own znodes still: those that leave, and the revoked."""

    def __init__(self, sessions: SessionTable) -> None:
        self._sessions = sessions

    def __contains__(self, session_id: object) -> bool:
        return isinstance(session_id, str) and self._sessions.has_ended(session_id)


def _count(counts: dict[str, int], name: str, step: int) -> None:
    """Count one more or one less of ``name``; "" is not counted."""
    if not name:
        return
    count = counts.get(name, 0) + step
    if count:
        counts[name] = count
    else:
        del counts[name]
