"""Actors: processes of a story that can be frozen (SIGSTOP) at an exact place, and woken.

That is what a long garbage collection, a machine that swaps or a virtual machine on the move do to
a program: heartbeats and all. ``python -m examples.actors MODULE`` is one: it plays parts with the
``act`` of the module, says what it does in lines of JSON, and waits for its cue where the story
needs it to.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from coordinator.client import Client

LEASE_S_MIN = 1.0
"""Shorter ones would be lost to nothing but a busy machine: an actor is a whole process."""

_ROOT = Path(__file__).resolve().parent.parent
_WAIT_S = 90.0


class Actor:
    """A process of the story, as the story sees it; ended when its ``with`` is left."""

    def __init__(self, module: str, name: str) -> None:
        self.name = name
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._process = subprocess.Popen(  # noqa: S603 (this very module)
            [sys.executable, "-m", "examples.actors", module],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Actor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()

    def begin(self, **part: Any) -> None:
        """Let it begin to play a part, which gets these arguments, and its name."""
        self.cue(json.dumps({"name": self.name, **part}))

    def cue(self, word: str) -> None:
        """Tell it how to go on from where it waits (once it is awake)."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def expect(self, *whats: str) -> dict[str, Any]:
        """Wait until it says one of ``whats``, and return the whole line."""
        while (line := self._lines.get(timeout=_WAIT_S)) is not None:
            if line["what"] in whats:
                return line
        raise EOFError(f"{self.name} has left without saying any of {whats}")

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)


# --- where actors and tokens stand


def wait_for_waiter(client: Client, lock: str) -> None:
    """Wait until somebody waits for ``lock``, behind its holder."""
    while True:
        view = client.lock(lock)
        if any(each != view.holder for each in view.queue):
            return
        time.sleep(0.01)


def write_up_to_token(client: Client, token: int) -> None:
    """Write until the next change, a contender for a lock, gets ``token``.

    A fencing token is the zxid of the command that queued its holder, so it grows with every change
    of the cluster; some stories want certain numbers.
    """
    zxid = client.create("/filler").stat.czxid
    assert zxid < token, f"expected a cluster before {token}, found it at {zxid} already"
    while zxid < token - 1:
        zxid = client.set("/filler", b"").stat.mzxid


# --- for the actors themselves


def report(what: str, **facts: Any) -> None:
    """Let the story hear what this actor does."""
    print(json.dumps({"what": what, **facts}), flush=True)


def wait_for_cue() -> str:
    """Wait here until the story says how to go on, and return that; leave if it is over."""
    word = sys.stdin.readline()
    if not word:
        os._exit(0)
    return word.strip()


if __name__ == "__main__":
    act = import_module(sys.argv[1]).act
    while True:
        act(**json.loads(wait_for_cue()))
