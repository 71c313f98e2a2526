"""Control groups of the test's own (version 1), for members short of memory or processor time."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.faults.world import Skipped

_ROOT = Path("/sys/fs/cgroup")
_numbers = itertools.count()


@contextmanager
def limited(controller: str, pid: int, **limits: int) -> Iterator[Path]:
    """Put one process under these limits (``cpu_cfs_quota_us=...``: dots are written as the first
    underscore) until the end; Skipped where that can not be done."""
    group = _ROOT / controller / f"coordinator-faults-{os.getpid()}-{next(_numbers)}"
    try:
        group.mkdir()
    except OSError as error:
        raise Skipped(f"no control group can be made below {group.parent}: {error}") from error
    try:
        for name, value in limits.items():
            (group / name.replace("_", ".", 1)).write_text(str(value))
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        _release(group)


def _release(group: Path) -> None:
    """Give the processes that are left to the root of the controller, and take the group away."""
    for pid in (group / "cgroup.procs").read_text().split():
        try:
            (group.parent / "cgroup.procs").write_text(pid)
        except ProcessLookupError:
            pass  # it ended meanwhile
    group.rmdir()
