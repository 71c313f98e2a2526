"""The optional extras that install the frameworks."""

from __future__ import annotations


def missing_extra(module: str, extra: str) -> ImportError:
    """Return the error for an integration whose framework is not installed."""
    return ImportError(
        f"coordinator.integrations.{module} needs a framework that is not installed: "
        f"python -m pip install 'raft-coordinator[{extra}]'"
    )
