"""Options of the whole suite."""

from __future__ import annotations

import signal

import pytest

# As the entry point offers them where the package is installed.
from coordinator.testing.plugin import (
    _coordinator_cluster_of_the_run as _coordinator_cluster_of_the_run,
)
from coordinator.testing.plugin import coordinator_client as coordinator_client
from coordinator.testing.plugin import coordinator_cluster as coordinator_cluster
from coordinator.testing.plugin import shared_coordinator_cluster as shared_coordinator_cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rewrite`` renews the golden traces instead of comparing with them; the rest is said in
    ``tests/fuzz/budget.py``."""
    parser.addoption("--rewrite", action="store_true", help="renew tests/traces")
    fuzz = parser.getgroup("fuzz", "bad input (tests/fuzz)")
    fuzz.addoption(
        "--fuzz",
        choices=("glance", "short", "release"),
        default="glance",
        help="how much bad input: some seconds of each kind, or a column of the table",
    )
    fuzz.addoption(
        "--fuzz-count",
        action="append",
        default=[],
        metavar="TARGET=COUNT",
        help="another count for one target, for example machine=1000000",
    )
    fuzz.addoption("--fuzz-seed", type=int, default=1, help="the seed of everything drawn")


def pytest_configure() -> None:
    """Hear SIGINT even where whoever started us ignores it, as shells do for background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
