"""A member's status, and the members that it knows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from coordinator.model.backup import ScheduledBackups
from coordinator.model.fields import Count, described, one_of

DEVELOPMENT = "dev"
"""The name of a cluster of ``coordinator dev``: on no other do stories play."""


class MemberInfo(Struct, frozen=True):
    """One member of the cluster, as the answering member sees it."""

    member_id: str
    client_url: str
    is_reachable: bool
    is_self: bool
    is_leader: bool
    refusal: str = ""
    """Why the answering member refuses this one, in one sentence; "" if it does not."""


class Status(Struct, frozen=True):
    """The reply of GET /v1/status; ``summary`` says in one sentence how this member is."""

    member_id: str
    cluster: str
    role: Annotated[str, one_of("follower", "candidate", "leader")]
    leader_id: str | None
    term: Count
    commit_index: Count
    applied_index: Count
    zxid: Count
    is_ready: bool
    summary: str
    version: str
    """The version of the product that answers."""
    sessions: Count
    znodes: Count
    members: tuple[MemberInfo, ...]
    cluster_id: Annotated[
        str,
        described(
            "the id that the cluster drew when it began, or began again by a restore or a recovery;"
            " empty while this member knows of none"
        ),
    ] = ""
    limits_differ: Annotated[
        str, described("in what its configuration differs from the limits of the cluster")
    ] = ""
    reserve: Annotated[
        str, described("what is so full that only its reserve is left, and what to do")
    ] = ""
    warnings: Annotated[
        tuple[str, ...],
        described(
            "which certificate expires soon, what file cannot be used as it is, and how many locks "
            "are held by hand for longer than planned"
        ),
    ] = ()
    off: Annotated[tuple[str, ...], described("which protection is off at this member")] = ()
    access: Annotated[
        str,
        one_of("off", "on"),
        described("whether access rights are checked; while they are off, all may do everything"),
    ] = "off"
    learn_url: Annotated[
        str, described("where stories play on this cluster of `coordinator dev`; on others empty")
    ] = ""

    backups: Annotated[
        ScheduledBackups | None, described("backups that it makes by itself; null: none")
    ] = None


class Health(Struct, frozen=True):
    """The reply of GET /health/live and /health/ready; ``reason`` says why it is not ready."""

    status: str
    reason: str
