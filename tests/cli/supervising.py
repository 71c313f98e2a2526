"""A supervised command as a process of its own, and waiting for what it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.patience import patient

HERE = Path(__file__).resolve().parent

ROOT = HERE.parent.parent

LONG_MS = 3_600_000

DEADLINE_S = 30.0


class Supervised:
    """One supervisor with its command; ``stamps`` is where the command says that it runs."""

    def __init__(self, directory: Path) -> None:
        self.stamps = directory / "stamps"
        self.stamps.mkdir()
        self._log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str],
        lease_ms: int = 1_000,
        grace_ms: int = 200,
        renewals_ms: int = LONG_MS,
    ) -> None:
        numbers = [str(lease_ms), str(grace_ms), str(renewals_ms)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "supervised.py"), *numbers, "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def stamper(self, *wishes: str) -> list[str]:
        return [sys.executable, str(HERE / "stamper.py"), str(self.stamps), *wishes]

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(patient(DEADLINE_S))

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def lease_end_ms(self) -> int:
        return max(map(int, re.findall(r"until (\d+)", self.log)))

    @property
    def pids(self) -> list[int]:
        return [int(path.name) for path in self.stamps.iterdir() if path.name.isdigit()]

    @property
    def last_stamp_ms(self) -> int:
        return max(int((self.stamps / str(pid)).read_text()) for pid in self.pids)

    @property
    def signals(self) -> list[str]:
        path = self.stamps / "signals"
        return path.read_text().splitlines() if path.exists() else []

    def wait_running(self, count: int = 1) -> None:
        eventually(lambda: len(self.pids) >= count, f"{count} processes run")

    def wait_dead(self) -> None:
        eventually(lambda: not any(map(is_alive, self.pids)), "all of them are dead")

    def guard(self) -> int:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])


def eventually(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + patient(DEADLINE_S)
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"
