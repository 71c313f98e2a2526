"""The two members that bad requests go to: one over the loopback engine, one with a disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from coordinator.config import HttpConfig
from tests.cli.serving import ServedMember
from tests.cluster.processes import ProcessCluster


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
            said = self.log.read_text(errors="replace")
            for word in ("Traceback", " ERROR ", " CRITICAL "):
                assert word not in said, said[-3_000:]


@contextmanager
def on_loopback(http: HttpConfig | None = None) -> Iterator[Served]:
    """One member in a thread of this process, which keeps nothing."""
    served = ServedMember(http)
    served.start()
    try:
        yield Served(served.url, None, None, served)
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
