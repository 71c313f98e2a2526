"""Options of the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rewrite`` renews the golden traces instead of comparing with them."""
    parser.addoption("--rewrite", action="store_true", help="renew tests/traces")
