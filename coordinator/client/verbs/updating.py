"""An update: read, compute, write if no other client has written in between; for either client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.client.running.callables import expect_result
from coordinator.client.running.settling import settled
from coordinator.client.verbs.conditions import Conditions
from coordinator.errors import BadVersionError, TooManyRetriesError
from coordinator.model.znodes import Written, Znode


async def updated(
    client: Any,
    wait: Callable[[int], Any],
    path: str,
    change: Callable[[bytes], bytes],
    max_retries: int,
    if_held: Conditions,
) -> Written:
    """Write ``change(data)``, which is computed in the caller's thread; see ``update``.

    ``wait`` is how this client waits for so many milliseconds.
    """
    failures = 0
    while True:
        znode: Znode = await settled(client.get(path))
        data, version = change(znode.data), znode.stat.version
        expect_result(change, data)
        try:
            written: Written = await settled(
                client.set(path, data, expected_version=version, if_held=if_held)
            )
        except BadVersionError as error:
            failures += 1
            if failures >= max_retries:
                raise TooManyRetriesError(
                    f"{path}: expected no other writer, found one in each of {failures} tries; "
                    "nothing was written. Try again, or hold a lock around it",
                    path=path,
                    tries=failures,
                ) from error
        else:
            return written
        await settled(wait(client.core.retry_delay_ms(failures)))
