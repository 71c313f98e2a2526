"""A SnapshotExchange with what a test does not care about."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.blocking import run_in_thread
from coordinator.raft.storage.snapshot_exchange import SnapshotExchange


def exchange_with(**parts: Any) -> SnapshotExchange:
    """Return one with these parts; it has no store, no log and no replica unless they are named."""
    nothing: dict[str, Any] = {
        "store": cast(Any, None),
        "log": [],
        "replica": cast(Any, None),
        "raft": RaftConfig(),
        "now_ms": lambda: 0,
        "run_blocking": run_in_thread,
        "on_installed": lambda: None,
        "on_failure": lambda error: pytest.fail(f"{error!r}"),
    }
    return SnapshotExchange(**{**nothing, **parts})
