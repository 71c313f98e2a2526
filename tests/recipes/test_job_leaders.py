"""A job on three members whose leader dies, is cut off, and has another clock than the next."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import connect
from coordinator.recipes import Job, Jobs
from coordinator.testing import local_cluster

pytestmark = pytest.mark.check

HOUR_MS = 3_600_000


def test_no_interval_is_run_twice_by_leaders_that_disagree_about_the_time() -> None:
    """The next leader is two hours behind: nothing is due. It is set right, and ahead: once."""
    runs: list[int] = []

    def work(run: Any) -> None:
        runs.append(run.start_ms)

    with local_cluster(members=3) as cluster, cluster.connect() as one, cluster.connect() as other:
        assert Job(one, "report", every="1h").run(work).state == "ran"
        for follower in cluster.followers:
            cluster.step_clock(follower, -2 * HOUR_MS)
        cluster.kill()

        behind = Job(one, "report", every="1h").run(work)

        assert behind.state == "done"
        assert abs(behind.jump_ms + 2 * HOUR_MS) < HOUR_MS / 10
        (view,) = Jobs(other).list()
        assert view.behind_ms > HOUR_MS
        cluster.step_clock(cluster.leader, 3 * HOUR_MS)
        ahead = Job(other, "report", every="1h").run(work)
        assert (ahead.state, len(ahead.runs)) == ("ran", 1)
        Job(one, "report", every="1h").run(work)
        assert len(set(runs)) == len(runs) >= 2


def test_the_member_that_is_asked_does_not_say_the_time() -> None:
    """A follower with a clock of its own passes a write on; the leader's time is in it."""
    with local_cluster(members=3) as cluster:
        for follower in cluster.followers:
            cluster.step_clock(follower, 12 * HOUR_MS)
        found = []
        for member_id in cluster.members:
            with connect(cluster.url(member_id)) as client:
                found.append(client.create(f"/by-{member_id}").stat.ctime_ms)

    assert max(found) - min(found) < HOUR_MS
