"""The steps of an update: read, compute, write if no other client has written in between.

The sync and the asyncio client run them in their own ways.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol

from coordinator.client.conditions import Conditions
from coordinator.errors import TooManyRetriesError
from coordinator.model.znodes import Written, Znode


class TreeVerbs(Protocol):
    """The methods of a client that an update needs."""

    def get(self, path: str) -> Coroutine[Any, Any, Znode]:
        """Read a znode."""
        ...

    def set(
        self, path: str, data: bytes, *, expected_version: int, if_held: Conditions
    ) -> Coroutine[Any, Any, Written]:
        """Write its data, on conditions."""
        ...

    def retry_delay_ms(self, failures: int) -> int:
        """Draw how long to wait before the next try."""
        ...

    def wait(self, delay_ms: int) -> Coroutine[Any, Any, None]:
        """Wait for so long."""
        ...


def update_steps(
    client: TreeVerbs,
    path: str,
    change: Callable[[bytes], bytes],
    max_retries: int,
    if_held: Conditions,
) -> Generator[Coroutine[Any, Any, Any], Any, Written]:
    """Yield what to await next and take its answer, or the BadVersionError it raised.

    So ``change`` runs where the caller is: in the event loop, or in the thread of a sync caller.
    """
    failures = 0
    while True:
        znode: Znode = yield client.get(path)
        version = znode.stat.version
        answer = yield client.set(
            path, change(znode.data), expected_version=version, if_held=if_held
        )
        if isinstance(answer, Written):
            return answer
        failures += 1
        if failures >= max_retries:
            raise TooManyRetriesError(
                f"{path}: expected no other writer, found one in each of {failures} tries; "
                "nothing was written. Try again, or hold a lock around it",
                path=path,
                tries=failures,
            ) from answer
        yield client.wait(client.retry_delay_ms(failures))
