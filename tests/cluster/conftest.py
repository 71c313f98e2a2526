"""Clusters of real processes for the tests beside it; every process is ended with its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import ProcessCluster

MakeCluster = Callable[..., ProcessCluster]


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
