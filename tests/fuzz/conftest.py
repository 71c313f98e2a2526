"""The counts of this run for every test here, and what was done at its end."""

from __future__ import annotations

import pytest

from tests.fuzz.budget import Fuzz

SECONDS_MAX = 24 * 3600
RUN = pytest.StashKey[dict[str, Fuzz]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of bad input is run at a glance, and in ``make check`` with a closer look."""
    if "fuzz" in metafunc.fixturenames:
        column = metafunc.config.option.fuzz
        look = [pytest.param("look", marks=pytest.mark.check)] if column == "glance" else []
        metafunc.parametrize("fuzz", [column, *look], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More than a glance takes as long as it takes."""
    for item in items:
        if "tests/fuzz/" in item.path.as_posix() and item.config.option.fuzz != "glance":
            item.add_marker(pytest.mark.timeout(SECONDS_MAX), append=False)


@pytest.fixture
def fuzz(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Fuzz:
    """The counts and the seed of this run."""
    option, column = pytestconfig.option, request.param
    runs = pytestconfig.stash.setdefault(RUN, {})
    if column not in runs:
        runs[column] = Fuzz(column, option.fuzz_count, option.fuzz_seed)
    return runs[column]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what each target got."""
    if RUN in config.stash and config.option.fuzz != "glance":
        run = config.stash[RUN][config.option.fuzz]
        terminalreporter.section(f"bad input, seed {run.seed}")
        for line in run.summary():
            terminalreporter.write_line(line)
