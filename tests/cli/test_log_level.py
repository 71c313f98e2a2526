"""The verb ``log-level``: says on which members it was set."""

from __future__ import annotations

import logging

from coordinator.cli.output import EXIT_REFUSED, EXIT_USAGE
from tests.cli.conftest import CommandLine


def test_the_level_of_a_running_member_is_changed(coordinator: CommandLine) -> None:
    """This process is the member."""
    before = logging.getLogger().level
    try:
        assert coordinator.text("log-level", "error") == "error on 1\n"
        assert logging.getLogger().level == logging.ERROR
        assert coordinator.json("log-level", "warning", "--member", "1") == {
            "level": "warning", "set": ["1"], "not_set": {},
        }  # fmt: skip
    finally:
        logging.getLogger().setLevel(before)
    assert coordinator("log-level", "loud").exit_code == EXIT_USAGE
    assert coordinator("log-level", "info", "--member", "9").exit_code == EXIT_REFUSED
