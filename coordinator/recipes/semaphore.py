"""A fair semaphore: up to ``size`` holders at once, in the order in which they came.

::

    with Semaphore(client, "licences", 3) as grant:
        work()

    Semaphore(client, "licences", 3).resize(5)

1. The cluster keeps the size. The first contender sets it; later ones use the size that is kept,
   whatever they name, until ``resize`` changes it.
2. A larger size lets the next ones in at once. A smaller one takes no slot away: the next
   ones wait until fewer than the new size hold.
3. Each grant has its own fencing token, and tokens grow. But holders overlap, so a guard, which
   lets only the highest token pass, would refuse the older ones: ``guards`` is refused.
4. The size outlives its holders: ``/locks/<name>`` stays, empty, until it is deleted.
"""

from __future__ import annotations

from typing import Unpack

from coordinator.client import ClientT, both
from coordinator.errors import BadArgumentsError
from coordinator.recipes.base.names import checked_count, name_of
from coordinator.recipes.locks.contender import QueueContender
from coordinator.recipes.locks.options import LockOptions, Options

SIZE_MAX = 10_000


class Semaphore(QueueContender[ClientT]):
    """One contender for a slot of the semaphore ``name``; see ``Lock`` for the options.

    Args:
        size: how many hold at once if the semaphore is new, 1 to 10,000.
    """

    def __init__(
        self, client: ClientT, name: str | int, size: int, **options: Unpack[LockOptions]
    ) -> None:
        name = name_of(name)
        if options.get("guards"):
            raise BadArgumentsError(
                f"semaphore {name!r}: expected no guards, found some: they let only the highest "
                f"token pass, and would refuse the older ones of several holders"
            )
        checked = Options.of(client, kind="slot", size=checked_size(size), **options)
        self._contend(client, name, "semaphore", checked)

    @both
    async def resize(self, size: int) -> int:
        """Let ``size`` hold at once, 1 to 10,000; return the size that it has now.

        Raises:
            NoNodeError: there is no such semaphore yet.
        """
        return (await self.client.core.resize(self.name, checked_size(size))).size


def checked_size(size: int) -> int:
    """Return ``size`` if a semaphore can have it."""
    return checked_count("size", size, SIZE_MAX)
