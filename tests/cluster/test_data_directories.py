"""Real members on directories that are not theirs, or of which too few are left."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.processes import ProcessCluster

pytestmark = pytest.mark.check

DEADLINE_S = 90.0
"""For what comes at once on an idle machine."""


def stop(cluster: ProcessCluster, *member_ids: str) -> None:
    for each in member_ids:
        cluster.signal(each, 15)
    for each in member_ids:
        cluster.processes[each].wait(DEADLINE_S)


def says(cluster: ProcessCluster, member_id: str, expected: str) -> None:
    """Wait until the member's summary has ``expected`` in it."""
    end, found = time.monotonic() + DEADLINE_S, ""
    while expected not in found:
        status = cluster.status(member_id)
        found = found if status is None else str(status["summary"])
        assert time.monotonic() < end, f"member {member_id}: {found}\n{cluster.logs()}"
        time.sleep(0.1)


def recover(cluster: ProcessCluster, member_id: str, *arguments: str) -> str:
    config = str(cluster.directory / f"member-{member_id}.toml")
    command = [sys.executable, "-m", "coordinator", "recover", "--config", config, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_exchanged_directories_are_refused_and_a_lost_majority_is_recovered(
    tmp_path: Path,
) -> None:
    """Two directories are exchanged, and set right again; then two are lost, all members say what
    is wrong, and the cluster begins again from the third."""
    cluster = ProcessCluster(tmp_path, 3)
    try:
        cluster.start()
        cluster.wait_ready(deadline_s=DEADLINE_S)
        stop(cluster, "1", "2")
        first, second, aside = cluster.data_dir("1"), cluster.data_dir("2"), tmp_path / "aside"
        for source, target in ((first, aside), (second, first), (aside, second)):
            source.rename(target)
        cluster.start("1")
        assert cluster.processes["1"].wait(DEADLINE_S) != 0
        log = cluster.log_path("1").read_text()
        assert "expected the data of member '1' of cluster 'test', found those of member '2'" in log
        for source, target in ((first, aside), (second, first), (aside, second)):
            source.rename(target)
        cluster.start("1", "2")
        cluster.wait_ready(deadline_s=DEADLINE_S)
        says(cluster, "3", "every member is reachable")

        stop(cluster, "1", "2", "3")
        cluster.wipe("1")
        cluster.wipe("2")
        cluster.start()
        for each in cluster.ids:
            says(cluster, each, "members 1, 2 have no vote, and 2 of 3 members are needed")
        stop(cluster, "1", "2", "3")
        assert "Nothing was changed" in recover(cluster, "3")
        recover(cluster, "3", "--yes", "--by", "a test", "--reason", "two disks were lost")
        cluster.wipe("1")
        cluster.wipe("2")
        cluster.start()
        cluster.wait_ready(deadline_s=DEADLINE_S)
        for each in cluster.ids:
            says(cluster, each, "every member is reachable")
        assert "this cluster was begun again" in cluster.log_path("3").read_text()
    finally:
        cluster.stop()


def test_members_are_added_and_removed_by_beginning_again(tmp_path: Path) -> None:
    """As docs/recovery.md says: other lists, recover, and empty directories for all others."""
    for number, members in enumerate((1, 3, 1)):
        cluster = ProcessCluster(tmp_path, members)
        try:
            if number:
                recover(cluster, "1", "--yes", "--by", "a test", "--reason", "another list")
            cluster.start()
            cluster.wait_ready(deadline_s=DEADLINE_S)
            for each in cluster.ids:
                says(cluster, each, "every member is reachable")
            status = cluster.status("1")
            assert status is not None
            assert len(status["members"]) == members
        finally:
            cluster.stop()
        assert cluster.tracebacks() == []
