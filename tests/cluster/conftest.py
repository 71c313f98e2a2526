"""Clusters of real processes for the tests beside it; every process is ended with its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import ProcessCluster
from tests.cluster.scripts import Script

MakeCluster = Callable[..., ProcessCluster]
StartScript = Callable[..., Script]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Start a cluster with these settings and wait until all its members are ready."""
    made: list[ProcessCluster] = []

    def make(members: int = 3, **settings: Any) -> ProcessCluster:
        cluster = ProcessCluster(tmp_path / f"cluster-{len(made)}", members, settings)
        made.append(cluster)
        cluster.start()
        cluster.wait_ready(deadline_s=60)
        return cluster

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three members for all tests of a module: each leaves them running, and no lock behind."""
    made = ProcessCluster(tmp_path_factory.mktemp("cluster"), 3)
    made.start()
    made.wait_ready(deadline_s=60)
    yield made
    made.stop()
    assert made.tracebacks() == []


@pytest.fixture
def start_script() -> Iterator[StartScript]:
    """Start a Python process; ended after the test."""
    started: list[Script] = []

    def start(*arguments: str) -> Script:
        started.append(Script(*arguments))
        return started[-1]

    yield start
    for script in started:
        script.end()
