"""The counts of this run for every test here, and what was done at its end."""

from __future__ import annotations

import pytest

from tests.fuzz.budget import Fuzz

SECONDS_MAX = 24 * 3600
RUN = pytest.StashKey[Fuzz]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More than a glance takes as long as it takes."""
    for item in items:
        if "tests/fuzz/" in item.path.as_posix() and item.config.option.fuzz != "glance":
            item.add_marker(pytest.mark.timeout(SECONDS_MAX), append=False)


@pytest.fixture
def fuzz(pytestconfig: pytest.Config) -> Fuzz:
    """The counts and the seed of this run."""
    if RUN not in pytestconfig.stash:
        option = pytestconfig.option
        pytestconfig.stash[RUN] = Fuzz(option.fuzz, option.fuzz_count, option.fuzz_seed)
    return pytestconfig.stash[RUN]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what each target got."""
    if RUN in config.stash and config.option.fuzz != "glance":
        run = config.stash[RUN]
        terminalreporter.section(f"bad input, seed {run.seed}")
        for line in run.summary():
            terminalreporter.write_line(line)
