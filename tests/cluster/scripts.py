"""Programs that the tests run beside the members: started, read line by line, and always ended."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent


class Script:
    """A Python process whose standard output is JSON lines."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self._arrived: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._arrived.put(json.loads(line))
        self._arrived.put(None)

    def wait_for(self, event: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """Return the next line with this event."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                line = self._arrived.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"no {event!r} within {timeout_s} s: {self.lines}") from None
            if line is None:
                raise EOFError(f"ended without {event!r}: {self.lines}\n{self._errors()}")
            self.lines.append(line)
            if line["event"] == event:
                return line

    def drain(self) -> None:
        """Take what has arrived into ``lines``, without waiting."""
        while not self._arrived.empty():
            line = self._arrived.get()
            if line is not None:
                self.lines.append(line)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill it if it still runs, and reap it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reader.join()

    def _errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()
