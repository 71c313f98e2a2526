"""A process that holds a pretended lease and runs a command under it, for the supervisor's tests.

    python supervised.py LEASE_MS GRACE_MS RENEWALS_MS -- COMMAND...

The lease lasts LEASE_MS from its last renewal and is renewed ten times in that time, until
RENEWALS_MS after the start. On standard error it says when the lease ends, in monotonic ms.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from coordinator.cli.supervisor import Patience, Supervisor
from coordinator.clock import SystemClock


class PretendedLease:
    """Renewed by this process as a session would be by its heartbeats."""

    def __init__(self, lease_ms: int, renewals_ms: int) -> None:
        self._clock = SystemClock()
        self._lease_ms = lease_ms
        self._renewals_end_ms = self._clock.monotonic_ms() + renewals_ms
        self._extend()

    def remaining_safe_ms(self) -> int:
        return max(0, self._until_ms - self._clock.monotonic_ms())

    async def renew(self) -> None:
        while self._clock.monotonic_ms() < self._renewals_end_ms:
            if self.remaining_safe_ms() > 0:
                self._extend()
            await asyncio.sleep(self._lease_ms / 10_000)

    def _extend(self) -> None:
        self._until_ms = self._clock.monotonic_ms() + self._lease_ms
        print(f"until {self._until_ms}", file=sys.stderr, flush=True)


async def main() -> int:
    lease_ms, grace_ms, renewals_ms = map(int, sys.argv[1:4])
    supervisor = Supervisor(SystemClock(), Patience.for_lease(lease_ms, grace_ms))
    supervisor.start(os.environ)
    lease = PretendedLease(lease_ms, renewals_ms)
    renewals = asyncio.create_task(lease.renew())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.forward, number)
    ending = await supervisor.run(sys.argv[5:], lease)
    renewals.cancel()
    print(f"ending {ending.reason} {ending.exit_code}", file=sys.stderr, flush=True)
    return ending.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
