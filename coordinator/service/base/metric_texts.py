"""The HELP texts of the figures that are read at each scrape, by the metric's name.

A name that ends in ``_total`` is a counter, every other one a gauge. A test finds a figure without
a text; until then its metric names its source.
"""

from __future__ import annotations

TEXTS = {
    "coordinator_applied_index": "Index of the last log entry that this member has applied.",
    "coordinator_backups_held": "Backups that are being read from this member now.",
    "coordinator_client_rate_refusals_total": "Requests beyond requests_per_second_max, refused.",
    "coordinator_client_turn_waits_total": "Requests that waited for a turn of their client.",
    "coordinator_client_turns_missed_total": "Requests refused since no turn came in time.",
    "coordinator_clients_asking": "Clients that ask this member now, as far as they are counted.",
    "coordinator_clients_heavy": "Those of them that ask so much that they have to take turns.",
    "coordinator_data_bytes": "Bytes of data in all znodes.",
    "coordinator_is_leader": "1 while this member leads and serves as leader, else 0.",
    "coordinator_is_ready": "1 while requests may be sent to this member, else 0.",
    "coordinator_sessions": "Leases that clients keep alive in the whole cluster.",
    "coordinator_znodes": "Entries of the tree, the root included.",
    "coordinator_zxid": "Zxid of the last change that this member has applied.",
    "coordinator_audit_left_out_total": "Events that have no line in this member's audit log.",
    "coordinator_audit_lines_total": "Lines written to this member's audit log.",
    "coordinator_audit_write_failures_total": "Times the audit log could not be written.",
    "coordinator_engine_alarms_raised_total": "Claims of members that could not be believed.",
    "coordinator_engine_commands_total": "Commands that this member has applied.",
    "coordinator_engine_entries_total": "Entries of the log that this member has applied.",
    "coordinator_engine_disk_free_bytes": "Room on the file system of the data directory.",
    "coordinator_engine_is_disk_full": "1 while this member accepts no writes: its disk is full.",
    "coordinator_engine_is_disk_slow": "1 while syncs of this member's disk take too long to lead.",
    "coordinator_engine_is_unproven": "1 while this member may not vote: it has to catch up first.",
    "coordinator_engine_log_bytes": "Bytes of the log that are kept in memory.",
    "coordinator_engine_log_entries": "Entries of the log behind the last snapshot.",
    "coordinator_engine_members_refused": "Members that are not talked to, since they differ.",
    "coordinator_engine_proposals_in_flight": "Writes in the log that wait for a quorum.",
    "coordinator_engine_queue_length": "Writes that wait to enter the log.",
    "coordinator_engine_snapshots_installed_total": "Snapshots installed from another member.",
    "coordinator_engine_snapshots_made_total": "Snapshots written to this member's own disk.",
    "coordinator_engine_snapshots_sent_total": "Snapshots sent to other members.",
    "coordinator_engine_syncs_total": "Syncs of the log to the disk.",
    "coordinator_engine_sync_seconds_average": "Time that a sync of the log takes, of late.",
    "coordinator_engine_sync_seconds_total": "Time that syncs of the log to the disk have taken.",
}


def text_of(name: str) -> str:
    """Return the HELP text of the metric ``name``."""
    return TEXTS.get(name, f"A figure of this member's engine, {name}.")
