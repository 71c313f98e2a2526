"""One round of each fault of ``tests.cluster.singletons``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.singletons import FAULTS, World


@pytest.mark.slow
def test_never_two_write_with_a_valid_token(tmp_path: Path) -> None:
    """Whatever happens to the elected; what was paused as a whole is refused by the store."""
    seen = asyncio.run(World(tmp_path, 3.0).run(tuple(FAULTS), 1))

    assert {fault: each.taken for fault, each in seen.items()} == dict.fromkeys(FAULTS, 0)
    assert {fault for fault, each in seen.items() if each.late} <= {"pause all"}
