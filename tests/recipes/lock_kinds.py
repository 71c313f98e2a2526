"""The two kinds of exclusive lock, for tests that hold of both, and helpers of such tests."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import AsyncClient
from coordinator.recipes import Lock, TreeLock

Kind = type[Lock[AsyncClient]] | type[TreeLock[AsyncClient]]
each_kind = pytest.mark.parametrize("kind", [Lock, TreeLock])
"""The server-run and the client-made lock keep the same promises."""

KINDS: list[Kind] = [Lock, TreeLock]


def now() -> float:
    return asyncio.get_running_loop().time()
