"""What a member says of itself: facts, and one sentence in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member of the cluster, as seen from this one."""

    member_id: str
    client_url: str
    is_reachable: bool
    is_self: bool
    is_leader: bool


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """``summary`` is one sentence that says whether all is well and, if not, what is wrong."""

    member_id: str
    cluster: str
    role: str
    leader_id: str | None
    term: int
    commit_index: int
    applied_index: int
    last_index: int
    snapshot_index: int
    zxid: int
    is_ready: bool
    is_stopping: bool
    summary: str
    members: tuple[MemberView, ...]
    sessions: int
    znodes: int
    data_bytes: int
