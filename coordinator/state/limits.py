"""What the state machine holds at most: part of every decision it takes.

A limit decides whether a command is refused, so it is part of the replicated history: all members
of a cluster must be configured with the same values, and change them only while all are stopped.
The names are those of ``coordinator.config`` (sections ``limits`` and ``sessions``), which this
room does not import; a test holds the two to the same names and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The limits of the tree, the sessions and the exactly-once table; units in the names."""

    data_bytes_max: int = 1_048_576
    """Data of one znode; also what the reads of one command may return together."""
    path_bytes_max: int = 1_024
    path_depth_max: int = 64
    children_max: int = 100_000
    znodes_max: int = 1_000_000
    state_bytes_max: int = 1024 * 1024 * 1024
    """Data, paths and a flat sum for each znode (``tree.ZNODE_OVERHEAD_BYTES``)."""
    operations_per_multi_max: int = 1_000
    """Conditions and both branches of a guarded write count together."""
    ephemerals_per_session_max: int = 20_000
    recursive_delete_max: int = 10_000
    request_window: int = 128
    clients_max: int = 20_000
    remembered_bytes_max: int = 256 * 1024 * 1024
    """Outcomes remembered for retries, together; the least recently used clients go first."""
    released_grants_max: int = 4_096
    grant_history_max: int = 10_000
    grant_history_bytes_max: int = 16 * 1024 * 1024
    """Grants that ended and are still told of, together (by a fixed estimate)."""
    timeout_ms_min: int = 1_000
    timeout_ms_max: int = 3_600_000
    sessions_max: int = 50_000

    def __post_init__(self) -> None:
        for each in fields(self):
            assert getattr(self, each.name) >= 1, f"{each.name} must be at least 1"

    @classmethod
    def of(cls, limits: object, sessions: object) -> MachineLimits:
        """Take each limit by its name from the config's ``limits`` or ``sessions`` section."""
        values = {}
        for each in fields(cls):
            source = limits if hasattr(limits, each.name) else sessions
            values[each.name] = getattr(source, each.name)
        return cls(**values)
