"""The reports of all members, gathered by one: who leads, who lags, who reaches whom."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from coordinator.model.backup import ScheduledBackups
from coordinator.model.fields import Count, described, one_of

ELECTIONS_KEPT = 100
"""How many of the latest changes of the leader a member remembers."""


Level = Annotated[str, one_of("good", "note", "warn", "bad")]
"""How grave it is. A note is a choice of the configuration, which people should know; the others
but "good" want an operator."""


LogLevel = Annotated[str, one_of("debug", "info", "warning", "error")]


class HealthFinding(Struct, frozen=True):
    """What is wrong, in a sentence, and what to do about it, "" where the sentence says so."""

    level: Level
    text: str
    todo: str = ""


class ClusterHealth(Struct, frozen=True):
    """How the cluster is: the worst level, one sentence, and all that was found, the worst first.

    ``text`` begins with "All is well" only if nothing was found."""

    level: Level
    text: str
    findings: tuple[HealthFinding, ...] = ()


class LeaderSeen(Struct, frozen=True):
    """A change of the leader, as one member noticed it; ``leader_id`` None: it lost contact."""

    at_ms: Annotated[Count, described("wall time of the member that noticed it")]
    leader_id: str | None
    term: Count
    cause: Annotated[
        str,
        one_of("", "pause", "disk", "link", "silence"),
        described(
            "why contact was lost, as this member saw it: it did not run for a while, its disk is "
            "slow, the connection ended, or nothing was heard; empty where a leader was found"
        ),
    ] = ""


class MemberFacts(Struct, frozen=True):
    """What one member says of itself. ``elections`` are those that it noticed since it started,
    the oldest first, the latest hundred of them."""

    member_id: str
    role: Annotated[str, one_of("follower", "candidate", "leader")]
    leader_id: str | None
    term: Count
    commit_index: Count
    applied_index: Count
    last_index: Annotated[Count, described("of the newest entry in its log")]
    snapshot_index: Annotated[Count, described("of the last entry in its last snapshot")]
    log_entries: Annotated[Count, described("entries of the log behind the last snapshot")]
    zxid: Count
    is_ready: bool
    summary: str
    version: str
    started_ms: Annotated[Count, described("wall time at which it started")]
    sees: Annotated[tuple[str, ...], described("the members that it reaches, without itself")]
    disk_free_bytes: Annotated[Count | None, described("on the file system of its data")] = None
    is_disk_full: bool = False
    is_disk_slow: bool = False
    snapshots_made: Count = 0
    elections: tuple[LeaderSeen, ...] = ()
    is_compiled: Annotated[bool, described("whether compiled modules run")] = False
    level: Annotated[Count, described("of its state")] = 0
    level_oldest: Annotated[Count, described("the oldest level that its release reads")] = 0
    level_newest: Annotated[Count, described("the newest level that its release reads")] = 0
    findings: Annotated[
        tuple[HealthFinding, ...],
        described("what it finds wrong with itself, or with the whole cluster"),
    ] = ()

    backups: Annotated[
        ScheduledBackups | None, described("those that it makes by itself; null: none")
    ] = None


class MemberReport(Struct, frozen=True):
    """One configured member; ``facts`` is None, and ``silence`` says why, if it did not answer."""

    member_id: str
    client_url: str
    is_self: bool
    facts: MemberFacts | None
    silence: str = ""


class HandoverRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/members/handover: nothing."""


class HandoverReply(Struct, frozen=True):
    """The reply of POST /v1/members/handover: who leads now."""

    leader_id: str
    term: Count


class LogLevelRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /v1/members/log-level: of all members, or of one."""

    level: LogLevel
    member_id: str | None = None


class LogLevelReply(Struct, frozen=True):
    """The reply of PUT /v1/members/log-level: whose level was set, and why of others it was not."""

    level: LogLevel
    set: tuple[str, ...]
    not_set: dict[str, str] = {}


class MemberList(Struct, frozen=True):
    """The reply of GET /v1/members: every configured member, by the one that was asked, and what
    that makes of it."""

    members: tuple[MemberReport, ...]
    health: ClusterHealth
