"""Takes, renews, loses and releases a lock with a client made by openapi-python-client.

Run by the tools' own Python, with the generated package on its path and the member's URL as the one
argument; prints a line of JSON with what it saw.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from coordinator_client import Client  # type: ignore[import-not-found]
from coordinator_client.api.locks import (  # type: ignore[import-not-found]
    acquire_lock,
    get_lock,
    release_lock,
)
from coordinator_client.api.sessions import heartbeat  # type: ignore[import-not-found]
from coordinator_client.models import Acquire, Nothing  # type: ignore[import-not-found]

LEASE_MS = 2_000


def main(url: str) -> dict[str, Any]:
    client = Client(base_url=url, timeout=60)
    first = acquire_lock.sync("daily", client=client, body=Acquire(lease_ms=30_000)).grant
    refused = acquire_lock.sync(
        "daily", client=client, body=Acquire(lease_ms=LEASE_MS, timeout_ms=0)
    )

    def give_back() -> None:
        time.sleep(2.5 * LEASE_MS / 1_000)
        release_lock.sync("daily", first.grant_id, client=client)

    threading.Thread(target=give_back).start()
    request = Acquire(lease_ms=LEASE_MS, timeout_ms=30_000, label="generated")
    grant = acquire_lock.sync("daily", client=client, body=request).grant
    renewed = heartbeat.sync(grant.session_id, client=client, body=Nothing())
    view = get_lock.sync("daily", client=client, fencing_token=grant.fencing_token)
    released = release_lock.sync("daily", grant.grant_id, client=client)
    late = release_lock.sync("daily", "99-1", client=client)
    return {
        "refused": refused.code,
        "lease_ms": grant.lease_ms,
        "safe_ms": grant.safe_ms,
        "grew": grant.fencing_token > first.fencing_token,
        "renewed_ms": renewed.safe_ms,
        "is_current": view.is_current,
        "released": released.released,
        "late": late.code,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
