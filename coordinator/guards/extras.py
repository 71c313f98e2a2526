"""The optional extras that install the clients of the stores."""

from __future__ import annotations


def missing_extra(guard: str, extra: str) -> ImportError:
    """Return the error for a ``guard`` whose store's client is not installed."""
    return ImportError(
        f"{guard} needs a client library that is not installed: "
        f"python -m pip install 'raft-coordinator[{extra}]'"
    )
