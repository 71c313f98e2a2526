"""Several locks at once, all or none: one contender in all their queues, one grant, one token.

::

    with MultiLock(client, "account-a", "account-b") as (a, b):
        transfer(token=a.fencing_token)

1. One command enters all the queues. So two programs never wait for each other in a cycle, whatever
   the order in which they name the locks, and none holds one lock while it waits for another.
2. The locks are granted together, when the contender is first in every queue, with one fencing
   token. A later contender in any of the queues waits behind, so no contender starves.
3. The grants are in the order in which the names were given. They are released or lost together.
4. ``timeout`` is one overall deadline for all of them; after it nothing of the attempt is left.
"""

from __future__ import annotations

from typing import Unpack

from coordinator.client import ClientT
from coordinator.errors import BadArgumentsError
from coordinator.recipes.base.names import name_of
from coordinator.recipes.locks.contender import LockContender, obtain
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.options import LockOptions, Options


class MultiLock(LockContender[tuple[Grant[ClientT], ...], ClientT]):
    """One contender for all the locks ``names`` (up to 64); see ``Lock`` for the options."""

    def __init__(self, client: ClientT, *names: str | int, **options: Unpack[LockOptions]) -> None:
        self.names = tuple(name_of(name) for name in names)
        if not names or len(set(self.names)) != len(names):
            raise BadArgumentsError(
                f"MultiLock: expected one name or more, each once; found {names!r}"
            )
        self._queue = client.core.lock_queue(*self.names)
        self._prepare(client, f"MultiLock {self.names!r}", Options.of(client, **options))

    @property
    def grants(self) -> tuple[Grant[ClientT], ...]:
        """What this object holds, in the order of the names; empty when nothing."""
        return self._holding.held or ()

    async def _obtain(self, wait_ms: int | None) -> tuple[Grant[ClientT], ...]:
        request, guards = self._options.request(), self._options.guards_to_raise
        return await obtain(self.client, self._queue, request, wait_ms, guards, self._on_position)
