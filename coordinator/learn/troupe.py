"""The actors of a story, as the story sees them: processes that are cued, frozen and woken."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from coordinator.errors import UnavailableError

EXPECT_S = 60.0
_KILL_S = 5.0
_LINE_BYTES_MAX = 64 * 1024
_HEARD_MAX = 1_000
_SAID_MAX = 3
"""So many of its last lines are in the message of what it did not say."""


class Actor:
    """One actor; every line that it says goes to ``on_line`` as well."""

    def __init__(self, name: str, on_line: Callable[[Actor, dict[str, Any]], None]) -> None:
        self.name = name
        self.session_id = ""
        self.token = 0
        """The token of its last grant; 0 before the first."""
        self.is_frozen = False
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._heard: deque[dict[str, Any]] = deque(maxlen=_HEARD_MAX)
        """Lines that no story has waited for yet; the oldest are forgotten, the film has them."""
        self._has_more = asyncio.Event()
        self._has_ended = False
        self._reader: asyncio.Task[None] | None = None

    async def start(
        self, endpoints: str, lock: str, database: str, lease_s: float, dying: Callable[[], None]
    ) -> None:
        """Start the process, and wait until it has a session.

        Args:
            dying: called in the new process before it runs: it ends with its parent.
        """
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "coordinator.learn.actor",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is ours to pass on
            preexec_fn=dying,
            limit=_LINE_BYTES_MAX,
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read())
        self._send(
            {"name": self.name, "endpoints": endpoints, "lock": lock, "database": database,
             "lease_s": lease_s}
        )  # fmt: skip
        self.session_id = (await self.expect("ready"))["session_id"]

    def cue(self, do: str, **arguments: Any) -> None:
        """Say what to do next; a frozen actor does it when it wakes."""
        self._send({"do": do, **arguments})

    async def expect(self, *whats: str, within_s: float = EXPECT_S) -> dict[str, Any]:
        """Wait until it says one of ``whats``, and return the whole line.

        Raises:
            UnavailableError: it was refused instead, has ended, or says nothing of it in time.
        """
        try:
            async with asyncio.timeout(within_s):
                while True:
                    for line in self._heard:
                        if line["what"] in whats:
                            self._heard.remove(line)
                            return line
                    if self._is_refused() or self._has_ended:
                        break
                    self._has_more.clear()
                    await self._has_more.wait()
        except TimeoutError:
            pass
        how = f"nothing of it within {within_s:g} s"
        if self._is_refused():
            how = "a refusal"
        elif self._has_ended:
            how = "it has ended"
        lines = ", ".join(map(json.dumps, list(self._heard)[-_SAID_MAX:])) or "nothing else"
        raise UnavailableError(
            f"actor {self.name}: expected {' or '.join(whats)}, found: {how}; it said {lines}"
        )

    def _is_refused(self) -> bool:
        """Whether it was refused what it was to do, and no story waited for that."""
        return any(line["what"] == "refused" for line in self._heard)

    def freeze(self) -> None:
        """Stop the process, all of it: heartbeats too."""
        self._signal(signal.SIGSTOP)
        self.is_frozen = True

    def wake(self) -> None:
        """Let it go on where it was stopped."""
        self._signal(signal.SIGCONT)
        self.is_frozen = False

    async def stop(self) -> None:
        """End the process; idempotent."""
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            async with asyncio.timeout(_KILL_S):
                await process.wait()
        if self._reader is not None:
            await self._reader

    def _signal(self, number: int) -> None:
        assert self._process is not None, "started before it is signalled"
        if self._process.returncode is None:
            self._process.send_signal(number)

    def _send(self, line: dict[str, Any]) -> None:
        assert self._process is not None, "started before it is cued"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    def note(self, line: dict[str, Any]) -> None:
        """Note a line that it said."""
        if line["what"] == "holds":
            self.token = line["token"]
        self._on_line(self, line)
        self._heard.append(line)
        self._has_more.set()

    async def _read(self) -> None:
        assert self._process is not None, "started before it is read"
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            self.note(json.loads(raw))
        self._has_ended = True
        self._has_more.set()
