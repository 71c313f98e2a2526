"""Backups that members make by themselves: one member at a time, and another when it is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import connect
from coordinator.node.backups import checked
from tests.cli.conftest import CommandLine
from tests.cluster.conftest import MakeCluster
from tests.cluster.processes import ProcessCluster
from tests.patience import patient

pytestmark = pytest.mark.check

EVERY_MS = 1_000


def until(is_so: Callable[[], Any], what: str) -> Any:
    """Wait until ``is_so`` returns something that is true."""
    end = time.monotonic() + patient(40)
    while not (found := is_so()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def made(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.backup"))


def by(path: Path) -> str:
    """Return the member that made it."""
    return path.stem.rpartition("-")[2]


def succeeded_ms(cluster: ProcessCluster, member_id: str) -> int | None:
    """Return when a member made its newest one, as its status says."""
    status = cluster.status(member_id)
    return None if status is None else status["backups"]["succeeded_ms"]


@pytest.mark.timeout(200)
def test_one_member_makes_them_and_another_when_it_stops(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """The oldest go, the rest are whole. Who makes one: tests/test_backup_schedule.py."""
    directory = tmp_path / "backups"
    cluster = make_cluster(backup={"directory": str(directory), "every_ms": EVERY_MS, "keep": 3})
    with connect(cluster.urls, timeout=15) as client:
        client.create("/kept", b"x" * 100_000)
    leader = cluster.leader()
    first, second = (each for each in cluster.ids if each != leader)

    until(lambda: len(made(directory)) == 3, "three backups")
    oldest = made(directory)[0]
    until(lambda: not oldest.exists(), "the oldest goes")
    cluster.kill(first)
    newest = until(
        lambda: [each for each in made(directory) if by(each) == second], "one by the other"
    )

    assert len(made(directory)) <= 4
    checked(str(newest[-1]))
    until(lambda: succeeded_ms(cluster, second), "it says so")
    status, said = CommandLine(cluster.url(second)), f", by member {second}"
    until(lambda: said in status("status").stdout.partition("newest backup ")[2], "all say so")
    assert cluster.metric(second, "coordinator_backup_success_timestamp_seconds") > 0
    assert cluster.tracebacks() == []


@pytest.mark.timeout(200)
def test_a_command_that_fails_is_said_and_leaves_the_older_ones(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """In the status, as a sentence; as soon as it works one is made, and the sentence goes."""
    directory, command, seen = (tmp_path / each for each in ("backups", "after", "seen"))
    command.write_text(f'#!/bin/sh\n[ -e "{seen}" ] || exit 3\necho "$1" >> "{seen}"\n')
    command.chmod(0o755)
    settings = {"directory": str(directory), "every_ms": EVERY_MS, "command": str(command)}
    cluster = make_cluster(members=1, backup=settings)

    def findings() -> str:
        _, found = cluster.get("1", "/v1/members")
        return json.dumps(found["health"]["findings"])

    until(lambda: "ended with status 3" in findings(), "the failure is said")
    until(lambda: "No backup was made since a start" in findings(), "none is there")
    assert made(directory) == []
    seen.touch()
    until(lambda: len(made(directory)) >= 2, "backups are made")
    until(lambda: "status 3" not in findings(), "the failure is over")

    paths = seen.read_text().split()
    assert str(made(directory)[0]) in paths
    assert cluster.tracebacks() == []
