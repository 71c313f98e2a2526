"""The fixtures for pytest; an entry point of the package, so that no test has to import them.

``coordinator_cluster`` is new for each test. ``shared_coordinator_cluster`` is one for the whole
run, healed and emptied before each test that uses it: for many tests that can share a cluster.
Nothing is loaded before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from coordinator.client import Client
    from coordinator.testing import LocalCluster


@pytest.fixture
def coordinator_cluster() -> Iterator[LocalCluster]:
    """A cluster of three members in this process, for this test alone."""
    from coordinator.testing import local_cluster

    with local_cluster() as cluster:
        yield cluster


@pytest.fixture
def coordinator_client(coordinator_cluster: LocalCluster) -> Iterator[Client]:
    """A client of ``coordinator_cluster``."""
    with coordinator_cluster.connect() as client:
        yield client


@pytest.fixture(scope="session")
def _coordinator_cluster_of_the_run() -> Iterator[LocalCluster]:
    from coordinator.testing import local_cluster

    with local_cluster() as cluster:
        yield cluster


@pytest.fixture
def shared_coordinator_cluster(
    _coordinator_cluster_of_the_run: LocalCluster,
) -> Iterator[LocalCluster]:
    """The run's one cluster, without faults, sessions and znodes of earlier tests."""
    _coordinator_cluster_of_the_run.clear()
    yield _coordinator_cluster_of_the_run
    _coordinator_cluster_of_the_run.heal()
