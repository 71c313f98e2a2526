"""The state that a snapshot holds: its tables, built and checked against each other."""

from __future__ import annotations

from coordinator.state.access.table import AccessTable
from coordinator.state.dedup import ReleasedTable, RequestTable
from coordinator.state.large_map import LargeMap
from coordinator.state.locks.restored import restored_locks
from coordinator.state.sessions import SessionTable
from coordinator.state.slices import Whole
from coordinator.state.snapshot import Capture
from coordinator.state.thread_breaks import with_breaks
from coordinator.state.tree import Tree


def restored(capture: Capture) -> Whole:
    """Return the state of a capture that was decoded; raises ValueError if it is none."""
    assert isinstance(capture.znodes, LargeMap), "so it is decoded"
    tree = Tree.of(capture.znodes, capture.sequence_floor)
    tree.least_sequence = capture.least_sequence
    limits = capture.limits.limits
    sessions = SessionTable(limits, capture.sessions, capture.leaving, capture.revoked)
    for owner in with_breaks(tree.owners()):
        if not sessions.is_kept(owner) and owner not in sessions.leaving:
            raise ValueError(f"snapshot: session {owner} owns znodes and is not open")
    requests = RequestTable(limits, capture.requests)
    released = ReleasedTable(limits.released_grants_max, capture.released)
    locks = restored_locks(tree, limits, capture.locks)
    access = AccessTable(capture.access)
    return Whole(
        capture.zxid, capture.applied_index, capture.limits, tree, sessions, requests, released,
        locks, access,
    )  # fmt: skip
