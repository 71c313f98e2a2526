"""The two members that bad requests go to: one over the loopback engine, one with a disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from coordinator.node.config import HttpConfig
from tests.cli.serving import ServedMember
from tests.cluster.processes import ProcessCluster
from tests.fuzz.watch import HANG_SECONDS


@dataclass(frozen=True, slots=True)
class Served:
    """Where a member is; ``pid`` of its process, when it is another one than this."""

    url: str
    pid: int | None
    log: Path | None
    member: ServedMember | None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def check(self) -> None:
        """Fail if the process ended, or wrote what must not be in a log."""
        if self.log is not None:
            text = self.log.read_text(errors="replace")
            for word in ("Traceback", " ERROR ", " CRITICAL "):
                assert word not in text, text[-3_000:]


class Pulse:
    """Beats in the loop of a member in a thread, and measures the longest work between two beats.

    In processor time of that thread: other programs on a busy machine do not prolong it."""

    INTERVAL_S = 0.01

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last: float | None = None
        self.longest_seconds = 0.0
        loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        now = time.thread_time()
        if self._last is not None:
            self.longest_seconds = max(self.longest_seconds, now - self._last)
        self._last = now
        self._loop.call_later(self.INTERVAL_S, self._beat)


@contextmanager
def on_loopback(http: HttpConfig | None = None) -> Iterator[Served]:
    """One member in a thread of this process, which keeps nothing; it never hangs."""
    served = ServedMember(http)
    served.start()
    assert served._loop is not None
    pulse = Pulse(served._loop)
    try:
        yield Served(served.url, None, None, served)
        assert pulse.longest_seconds < HANG_SECONDS
    finally:
        served.stop()


@contextmanager
def with_disk(directory: Path, http: HttpConfig | None = None) -> Iterator[Served]:
    """One member as ``coordinator serve`` runs it: Raft alone, a log, a process of its own."""
    changes = {
        key: value
        for key, value in asdict(http or HttpConfig()).items()
        if key != "bind_port" and value is not None
    }
    cluster = ProcessCluster(directory, 1, {"http": changes})
    cluster.start()
    try:
        cluster.wait_ready()
        served = Served(cluster.url("1"), cluster.processes["1"].pid, cluster.log_path("1"), None)
        yield served
        assert cluster.is_running("1"), cluster.logs()
        served.check()
    finally:
        cluster.stop()
