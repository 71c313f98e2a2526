"""A fair semaphore: up to ``size`` holders at once, in the order in which they came.

::

    with Semaphore(client, "licences", 3) as grant:
        work()

    Semaphore(client, "licences", 3).resize(5)

1. The size is kept by the cluster. Whoever comes first makes the semaphore with its size; later
   ones hold by the size that it has, whatever they name, until somebody resizes it.
2. A larger size lets the next ones in at once. A smaller one takes nobody's slot: they go on, and
   the next ones wait until fewer than the new size are left.
3. Each grant has its own fencing token; they grow with each grant, but holders overlap, so a guard
   that wants the highest token would refuse the older holders: ``guards`` is not taken.
4. The size outlives its holders: ``/locks/<name>`` stays, empty, until somebody deletes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from coordinator.client.facing import ClientT, both
from coordinator.errors import BadArgumentsError
from recipes.body import Body
from recipes.grant import Grant
from recipes.holding import Holding
from recipes.naming import name_of
from recipes.obtaining import obtain
from recipes.terms import LockOptions, Terms
from recipes.waiting import Timeout, wait_ms_of

SIZE_MAX = 10_000


class Semaphore(Body[ClientT]):
    """One contender for a slot of the semaphore ``name``; see ``Lock`` for the options.

    Args:
        size: how many hold at once if the semaphore is new, 1 to 10,000.
    """

    def __init__(
        self, client: ClientT, name: str | int, size: int, **options: Unpack[LockOptions]
    ) -> None:
        self.client = client
        self.name = name_of(name)
        if options.get("guards"):
            raise BadArgumentsError(
                f"semaphore {self.name!r}: expected no guards, found some: they let only the "
                f"highest token pass, and would refuse the older ones of several holders"
            )
        self._terms = Terms.of(client, kind="slot", size=checked_size(size), **options)
        self._wait_ms = self._terms.wait_ms
        self._contest = client.core.contest("locks", self.name)
        self._on_position: Callable[[int], None] | None = None
        self._holding: Holding[ClientT] = Holding(
            f"semaphore {self.name!r}", self._obtain, when_unsure=self._terms.when_unsure
        )

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What this object holds, None when nothing."""
        return self._holding.grant

    async def _acquire(
        self,
        *,
        blocking: bool = True,
        timeout: Timeout | None = None,
        on_position: Callable[[int], None] | None = None,
    ) -> Grant[ClientT]:
        """Wait for a slot and return the grant; raises as ``Lock.acquire`` does.

        ``on_position`` is told how many stand before us, those who hold included.
        """
        self._on_position = on_position
        return await self._holding.acquire(self._terms.wait(blocking, timeout))

    async def _release(self) -> bool:
        """Give the slot back; False when it was not held any more. Idempotent."""
        return await self._holding.release()

    async def _try_acquire(self, *, timeout: Timeout = 0) -> Grant[ClientT] | None:
        """Return the grant, None when no slot was had within ``timeout`` (0: try once)."""
        return await self._holding.try_acquire(wait_ms_of(timeout))

    acquire = both(_acquire, undo=_release)
    try_acquire = both(_try_acquire, undo=_release)
    release = both(_release)

    @both
    async def resize(self, size: int) -> int:
        """Let ``size`` hold at once, 1 to 10,000; return the size that it has now.

        Raises:
            NoNodeError: there is no such semaphore yet.
        """
        return (await self.client.core.resize(self.name, checked_size(size))).size

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        contest, on_position = self._contest, self._on_position
        (grant,) = await obtain(self.client, contest, self._terms, wait_ms, on_position)
        return grant


def checked_size(size: int) -> int:
    """Return ``size`` if a semaphore can have it."""
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= SIZE_MAX:
        raise BadArgumentsError(f"size: expected 1 to {SIZE_MAX}, found {size!r}")
    return size
