"""The supervisor of a command: it runs only while a lease is safe, and ends before the lease.

The supervisor lives in the process that holds the lock and talks to the members; the command is
started and ended by the watchdog (``watchdog.py``), another process, to which the supervisor only
says until when. So the command ends in time even when this process hangs, is stopped or killed.

1. ``kill_at`` = the moment until which the lease is safe, less the margin in which processes die;
   ``term_at`` = ``kill_at`` less the grace for the command to end by itself.
2. The moment is computed from a reading of the clock taken *before* the lease was asked, so a pause
   between the two makes it earlier, never later.
3. A lease that is lost has no safe time left: everything is killed at once.
4. ``run`` returns when nothing of the command is left; only then may the lock be released.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from coordinator.cli.output import (
    EXIT_LOST,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_SIGNAL_BASE,
)
from coordinator.cli.watchdog import remove_ready
from coordinator.clock import Clock

_RENEW_INTERVAL_MS = 100
# Isolated and without site-packages: it starts in milliseconds and needs only this package.
_WATCHDOG_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from coordinator.cli.watchdog import main; main()"
)


class SafeTime(Protocol):
    """What the supervisor asks of a grant."""

    def remaining_safe_ms(self) -> int:
        """Return for how long no other client can be granted the lock, 0 when that is not known."""
        ...


class Reason(StrEnum):
    """Why a command is not running any more."""

    EXITED = "exited"
    LOST = "lost"
    NOT_STARTED = "not_started"
    WATCHDOG_DIED = "watchdog_died"
    HANDED_OVER = "handed_over"
    GAVE_UP = "gave_up"


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended; ``exit_code`` is what a shell would say."""

    reason: Reason
    exit_code: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Patience:
    """How a command is ended: SIGTERM, ``grace_ms``, SIGKILL, and ``margin_ms`` for it to die."""

    grace_ms: int
    margin_ms: int

    @classmethod
    def for_lease(cls, lease_ms: int, grace_ms: int | None = None) -> Patience:
        """Return what suits a lease: a grace of three tenths of it, at most 5 s."""
        default_ms = min(5_000, lease_ms * 3 // 10)
        margin_ms = max(20, min(200, lease_ms // 20))
        return cls(default_ms if grace_ms is None else grace_ms, margin_ms)


class Supervisor:
    """One command under a watchdog. ``start`` readies it, ``run`` runs the command once."""

    def __init__(self, clock: Clock, patience: Patience) -> None:
        self._clock = clock
        self._patience = patience
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._received = b""
        self._leader: int | None = None

    def start(self, environ: Mapping[str, str], keeping: Sequence[int] = ()) -> None:
        """Start the watchdog; its environment will be the command's.

        The descriptors in ``keeping`` stay open until the watchdog has ended; the command has
        none."""
        self._watchdog, self._channel = _start_watchdog(environ, keeping)
        self._channel.setblocking(False)

    async def run(
        self, argv: Sequence[str], lease: SafeTime, ready: tuple[str, str] | None = None
    ) -> Ended:
        """Run ``argv`` while ``lease`` is safe; return when nothing of it is left.

        ``ready`` is a file, with its text, that is there while the command runs and is not being
        ended. When cancelled, the command is ended first (SIGTERM, grace, SIGKILL)."""
        assert self._channel is not None, "start() comes first"
        self._say({"until": self._until(lease)})
        order = {"argv": list(argv), "grace_ms": self._patience.grace_ms}
        self._say(order if ready is None else {**order, "ready": ready})
        renewals = asyncio.create_task(self._renew(lease), name="renewals of the watchdog")
        try:
            return await self._read_ending()
        finally:
            renewals.cancel()
            await self._dismiss()
            if ready is not None:
                remove_ready(ready[0])  # its watchdog may have been killed

    def forward(self, signal_number: int) -> None:
        """Send a signal to the group of the command."""
        self._say({"signal": signal_number})

    async def stop(self) -> None:
        """Dismiss a watchdog whose command was never run."""
        await self._dismiss()

    # --- the moment

    def _until(self, lease: SafeTime) -> list[int]:
        before_ms = self._clock.monotonic_ms()
        remaining_ms = lease.remaining_safe_ms()
        if remaining_ms == 0:
            return [0, 0]
        kill_at_ms = before_ms + remaining_ms - self._patience.margin_ms
        return [kill_at_ms - self._patience.grace_ms, kill_at_ms]

    async def _renew(self, lease: SafeTime) -> None:
        notified: list[int] = []
        while True:
            until = self._until(lease)
            # A lease that was not renewed gives the same moment again, but for the rounding.
            if not notified or abs(until[1] - notified[1]) > 1:
                self._say({"until": until})
                notified = until
            await asyncio.sleep(_RENEW_INTERVAL_MS / 1000)

    # --- the watchdog

    def _say(self, message: dict[str, Any]) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(json.dumps(message).encode() + b"\n")
        except OSError:
            # The watchdog has ended, and its last words say how; or it does not read, and then the
            # moment it knows is too early, which is safe.
            pass

    async def _read_ending(self) -> Ended:
        while line := await self._read_line():
            message = json.loads(line)
            if "started" in message:
                self._leader = message["started"]
            elif "failed" in message:
                return _not_started(message["failed"], message["text"])
            elif "ended" in message:
                self._leader = None
                return _ended(message["ended"], is_lost=message["is_lost"])
        return self._without_watchdog()

    async def _read_line(self) -> bytes:
        """Return the watchdog's next line, empty when it has ended."""
        assert self._channel is not None
        loop = asyncio.get_running_loop()
        while b"\n" not in self._received:
            try:
                chunk = await loop.sock_recv(self._channel, 65_536)
            except ConnectionError:
                chunk = b""
            if not chunk:
                return b""
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _without_watchdog(self) -> Ended:
        """The kernel has killed the command with it; this reaches the rest of its group."""
        if self._leader is not None:
            try:
                os.killpg(self._leader, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # nothing is left, or nothing that we may end
        code = EXIT_SIGNAL_BASE + signal.SIGKILL
        return Ended(Reason.WATCHDOG_DIED, code, "its watchdog was killed, and the command with it")

    async def _dismiss(self) -> None:
        """Let the watchdog go; return when it has, which it does once nothing is left to end.

        No deadline: while something is left, the lock must not be given back."""
        if self._channel is None or self._watchdog is None:
            return
        try:
            self._channel.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended already
        while await self._read_line():
            pass
        self._channel.close()
        self._channel = None
        self._watchdog.wait()


def _start_watchdog(
    environ: Mapping[str, str], keeping: Sequence[int]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        source = str(Path(__file__).resolve().parents[2])
        program = ["-c", _WATCHDOG_PROGRAM, source, str(theirs.fileno())]
        command = [sys.executable, "-I", "-S", *program]
        watchdog = subprocess.Popen(  # noqa: S603 - our own program, no input in it
            command,
            pass_fds=[theirs.fileno(), *keeping],
            start_new_session=True,  # what stops or kills our group must not reach it
            env=dict(environ),
        )
    return watchdog, ours


def _not_started(number: int, text: str) -> Ended:
    code = EXIT_NOT_FOUND if number in {errno.ENOENT, errno.ENOTDIR} else EXIT_NOT_EXECUTABLE
    return Ended(Reason.NOT_STARTED, code, text)


def _ended(status: int, *, is_lost: bool) -> Ended:
    code = os.waitstatus_to_exitcode(status)
    if is_lost:
        return Ended(Reason.LOST, EXIT_LOST, "the command was ended because the lock was lost")
    if code < 0:
        return Ended(Reason.EXITED, EXIT_SIGNAL_BASE - code, f"killed by signal {-code}")
    return Ended(Reason.EXITED, code)
