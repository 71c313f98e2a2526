"""A process that takes a lock and works under it, looking at its grant before each step.

    python -m tests.cluster.holder ENDPOINTS LOCK SESSION_S [STORE|- [MAX_HOLD_S [LOCK_DELAY_S]]]

Prints one JSON object a line: the grant; then every step it took (with the monotonic time in ms at
which its check passed); at the end why it stopped. With STORE, the address of a fenced store, each
step also writes there, without checking the grant first, as a program that was paused between
looking and writing does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from coordinator import connect
from coordinator.clock import SystemClock
from coordinator.errors import CoordinatorError, LockLostError, StaleTokenError
from coordinator.recipes import Lock
from tests.cluster.fenced_store import FencedWriter

STEP_S = 0.02
STEPS_MAX = 3_000


def say(**fields: Any) -> None:
    """One line for the test to read."""
    print(json.dumps({"at_ms": SystemClock().monotonic_ms(), **fields}), flush=True)


def main() -> None:
    endpoints, name, session_s = sys.argv[1:4]
    address, max_hold, lock_delay = [*sys.argv[4:], *("-", "0", "0")[len(sys.argv) - 4 :]]
    store = None if address == "-" else FencedWriter(address)
    refused = 0
    try:
        with (
            connect(endpoints, session_timeout=float(session_s), timeout=15) as client,
            Lock(
                client,
                name,
                timeout=60,
                max_hold=float(max_hold) or None,
                lock_delay=float(lock_delay),
            ) as grant,
        ):
            say(event="granted", token=grant.fencing_token, grant_id=grant.grant_id)
            for _ in range(STEPS_MAX):
                if store is not None:
                    try:
                        store.write(grant.fencing_token)
                    except StaleTokenError:
                        refused += 1
                        say(event="refused", token=grant.fencing_token)
                grant.check()
                say(event="step", token=grant.fencing_token)
                time.sleep(STEP_S)
    except LockLostError as error:
        say(event="lost", message=error.message, refused=refused)
    except CoordinatorError as error:
        say(event="failed", message=repr(error))


if __name__ == "__main__":
    main()
