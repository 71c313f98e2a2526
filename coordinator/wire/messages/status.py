"""What a member says about itself and the members it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.wire.fields import Fields


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One member of the cluster, as the answering member sees it."""

    member_id: str
    client_url: str
    is_reachable: bool
    is_self: bool
    is_leader: bool
    refusal: str = ""
    """Why the answering member refuses this one, in one sentence."""

    def to_body(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "client_url": self.client_url,
            "is_reachable": self.is_reachable,
            "is_self": self.is_self,
            "is_leader": self.is_leader,
            "refusal": self.refusal,
        }

    @classmethod
    def from_body(cls, body: Any, where: str) -> MemberInfo:
        fields = Fields(body, where)
        return cls(
            member_id=fields.text("member_id"),
            client_url=fields.text("client_url"),
            is_reachable=fields.boolean("is_reachable"),
            is_self=fields.boolean("is_self"),
            is_leader=fields.boolean("is_leader"),
            refusal=fields.text("refusal", ""),
        )


@dataclass(frozen=True, slots=True)
class Status:
    """The reply of GET /v1/status; ``summary`` says in one sentence how this member is.

    ``limits_differ`` says in what its configuration differs from the limits of the cluster."""

    member_id: str
    cluster: str
    role: str
    leader_id: str | None
    term: int
    commit_index: int
    applied_index: int
    zxid: int
    is_ready: bool
    summary: str
    version: str
    sessions: int
    znodes: int
    members: tuple[MemberInfo, ...]
    limits_differ: str = ""

    def to_body(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "cluster": self.cluster,
            "role": self.role,
            "leader_id": self.leader_id,
            "term": self.term,
            "commit_index": self.commit_index,
            "applied_index": self.applied_index,
            "zxid": self.zxid,
            "is_ready": self.is_ready,
            "summary": self.summary,
            "version": self.version,
            "sessions": self.sessions,
            "znodes": self.znodes,
            "members": [each.to_body() for each in self.members],
            "limits_differ": self.limits_differ,
        }

    @classmethod
    def from_body(cls, body: Any) -> Status:
        fields = Fields(body, "body")
        return cls(
            member_id=fields.text("member_id"),
            cluster=fields.text("cluster"),
            role=fields.text("role"),
            leader_id=fields.text("leader_id", None),
            term=fields.integer("term"),
            commit_index=fields.integer("commit_index"),
            applied_index=fields.integer("applied_index"),
            zxid=fields.integer("zxid"),
            is_ready=fields.boolean("is_ready"),
            summary=fields.text("summary"),
            version=fields.text("version", ""),
            sessions=fields.integer("sessions", 0),
            znodes=fields.integer("znodes", 0),
            members=fields.items("members", MemberInfo.from_body),
            limits_differ=fields.text("limits_differ", ""),
        )
