"""Which member makes the next backup: all that look at the same facts come to the same one."""

from __future__ import annotations

import pytest

from coordinator.model.backup import AHEAD_MS_MAX, ScheduledBackups
from coordinator.model.members import ClusterHealth, MemberFacts, MemberList, MemberReport
from coordinator.node.backup_schedule import is_due_at

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
NONE = ScheduledBackups(every_ms=HOUR_MS)


def facts(member_id: str, backups: ScheduledBackups | None, **changed: object) -> MemberFacts:
    usual: dict[str, object] = {
        "role": "leader" if member_id == "1" else "follower", "is_ready": True, "sees": (),
    }  # fmt: skip
    numbers = dict.fromkeys(
        ("term", "commit_index", "applied_index", "last_index", "snapshot_index", "log_entries",
         "zxid", "started_ms"), 0
    )  # fmt: skip
    return MemberFacts(
        member_id=member_id, leader_id="1", summary="", version="", backups=backups,
        **{**numbers, **usual, **changed},
    )  # type: ignore[arg-type] # fmt: skip


def chosen(*found: MemberFacts | None, now_ms: int = NOW_MS) -> list[str]:
    """Return the members that make a backup now, as each of them sees it."""
    reports = tuple(
        MemberReport(
            each.member_id if each else "silent", client_url="", is_self=False, facts=each
        )
        for each in found
    )
    listed = MemberList(reports, ClusterHealth("good", ""))
    return [each.member_id for each in found if each and is_due_at(each.member_id, listed, now_ms)]


def test_a_follower_makes_it_before_the_leader() -> None:
    """The lowest id of those that are ready and have a directory; the leader if there is none."""
    assert chosen(facts("1", NONE), facts("2", NONE), facts("3", NONE)) == ["2"]
    assert chosen(facts("1", NONE), facts("2", None), facts("3", NONE)) == ["3"]
    assert chosen(facts("1", NONE), facts("2", NONE, is_ready=False), None) == ["1"]
    assert chosen(facts("1", None), facts("2", None), facts("3", None)) == []


@pytest.mark.parametrize(("age_ms", "is_due"), [(HOUR_MS - 1, False), (HOUR_MS, True)])
def test_it_is_due_by_the_newest_of_all(age_ms: int, is_due: bool) -> None:
    """Whoever made it, also a member that is not ready now."""
    made = NONE.with_success(NOW_MS - age_ms)

    for each in ("1", "2", "3"):
        found = [facts(one, made if one == each else NONE) for one in ("1", "2", "3")]
        assert bool(chosen(*found)) is is_due


def test_one_of_a_clock_that_is_ahead_does_not_count() -> None:
    """Else none would be made until that time has come; clocks may be some minutes apart."""
    ahead = NONE.with_success(NOW_MS + AHEAD_MS_MAX + 1)
    apart = NONE.with_success(NOW_MS + AHEAD_MS_MAX)

    assert chosen(facts("1", NONE), facts("2", NONE), facts("3", ahead)) == ["2"]
    assert chosen(facts("1", NONE), facts("2", NONE), facts("3", apart)) == []


def test_who_failed_last_lets_others_try() -> None:
    """Until one is made; if all have failed, the first of them again."""
    failed = NONE.with_failure(NOW_MS - 60_000, "its disk is full")
    later = failed.with_success(NOW_MS - 2 * HOUR_MS)
    over = failed.with_success(NOW_MS - 1_000)

    assert chosen(facts("1", NONE), facts("2", failed), facts("3", NONE)) == ["3"]
    assert chosen(facts("1", NONE), facts("2", later), facts("3", failed)) == ["1"]
    assert chosen(facts("1", failed), facts("2", failed), facts("3", failed)) == ["2"]
    assert chosen(facts("1", NONE), facts("2", over), now_ms=NOW_MS + HOUR_MS) == ["2"]
