"""The status and the metrics of an engine, read from its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.raft.engine import EngineStatus, Role
from coordinator.raft.entries import Entries
from coordinator.raft.network.transport import MemberTransport
from coordinator.raft.passes import Passes
from coordinator.raft.rejoin.trust import Trust
from coordinator.raft.storage.journal import Journal


def status_before_start(member_id: str, others: tuple[str, ...]) -> EngineStatus:
    """Return the status of a member that has read nothing yet."""
    return EngineStatus(
        member_id, Role.FOLLOWER, 0, None, 0, 0, 0, 0, is_ready=False,
        is_reachable=dict.fromkeys(others, False),
    )  # fmt: skip


def status(
    passes: Passes,
    transport: MemberTransport,
    trust: Trust,
    others: Sequence[str],
    *,
    is_running: bool,
) -> EngineStatus:
    """Return the status of a member that has started."""
    consensus = passes.consensus
    core = consensus.core
    return EngineStatus(
        member_id=consensus.member_id,
        role=core.role,
        term=core.term,
        leader_id=consensus.leader_id if is_running else None,
        commit_index=core.commit_index,
        applied_index=core.applied_index,
        last_index=consensus.last_index,
        snapshot_index=passes.snapshots.snapshot_index,
        is_ready=is_running and passes.is_ready(),
        is_reachable={other: is_running and transport.is_connected(other) for other in others},
        trouble=passes.disk_health.trouble,
        refused=trust.refused(),
        alarms=trust.alarms.all(),
        lost_by="disk" if passes.log_sync.is_slow else consensus.lost_by(),
        obstacle=passes.incarnations.obstacle(has_leader=consensus.leader_id is not None),
    )


def figures_of_traffic(entries: Entries, trust: Trust) -> dict[str, float]:
    """Return what is counted of entries and of other members' claims."""
    proposals = entries.proposals
    return {
        "entries_total": float(entries.entries_total),
        "commands_total": float(entries.commands_total),
        "queue_length": float(proposals.queue_length),
        "proposals_in_flight": float(proposals.in_flight),
        "members_refused": float(len(trust.refused())),
        "alarms_raised_total": float(trust.alarms.raised_total),
    }


def figures_of_storage(passes: Passes, log: Journal) -> Mapping[str, float]:
    """Return what is counted of the log, its disk and its snapshots; times in seconds."""
    log_sync, snapshots = passes.log_sync, passes.snapshots
    return {
        "is_unproven": float(not passes.consensus.recovering.is_proven),
        "is_disk_full": float(passes.disk_health.is_disk_full),
        "is_disk_slow": float(log_sync.is_slow),
        "disk_free_bytes": log.free_bytes,
        "syncs_total": float(log_sync.sync_count),
        "sync_seconds_total": log_sync.sync_seconds_total,
        "sync_seconds_average": log_sync.average_seconds,
        "snapshots_made_total": float(snapshots.made_total),
        "snapshots_sent_total": float(snapshots.sent_total),
        "snapshots_installed_total": float(snapshots.installed_total),
        "log_bytes": float(log.bytes_in_memory),
        "log_entries": float(len(log)),
    }
