"""Quotas by identity: how much of what it has created is there, how much may be, and the refusal.

1. A znode counts, with its bytes, against the identity that created it, not the one that writes it
   later; a contender that does not hold counts as a waiter of the identity that entered it. The
   counts are kept where the znodes and contenders are (``Tree``, ``LockTable``), so they follow
   every deletion, rollback and restore.
2. What is allowed is the identity's own quota, else the limit ``..._per_identity_max``. Callers
   without a credential are the identity ``anonymous`` here.
3. Nothing is counted or refused while access rights are off; what was counted stays so. An
   identity that is made again under a former name has what was created under that name.
4. A quota that is lowered deletes nothing: only growth is refused.
5. The last of the znodes and bytes are for operators, who have ``admin`` on ``@limits``
   (``MachineLimits.client_percent_max``).
"""

from __future__ import annotations

from typing import Final

from coordinator.errors import QuotaExceededError
from coordinator.model.access import (
    ANONYMOUS,
    LIMITS,
    MEMBER,
    NO_QUOTA,
    QUOTA_LIMITS,
    Caller,
    Verb,
)
from coordinator.model.limits import MachineLimits
from coordinator.state.access.table import AccessTable
from coordinator.state.locks.queues import LockTable
from coordinator.state.sessions import SessionTable
from coordinator.state.tree import Tree

OWN_QUOTA: Final = "quota."
"""What the limit of a refusal begins with if it is the identity's own quota."""


class Quotas:
    """The quotas of one state."""

    def __init__(
        self,
        access: AccessTable,
        tree: Tree,
        *,
        sessions: SessionTable,
        locks: LockTable,
        limits: MachineLimits,
    ) -> None:
        self._access = access
        self._tree = tree
        self._sessions = sessions
        self._locks = locks
        self._limits = limits

    def allowed(self, identity: str, what: str) -> tuple[int, str]:
        """Return how much an identity may have, and by which limit or quota."""
        found = self._access.find_identity(identity)
        own: int | None = None if found is None else getattr(found.quota, what)
        if own is not None:
            return own, OWN_QUOTA + what
        limit = QUOTA_LIMITS[what]
        maximum: int = getattr(self._limits, limit)
        return maximum, limit

    def used(self, identity: str, what: str) -> int:
        """Return how much an identity has."""
        if what == "znodes":
            return self._tree.used_by(identity)[0]
        if what == "bytes":
            return self._tree.used_by(identity)[1]
        if what == "waiters":
            return self._locks.waiting.get(identity, 0)
        return self._sessions.count_of(identity)

    def most_used(self) -> dict[str, int]:
        """Return, by what quotas are of, how much the identity has that has the most of it."""
        uses = self._tree.uses()
        return {
            "sessions": max([each[1] for each in self._sessions.counts_by_identity()], default=0),
            "znodes": max([each[1][0] for each in uses], default=0),
            "bytes": max([each[1][1] for each in uses], default=0),
            "waiters": max(self._locks.waiting.values(), default=0),
        }

    def check_create(self, path: str, size: int) -> None:
        """Check that the caller may create a znode of ``size`` bytes; raises QuotaExceeded."""
        identity = self._tree.identity
        if not identity:
            return
        found, limits = self._access.find_identity(identity), self._limits
        quota = NO_QUOTA if found is None else found.quota
        znodes, total = self._tree.used_by(identity)
        znodes_max = limits.znodes_per_identity_max if quota.znodes is None else quota.znodes
        bytes_max = limits.bytes_per_identity_max if quota.bytes is None else quota.bytes
        if znodes + 1 > znodes_max or total + size > bytes_max:
            self._check(f"create {path}", identity, "znodes", 1)
            self._check(f"create {path}", identity, "bytes", size)

    def check_growth(self, path: str, identity: str, size: int) -> None:
        """Check that a znode of ``identity`` may grow by so much; raises QuotaExceeded."""
        if identity and self._tree.identity:
            self._check(f"set {path}", identity, "bytes", size)

    def check_wait(self, directory: str, places: int) -> None:
        """Check that the caller may wait in so many queues more; raises QuotaExceeded."""
        identity = self._tree.identity
        if identity:
            self._check(f"enter {directory}", identity, "waiters", places)

    def check_session(self, session_id: str, identity: str) -> bool:
        """Check that an identity with a quota of sessions may open one more; raises QuotaExceeded.

        Return False if it has none: the limit holds, which ``SessionTable`` knows."""
        found = self._access.find_identity(identity)
        if found is None or found.quota.sessions is None:
            return False
        self._check(f"open session {session_id}", identity, "sessions", 1)
        return True

    def _check(self, verb: str, identity: str, what: str, more: int) -> None:
        maximum, limit = self.allowed(identity, what)
        used = self.used(identity, what)
        if used + more > maximum:
            raise _exceeded(verb, identity, what, (used, more, maximum), limit)

    def is_operator(self) -> bool:
        """Whether the caller of the command may use what is kept for operators; nobody is known
        as one while access rights are off."""
        name = self._tree.identity
        if not name:
            return False
        caller = Caller("" if name == ANONYMOUS else name)
        return self._access.may(caller, Verb.ADMIN, LIMITS)


def creator_of(caller: Caller) -> str:
    """Return as whose the znodes count that a caller creates while access rights are on."""
    return "" if caller == MEMBER else caller.identity or ANONYMOUS


_DO_LESS: Final = {
    "sessions": "end some (coordinator sessions close), let programs share one",
    "znodes": "delete what is not needed",
    "bytes": "delete what is not needed",
    "waiters": "let fewer wait at a time",
}


def _exceeded(
    verb: str, identity: str, what: str, counts: tuple[int, int, int], limit: str
) -> QuotaExceededError:
    used, more, maximum = counts
    return QuotaExceededError(
        f"{verb}: identity {identity} has {used} of the {maximum} {what} that it may have "
        f"({limit}), and this needs {more} more; {_DO_LESS[what]}, or let an administrator allow "
        f"more (coordinator access quota set {identity} --{what} N)",
        limit=limit,
        identity=identity,
        used=used,
        maximum=maximum,
    )
