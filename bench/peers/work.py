"""What a load is: the values that say it, and what a worker of it is.

A worker does one operation when it is called. Where a lock is held it calls ``pause`` with the lock
held: between rounds that waits, so a queue of thousands stays as it is while another system is
measured. Threads and tasks share one client, as the workers of one program would.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

VALUE = b"x" * 100
IN_FLIGHT = 64
"""How many writes of one pipelined operation are under way at once."""

SyncWorker = Callable[[Callable[[], None]], Any]
AsyncWorker = Callable[[Callable[[], Awaitable[None]]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Spec:
    """A load: ``kind`` is lock, handoff, write, pipeline, read or stale."""

    adapter: str
    kind: str
    workers: int
    endpoints: tuple[str, ...]
    leader: int
    pids: tuple[int, ...]

    @property
    def operations(self) -> int:
        """How many operations a call of a worker is."""
        return IN_FLIGHT if self.kind == "pipeline" else 1

    def lock_name(self, number: int) -> str:
        """Return the lock of one worker: its own, or the one that all of them want."""
        return f"lock-{os.getpid()}" + (f"-{number}" if self.kind == "lock" else "")


class SyncAdapter(Protocol):
    def worker(self, number: int) -> SyncWorker: ...

    def close(self) -> None: ...


class AsyncAdapter(Protocol):
    async def worker(self, number: int) -> AsyncWorker: ...

    async def close(self) -> None: ...
