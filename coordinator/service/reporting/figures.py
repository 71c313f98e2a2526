"""The figures of a member's metrics that are read at each scrape, and their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coordinator.audit.event import Audit
from coordinator.service.base.context import MemberContext
from coordinator.service.locks.hold_times import HoldTimes
from coordinator.service.writes.limits import LimitsService


def show_figures(
    context: MemberContext,
    holds: HoldTimes,
    limits: LimitsService,
    audit: Audit,
    is_ready: Callable[[], bool],
) -> None:
    """Show the figures of these parts of one member in ``metrics``."""

    metrics, engine = context.metrics, context.engine

    def of_the_member() -> Mapping[str, float]:
        machine = context.replica.machine
        return {
            "zxid": machine.zxid,
            "applied_index": machine.applied_index,
            "is_leader": float(context.leadership.is_leader),
            "is_ready": float(is_ready()),
            "sessions": machine.session_count,
            "znodes": machine.znode_count,
            "data_bytes": machine.data_bytes,
        }

    metrics.add_facts("engine_", engine.metrics)
    metrics.add_facts("", of_the_member)
    metrics.add_facts("", audit.figures)
    metrics.add_facts("", context.turns.figures)
    metrics.add_facts_by(
        "reserve_reached",
        "1 while so much of a limit is used that only its reserve is left, else 0.",
        "limit",
        limits.reserve_reached,
    )
    metrics.add_facts_by(
        "identity_used_max",
        "How much the identity has that has the most of what quotas bound.",
        "quota",
        lambda: context.replica.machine.quotas.most_used(),
    )
    metrics.add_facts_by(
        "peer_reachable",
        "1 while this member is connected to the other one, else 0.",
        "peer_id",
        lambda: engine.status().is_reachable,
    )
    metrics.add_facts_by(
        "lock_waiting",
        "Contenders that wait for locks of a class, as seen here.",
        "lock_class",
        holds.waiting_by_class,
    )
