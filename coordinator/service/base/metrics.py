"""The metrics of one member, in a registry of its own; rendered as Prometheus text.

Names start with ``coordinator_`` and end in their unit. No label names a path, a session or a
client: metrics must not leak what they count. Of a lock they show only its class: the beginning of
its name, up to the first colon or slash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from coordinator.service.base.tallies import Histogram, Kept, Labelled, Level, Tally

# Of the figures that are read at each scrape. A name that ends in ``_total`` is a counter, every
# other one a gauge. A test finds a figure without a text.
TEXTS = {
    "coordinator_applied_index": "Index of the last log entry that this member has applied.",
    "coordinator_backup_every_seconds": "How often this member makes backups; 0: it makes none.",
    "coordinator_backup_failure_timestamp_seconds": "When a backup of its own failed; 0: never.",
    "coordinator_backup_success_timestamp_seconds": "When it made its newest backup; 0: never.",
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


if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HELD_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0)

_COUNTED = "_total"

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Source(Protocol):
    """What prometheus_client calls a Collector, which is loaded at the first scrape."""

    def collect(self) -> Iterator[Metric]:
        """Return the figures, for a scrape."""
        ...

    def describe(self) -> Iterator[Metric]:
        """Return the names, or nothing."""
        ...


class _Facts:
    """Counters and gauges that are read at each scrape, by ``read``; the name says which it is.

    With a ``label`` it is one gauge, with a value for each value of the label."""

    def __init__(
        self, name: str, read: Callable[[], Mapping[str, float]], text: str = "", label: str = ""
    ) -> None:
        self._name = name
        self._read = read
        self._text = text
        self._label = label

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = sorted(self._read().items())
        if self._label:
            family = GaugeMetricFamily(self._name, self._text, labels=[self._label])
            for label, value in found:
                family.add_metric([label], value)
            yield family
            return
        for short, value in found:
            name = self._name + short
            if name.endswith(_COUNTED):
                yield CounterMetricFamily(name.removesuffix(_COUNTED), text_of(name), value)
            else:
                yield GaugeMetricFamily(name, text_of(name), value)

    def describe(self) -> Iterator[Metric]:
        return iter(())


class Metrics:
    """Counters and histograms of one member; created once and handed to its parts."""

    def __init__(self) -> None:
        self._sources: list[_Source] = []
        self._registry: CollectorRegistry | None = None
        self.what_runs: Callable[[], tuple[str, str]] | None = None
        """Says which version of this product and of Python runs."""
        self._led_term = 0
        self._count_requests()
        self._count_sessions()
        self._count_state()
        self._count_locks()

    def _count_requests(self) -> None:
        self._build = self._gauges(
            "build_info", "Always 1; its labels say what runs here.", "version", "python"
        )
        self.leader_changes = self._counter(
            "leader_changes", "Leaderships that this member has learned of since it started."
        )
        self.leader_losses = self._counters(
            "leader_losses",
            "Times this member lost the leader or, leading, its quorum, by what it saw: a pause of "
            "its own, its disk, the link, silence.",
            "cause",
        )
        for cause in ("pause", "disk", "link", "silence"):
            self.leader_losses.labels(cause)
        self.requests = self._counters(
            "requests",
            "Requests answered, by operation, status and the door that they came through.",
            "route",
            "status",
            "door",
        )
        self.proposals = self._counters(
            "proposals", "Writes taken by this member, by their result.", "result"
        )
        self.proposals.labels("done")
        self.proposal_seconds = self._histogram(
            "proposal_seconds", "From taking a write to knowing its outcome.", _SECONDS
        )
        self.reads = self._counters("reads", "Reads taken by this member.", "consistency")
        self.read_seconds = self._histograms(
            "read_seconds",
            "From taking a read to the state being fresh enough for it.",
            _SECONDS,
            "consistency",
        )

    def _count_sessions(self) -> None:
        self.heartbeats = self._counters("heartbeats", "Heartbeats taken, by answer.", "result")
        self.heartbeats.labels("acknowledged")
        self.heartbeat_rounds = self._counter(
            "heartbeat_rounds", "Rounds in which a quorum confirmed heartbeats here."
        )
        self.heartbeat_requests = self._counter(
            "heartbeat_requests", "Batches of heartbeats passed on to the leader."
        )
        self.leases = self._gauge("leases", "Leases this member keeps as leader.")
        self.leases_looked_at = self._counter(
            "leases_looked_at", "Leases that ticks looked at, because they may have run out."
        )
        self.lease_restarts = self._counter(
            "lease_restarts", "Times all leases were started again because the leader stalled."
        )
        self.sessions_expired = self._counter("sessions_expired", "Sessions ended by silence.")
        self.sessions_failed = self._counter(
            "sessions_failed", "Sessions ended here by their client, which was not well."
        )

    def _count_state(self) -> None:
        self.slices_compared = self._counter(
            "state_slices_compared", "Slices of the state compared with other members, as leader."
        )
        self.slices_missed = self._counter(
            "state_slices_missed", "Digests not received because a member was past the index."
        )
        self.slices_different = self._counter(
            "state_slices_different", "Slices of the state in which members differed."
        )
        self.state_rounds = self._counter(
            "state_rounds", "Times this leader has gone through the whole state, comparing it."
        )
        self.state_round_seconds = self._gauge(
            "state_round_seconds",
            "Between the ends of this leader's last two rounds: so long may a difference last"
            " while members answer.",
        )
        self.has_diverged = self._gauge(
            "has_diverged", "1 when this member stopped answering because states differ."
        )
        self.reaped = self._counter("znodes_reaped", "Idle containers and ttl znodes deleted.")
        self.watch_streams = self._gauge(
            "watch_streams", "Streams of changes that clients keep open here."
        )
        self.watch_changes = self._counter("watch_changes", "Changes put to watch streams.")

    def _count_locks(self) -> None:
        self.holds_ended = self._counter(
            "holds_ended", "Holds ended by this leader because their max_hold_ms was over."
        )
        self.contenders_waiting = self._gauge(
            "contenders_waiting", "Acquires and campaigns that wait on this member."
        )
        self.wakeups = self._counter(
            "contender_wakeups", "Waiting contenders woken because they were granted."
        )
        self.grants = self._counters("grants", "Grants answered by this member.", "recipe")
        self.long_holds = self._gauge(
            "long_holds", "Locks held for longer than limits.long_hold_ms, as seen here."
        )
        self.manual_locks = self._gauge("manual_locks", "Locks that are held by hand.")
        self.manual_locks_overdue = self._gauge(
            "manual_locks_overdue", "Locks held by hand for longer than their holders planned."
        )
        self.wait_seconds = self._histograms(
            "grant_wait_seconds",
            "From asking for a grant to having it, by class of lock.",
            _HELD_SECONDS,
            "recipe",
            "lock_class",
        )
        self.hold_seconds = self._histograms(
            "lock_hold_seconds",
            "From the grant to its end, by class of lock, as this member saw it while it led.",
            _HELD_SECONDS,
            "lock_class",
        )

    def add_facts(self, prefix: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Show what ``read`` returns, by name, at each scrape."""
        self._add(_Facts(f"coordinator_{prefix}", read))

    def add_facts_by(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Show what ``read`` returns as one gauge, with a value for each value of ``label``."""
        self._add(_Facts(f"coordinator_{name}", read, text, label))

    def note_leader(self, leader_id: str | None, term: int) -> None:
        """Count a leadership that this member has learned of."""
        if leader_id is not None and term > self._led_term:
            self._led_term = term
            self.leader_changes.inc()

    @staticmethod
    def load() -> None:
        """Load what renders them, which takes long; may run in a thread."""
        import_module("prometheus_client")

    @property
    def registry(self) -> CollectorRegistry:
        """Everything, as prometheus_client reads it."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.process_collector import ProcessCollector

        if self._registry is None:
            self._registry = CollectorRegistry()
            ProcessCollector(registry=self._registry)
            for each in self._sources:
                self._registry.register(cast("Collector", each))
        if self.what_runs is not None:
            self._build.labels(*self.what_runs()).set(1)
        return self._registry

    def render(self) -> bytes:
        """Return the text exposition of everything."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def _add(self, source: _Source) -> None:
        self._sources.append(source)
        if self._registry is not None:
            self._registry.register(cast("Collector", source))

    def _counter(self, name: str, text: str) -> Tally:
        return self._counters(name, text).labels()

    def _counters(self, name: str, text: str, *labels: str) -> Labelled[Tally]:
        return self._labelled(Labelled(Tally, f"coordinator_{name}", text, labels))

    def _gauge(self, name: str, text: str) -> Level:
        return self._gauges(name, text).labels()

    def _gauges(self, name: str, text: str, *labels: str) -> Labelled[Level]:
        return self._labelled(Labelled(Level, f"coordinator_{name}", text, labels))

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
        return self._histograms(name, text, bounds).labels()

    def _histograms(
        self, name: str, text: str, bounds: tuple[float, ...], *labels: str
    ) -> Labelled[Histogram]:
        return self._labelled(Labelled(Histogram, f"coordinator_{name}", text, labels, bounds))

    def _labelled(self, counted: Labelled[Kept]) -> Labelled[Kept]:
        self._add(counted)
        return counted
