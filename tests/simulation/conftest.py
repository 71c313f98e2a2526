"""What tests of simulated worlds share."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest

from tests.simulation.campaign import quiet


@pytest.fixture
def is_quiet() -> Iterator[None]:
    """Be quiet for the length of a test only: other tests read the log."""
    level = logging.root.manager.disable
    with warnings.catch_warnings():
        quiet()
        yield
    logging.disable(level)
