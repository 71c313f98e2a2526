"""Options of the whole suite."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout

# As the entry point offers them where the package is installed.
from coordinator.testing.plugin import (
    _coordinator_cluster_of_the_run as _coordinator_cluster_of_the_run,
)
from coordinator.testing.plugin import coordinator_client as coordinator_client
from coordinator.testing.plugin import coordinator_cluster as coordinator_cluster
from coordinator.testing.plugin import shared_coordinator_cluster as shared_coordinator_cluster
from tests import amount, put_aside
from tests.patience import patient
from tests.patience import unhurried_tries as unhurried_tries

TESTS = Path(__file__).resolve().parent


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


def pytest_configure(config: pytest.Config) -> None:
    """Draw few histories in the fast suite (``tests/amount.py``).

    Hear SIGINT even where whoever started us ignores it, as shells do for background jobs.

    Keep compiled files even where containers forbid it: every worker, and each of the hundreds of
    processes that tests start, would compile everything by itself, and rewrite every assertion.
    """
    amount.is_quick = "not check" in config.option.markexpr
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> object:
    """Give a test longer where the machine is busy: its limit is that of an idle one."""
    return pytest_timeout.pytest_timeout_set_timer(
        item, settings._replace(timeout=patient(settings.timeout))
    )


LONGEST = (
    "simulation/test_simulation.py", "client/test_broken_connections.py", "wire/test_cycles.py",
    "wire/test_loop_time.py", "wire/test_access.py", "raft/test_engine_faults.py", "members/",
    "examples/", "mutants/test_mutants.py", "cluster/",
    "simulation/", "cli/test_locks.py",
    "raft/network/test_relay.py", "fuzz/", "docs/test_http_locks.py",
    "raft/storage/test_slow_disk.py", "cli/", "recipes/test_interrupt", "recipes/test_cancel",
    "testing/", "client/", "wire/test_command_time.py", "guards/",
    "test_house.py",
)  # fmt: skip
"""What takes longest, longest first: begun last, it would leave the other cores nothing to do."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: fifteen thousand tests are made, and all of them are kept."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Put aside what all tests share, as a member does: no collection goes through it again."""
    put_aside.put_aside()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Look at what the tests of a file have put aside, after its last one."""
    if nextitem is None or nextitem.path != item.path:
        put_aside.after_a_file()


SERVERS = {"postgresql", "mariadb", "redis_server", "object_store"}
"""The fixtures that start servers of others; what uses one belongs to ``make check``."""
CHECKED = re.compile(
    "|".join((r"mark\.(?:check|histories)\b", r"\bfuzz: Fuzz\b", *sorted(SERVERS)))
)
"""What a file has in it of which some test belongs to ``make check``."""


@cache
def _may_be_checked(path: Path) -> bool:
    return CHECKED.search(path.read_text("utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For ``make check``, leave the files alone of which nothing belongs to it: four of five."""
    if not config.option.markexpr.startswith("check"):
        return None
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    is_asked_for = any(collection_path.name in each for each in config.args)
    return None if is_asked_for or _may_be_checked(collection_path) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest, else as it was; mark what needs servers of others, and for
    ``make check`` what draws more histories there."""
    is_check = config.option.markexpr.startswith("check")
    for item in items:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        words = {each for each in params if type(each) is str}
        if SERVERS & words.union(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.check)
        if is_check and item.get_closest_marker("histories"):
            item.add_marker(pytest.mark.check)
        if item.get_closest_marker("check") and not _may_be_checked(item.path):
            raise pytest.UsageError(f"{item.nodeid}: `make check` would not find it (CHECKED)")

    @cache
    def rank_of(path: Path) -> int:
        name = path.relative_to(TESTS).as_posix()
        return next((i for i, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))

    items.sort(key=lambda item: rank_of(item.path))
