"""The limits of the machine are those of the configuration, by name and default."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from coordinator.config import LimitsConfig, SessionConfig
from coordinator.state.limits import MachineLimits


def test_defaults_are_those_of_the_config() -> None:
    """The two tables cannot drift apart."""
    assert MachineLimits.of(LimitsConfig(), SessionConfig()) == MachineLimits()


def test_each_limit_is_taken_from_the_config() -> None:
    """A changed value of either section arrives under its name."""
    limits = MachineLimits.of(
        replace(LimitsConfig(), request_window=7), replace(SessionConfig(), sessions_max=3)
    )

    assert (limits.request_window, limits.sessions_max) == (7, 3)


@pytest.mark.parametrize("name", [each.name for each in fields(MachineLimits)])
def test_a_limit_is_at_least_one(name: str) -> None:
    """A machine that can hold nothing is a mistake of whoever built it."""
    with pytest.raises(AssertionError, match=name):
        MachineLimits(**{name: 0})
