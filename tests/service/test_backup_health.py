"""What is said of backups that members make by themselves."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from coordinator.model.backup import AHEAD_MS_MAX, ScheduledBackups
from coordinator.model.members import MemberReport
from coordinator.service.reporting.cluster_health import BACKUP_LATE, of_cluster
from tests.test_backup_schedule import HOUR_MS, NOW_MS, facts

NONE = ScheduledBackups(every_ms=HOUR_MS)


@dataclass(frozen=True)
class Row:
    backups: tuple[ScheduledBackups | None, ...]
    said: tuple[str, ...]
    started_ms: int = NOW_MS - 10 * HOUR_MS


LATE_MS = BACKUP_LATE * HOUR_MS
ROWS = {
    "none is to be made": Row((None, None), ()),
    "one is there": Row((NONE, NONE.with_success(NOW_MS - LATE_MS)), ()),
    "too old": Row(
        (NONE, NONE.with_success(NOW_MS - LATE_MS - 1)),
        ("The newest backup was made 2 h ago; one is due every 1 h.",),
    ),
    "never": Row((NONE, NONE), ("No backup was made since a start 10 h ago",)),
    "not yet": Row((NONE, NONE), (), started_ms=NOW_MS - HOUR_MS),
    "of a clock that is ahead": Row(
        (NONE.with_success(NOW_MS), NONE.with_success(NOW_MS + 3 * HOUR_MS)),
        ("Member 2 made its newest backup 3 h from now, by its clock: it is not counted.",),
    ),
    "too old, beside one of a clock that is ahead": Row(
        (NONE.with_success(NOW_MS - LATE_MS - 1), NONE.with_success(NOW_MS + 3 * HOUR_MS)),
        ("The newest backup was made 2 h ago; one is due every 1 h.", "Member 2 made its newest"),
    ),
    "of a clock that is not quite ours": Row((NONE, NONE.with_success(NOW_MS + AHEAD_MS_MAX)), ()),
    "it failed": Row(
        (NONE.with_success(NOW_MS - 2_000), NONE.with_failure(NOW_MS - 1_000, "no room")),
        ("Member 2 could not make a backup: No room.",),
    ),
    "it failed, and another one was made": Row(
        (NONE.with_success(NOW_MS - 1_000), NONE.with_failure(NOW_MS - 2_000, "no room")), ()
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_newest_backup_is_judged(name: str) -> None:
    """Of all members together; a failure counts until one was made after it."""
    row = ROWS[name]
    reports = [
        MemberReport(
            str(number),
            client_url="",
            is_self=number == 1,
            facts=facts(str(number), each, started_ms=row.started_ms, sees=("1", "2")),
        )
        for number, each in enumerate(row.backups, 1)
    ]

    health = of_cluster(reports, NOW_MS, "")

    assert len(health.findings) == len(row.said), health
    for found, said in zip(health.findings, row.said, strict=True):
        assert (found.level, said in found.text) == ("warn", True), found
