"""A snapshot that is cancelled while a thread finishes it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any, cast

from coordinator.raft.storage.snapshot_store import SnapshotInfo
from tests.raft.storage.exchanges import exchange_with


async def test_what_cancels_a_snapshot_is_in_no_cycle() -> None:
    """It is freed without the garbage collector, though it was kept until the thread had ended."""
    started, may_end = threading.Event(), threading.Event()

    class Writer:
        def finish(self) -> SnapshotInfo:
            started.set()
            may_end.wait(10)
            return SnapshotInfo(index=90, term=2, size_bytes=0, sha256=b"", path="")

    exchange = exchange_with()
    left: list[weakref.ref[BaseException]] = []

    async def finish() -> None:
        try:
            await exchange._finished(cast(Any, Writer()))
        except asyncio.CancelledError as error:
            left.append(weakref.ref(error))

    finishing = asyncio.ensure_future(finish())
    await asyncio.to_thread(started.wait, 10)
    gc.disable()
    try:
        finishing.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        may_end.set()
        await finishing

        assert [each() for each in left] == [None]
    finally:
        gc.enable()
