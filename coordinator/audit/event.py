"""An event of the audit log, and what the rooms of a member know of that log.

An event holds names and numbers: who did what to which path, and what came of it. It never holds
the data of a znode, a token, or a query. Text that clients chose is bounded and, in the line,
escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Source(StrEnum):
    """Which member writes the line.

    ``APPLIED``: every member, of a change that a quorum has committed; its index and zxid name the
    change, so lines of several members, or of one that replays its log, are known to be the same.
    ``REQUEST``: the member that took the request, with the caller's address and the answer.
    ``MEMBER``: the member that it happened to.
    """

    APPLIED = "applied"
    REQUEST = "request"
    MEMBER = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """What happened, and who wanted it.

    Args:
        event: the noun and the verb, such as ``grant.revoked``.
        time_ms: when: of a change its command's wall time, the same on all members.
        identity: the caller, "" for nobody that is known; ``credential`` is the id of its token or
            the name in its certificate, never a secret.
        verb: the right that was used or missing.
        resource: the path, or a thing of the cluster.
        zxid: of the change; of a request what its member had applied when it answered.
        index: of the change, in the Raft log.
        cluster_id: of the change: the id that the cluster drew when it began, or began again.
        ordinal: how many changes with this index and zxid came before it (``AuditLog.note``).
        outcome: done, refused, unavailable, unknown or failed.
        code: of the error.
        request: client id and request number, as ``id/number``.
        detail: what else is to be known: numbers, and short texts.
    """

    event: str
    source: Source
    time_ms: int
    identity: str = ""
    credential: str = ""
    address: str = ""
    verb: str = ""
    resource: str = ""
    zxid: int | None = None
    index: int | None = None
    cluster_id: str = ""
    ordinal: int = 0
    outcome: str = "done"
    code: str = ""
    request: str = ""
    detail: Mapping[str, object] = field(default_factory=dict)


REFUSED = "request.refused"
FOLDED = "request.refused_again"
"""Of a caller that was refused so often that its refusals have one line together."""
FIGURES = ("audit_lines_total", "audit_left_out_total", "audit_write_failures_total")
"""What the metrics show of an audit log."""


class Audit(Protocol):
    """Where a member's events go. Neither call waits or raises."""

    @property
    def is_kept(self) -> bool:
        """Whether events are written at all: if not, none need to be made."""
        ...

    def note(self, event: AuditEvent) -> None:
        """Write ``event`` soon, or count that it was left out."""
        ...

    def figures(self) -> Mapping[str, float]:
        """Return what the metrics show of it, by name."""
        ...


class NoAudit:
    """Keeps nothing: the member's log alone says what is forced or refused."""

    is_kept = False

    def note(self, event: AuditEvent) -> None:
        """Leave it out."""

    def figures(self) -> Mapping[str, float]:
        """Return that nothing was written."""
        return dict.fromkeys(FIGURES, 0.0)
