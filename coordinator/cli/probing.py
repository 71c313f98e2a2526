"""``--probe``: a command that says whether the program under a lock or election is well.

1. It runs beside the program, by ``/bin/sh -c`` and with the same environment. Exit status 0 is
   well; another one, or none in time, is a failure, and the last line it wrote is the reason.
2. When it has failed as often as it may not, the lease is not renewed any more. The program gets
   SIGTERM, its grace, and SIGKILL, never later than the lease ends; only then is the session ended,
   as a loss.
3. Nothing of a run is left when it is over, or was too late.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import click

from coordinator.cli.parent_death import dying_with_parent
from coordinator.cli.seconds import Seconds
from coordinator.cli.supervisor import Patience, SafeTime
from coordinator.client import AsyncClient
from coordinator.client.locks import Acquired
from coordinator.client.sessions.probing import FAILURES_MAX, SECONDS_MAX, HealthProbe, Prober
from coordinator.clock import Clock

_TAIL_BYTES = 4_096
_REST_S = 0.05
"""How long what a run has written may take to be read once it has ended."""


@dataclass(frozen=True, slots=True)
class ProbeCommand:
    """The values of the probe options: the command and how often it may fail."""

    command: str
    every_s: float
    failures: int
    timeout_s: float

    def probe(self, environ: Mapping[str, str]) -> HealthProbe:
        """Return the probe that runs the command in ``environ``."""
        return HealthProbe(
            lambda: _run(self.command, environ),
            every=self.every_s,
            failures=self.failures,
            timeout=self.timeout_s,
        )


class _ProbedGrant:
    """The safe time of a grant; cut to what ending the program takes once the probe has failed."""

    def __init__(self, acquired: Acquired, clock: Clock) -> None:
        self._acquired = acquired
        self._clock = clock
        self._until_ms: int | None = None

    def remaining_safe_ms(self) -> int:
        if self._until_ms is None:
            return self._acquired.remaining_safe_ms()
        return max(0, self._until_ms - self._clock.monotonic_ms())

    def cut(self, remaining_ms: int) -> None:
        """Let at most ``remaining_ms`` be left from now on."""
        now_ms = self._clock.monotonic_ms()
        self._until_ms = now_ms + min(remaining_ms, self._acquired.remaining_safe_ms())


@asynccontextmanager
async def probed(
    acquired: Acquired,
    client: AsyncClient,
    clock: Clock,
    patience: Patience,
    probe: HealthProbe | None,
) -> AsyncIterator[SafeTime]:
    """Give what a supervisor asks of the grant, while the probe is run; without one, the grant."""
    if probe is None:
        yield acquired
        return
    grant, prober = _ProbedGrant(acquired, clock), Prober(probe)

    async def look() -> None:
        failure = await prober.failed()
        grant.cut(patience.grace_ms + patience.margin_ms)
        ending = acquired.session.fail(failure, client.settings.timeout_ms)
        client.background.start(ending, "end the failed session")

    looking = asyncio.create_task(look(), name="health probe")
    try:
        yield grant
    finally:
        looking.cancel()
        await asyncio.wait({looking})


async def _run(command: str, environ: Mapping[str, str]) -> None:
    """Run the command; raises OSError with the reason unless it is well."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environ,
        start_new_session=True,
        preexec_fn=dying_with_parent(signal.SIGKILL),
    )
    assert process.stdout is not None
    reading = asyncio.create_task(_tail(process.stdout))
    try:
        status = await process.wait()
        await asyncio.wait({reading}, timeout=_REST_S)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it has left running
        reading.cancel()
        await asyncio.wait({reading})
        await process.wait()
    if status == 0:
        return
    how = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
    output = "" if reading.cancelled() else reading.result()
    raise OSError(f"{how}: {output}" if output else how)


async def _tail(stream: asyncio.StreamReader) -> str:
    """Return the last line that is not empty, of however much."""
    kept = b""
    while chunk := await stream.read(65_536):
        kept = (kept + chunk)[-_TAIL_BYTES:]
    lines = kept.decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def probe_options(function: Any) -> Any:
    """Add ``--probe`` and what belongs to it."""
    options = (
        click.option(
            "--probe",
            metavar="SHELL-COMMAND",
            help="Run this again and again while COMMAND runs: exit status 0 means that COMMAND is "
            "well. If it is not, COMMAND is ended and the lock is lost.",
        ),
        _seconds("--probe-every", "probe_every_s", 2.0, "Time between two probes."),
        click.option(
            "--probe-failures",
            type=click.IntRange(min=1, max=FAILURES_MAX),
            default=3,
            show_default=True,
            help="Failures in a row that count as not well.",
        ),
        _seconds(
            "--probe-timeout", "probe_timeout_s", 2.0, "A probe that takes longer has failed."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _seconds(name: str, argument: str, default: float, text: str) -> Callable[[Any], Any]:
    return click.option(
        name,
        argument,
        type=Seconds(max=SECONDS_MAX, min_open=True),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


def probe_command(options: dict[str, Any]) -> ProbeCommand | None:
    """Return what the options ask for, None without ``--probe``."""
    command: str | None = options["probe"]
    if command is None:
        return None
    return ProbeCommand(
        command, options["probe_every_s"], options["probe_failures"], options["probe_timeout_s"]
    )
