"""The members: fixed by the configuration for the life of the cluster.

The library's own change of membership is unsafe and refused (row 25).
"""

from __future__ import annotations

from coordinator.errors import ConfigError
from coordinator.node.config import ClusterConfig, MemberConfig, RaftConfig

ELECTION_TIMEOUT_MS_LONGEST = 3_500
"""PySyncObj wants it within the time after which it takes a connection for dead."""


def check_members(cluster: ClusterConfig, member: MemberConfig) -> tuple[str, ...]:
    """Return the ids of all members in their order; ConfigError unless this is one of them."""
    member_ids = tuple(address.member_id for address in cluster.members)
    if len(set(member_ids)) != len(member_ids):
        raise ConfigError(f"cluster.members: expected different member ids, found {member_ids}")
    if member.member_id not in member_ids:
        raise ConfigError(
            f"member.member_id: expected one of {', '.join(member_ids)}, found {member.member_id!r}"
        )
    return member_ids


def check_timing(raft: RaftConfig) -> None:
    """Raise ConfigError unless a follower hears several heartbeats within an election timeout, and
    the library takes that."""
    low, high = raft.election_timeout_ms_min, raft.election_timeout_ms_max
    if not 3 * raft.heartbeat_interval_ms < low < high:
        raise ConfigError(
            "raft.election_timeout_ms_min: expected more than three heartbeat intervals"
            f" ({3 * raft.heartbeat_interval_ms} ms) and less than the maximum ({high} ms),"
            f" found {low} ms"
        )
    if high > ELECTION_TIMEOUT_MS_LONGEST:
        raise ConfigError(
            f"raft.election_timeout_ms_max: expected at most {ELECTION_TIMEOUT_MS_LONGEST} ms,"
            f" because PySyncObj, the Raft library, takes no more, found {high} ms"
        )
