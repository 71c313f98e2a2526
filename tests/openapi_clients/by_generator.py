"""Takes, renews, loses and releases a lock with a client made by openapi-generator (python).

Run by the tools' own Python, with the generated package on its path and the member's URL as the one
argument; prints a line of JSON with what it saw.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import generated  # type: ignore[import-not-found]

LEASE_MS = 2_000


def code_of(call: Callable[[], object]) -> str:
    """Return the code of the problem that ``call`` comes to."""
    try:
        call()
    except generated.ApiException as refused:
        return str(json.loads(refused.body)["code"])
    return "none"


def main(url: str) -> dict[str, Any]:
    client = generated.ApiClient(generated.Configuration(host=url))
    locks, sessions = generated.LocksApi(client), generated.SessionsApi(client)
    first = locks.acquire_lock("daily", generated.Acquire(lease_ms=30_000)).grant
    at_once = generated.Acquire(lease_ms=LEASE_MS, timeout_ms=0)
    refused = code_of(lambda: locks.acquire_lock("daily", at_once))

    def give_back() -> None:
        time.sleep(2.5 * LEASE_MS / 1_000)
        locks.release_lock("daily", first.grant_id)

    threading.Thread(target=give_back).start()
    request = generated.Acquire(lease_ms=LEASE_MS, timeout_ms=30_000, label="generated")
    grant = locks.acquire_lock("daily", request).grant
    renewed = sessions.heartbeat(grant.session_id, {})
    view = locks.get_lock("daily", fencing_token=grant.fencing_token)
    released = locks.release_lock("daily", grant.grant_id)
    return {
        "refused": refused,
        "lease_ms": grant.lease_ms,
        "safe_ms": grant.safe_ms,
        "grew": grant.fencing_token > first.fencing_token,
        "renewed_ms": renewed.safe_ms,
        "is_current": view.is_current,
        "released": released.released,
        "late": code_of(lambda: locks.release_lock("daily", "99-1")),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
