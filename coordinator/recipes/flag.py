"""A flag that is set or not, and a barrier that is open or not: waited for by many.

::

    ready = Flag(client, "schema-42")
    ready.set(b"by host 7")                # any number of times, by anybody
    value = ready.wait(timeout=60)         # b"by host 7", or None when the time is up

    maintenance = Barrier(client, "maintenance")
    maintenance.close()                    # from now on, all who pass wait
    maintenance.wait(timeout=600)          # True once it is open

1. What is waited for is looked at after the watch has begun, so no change is missed. But who was
   away for a while sees what is there then: a flag set and cleared in between was not seen.
2. A flag and a barrier outlive the client that set them. Neither says anything of who may write:
   that is a lock's business. Pass ``if_held`` to let only a holder set one.
3. One wait in one client is one watch. All who wait are woken by the same change.
4. Setting, clearing, opening and closing may be repeated: after a lost answer they are.
"""

from __future__ import annotations

from typing import Generic

from coordinator.client import ClientT, Conditions, both
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.maybe_there import drop, put, read
from coordinator.recipes.base.names import name_of, path_of
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, wait_ms_of


class Marked(Generic[ClientT]):
    """Something with a znode that is there or not; base of ``Flag``, ``Barrier``, ``Condition``."""

    def __init__(self, client: ClientT, name: str | int, root: str) -> None:
        self.client = client
        self.name = name_of(name)
        self._path = path_of(root, name)

    async def _put(self, data: bytes, if_held: Conditions) -> None:
        await put(self.client.core, self._path, data, if_held=if_held)

    async def _remove(self, if_held: Conditions) -> bool:
        return await drop(self.client.core, self._path, if_held=if_held)

    async def _data(self) -> bytes | None:
        znode = await read(self.client.core, self._path)
        return None if znode is None else znode.data


class Flag(Marked[ClientT]):
    """The flag ``name``: not set at first."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        super().__init__(client, name, "/flags")

    @both
    async def set(self, value: bytes = b"", *, if_held: Conditions = None) -> None:
        """Set it; all who wait get ``value``. A later value replaces an earlier one.

        Raises:
            LockLostError: a grant of ``if_held`` does not hold; it was not set.
            UnavailableError, OutcomeUnknownError: it was not set; it may have been.
        """
        await self._put(value, if_held)

    @both
    async def clear(self, *, if_held: Conditions = None) -> bool:
        """Clear it; False when it was not set.

        Raises:
            All that ``set`` raises.
        """
        return await self._remove(if_held)

    @both
    async def value(self) -> bytes | None:
        """Return the value, None when it is not set: the past when it is read.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._data()

    @both
    async def wait(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bytes | None:
        """Wait until it is set and return the value; None when it was not set in time.

        Raises:
            UnavailableError: no member answered at the end of the time.
        """
        return await until(self.client.core, self._path, "znode", self._data, wait_ms_of(timeout))


class Barrier(Marked[ClientT]):
    """The barrier ``name``: open at first."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        super().__init__(client, name, "/barriers")

    @both
    async def close(self, why: bytes = b"", *, if_held: Conditions = None) -> None:
        """Let all who come wait; ``why`` is the znode's data, for people to read.

        Raises:
            LockLostError: a grant of ``if_held`` does not hold; it was not closed.
            UnavailableError, OutcomeUnknownError: it was not closed; it may have been.
        """
        await self._put(why, if_held)

    @both
    async def open(self, *, if_held: Conditions = None) -> bool:
        """Let all go on; False when it was open.

        Raises:
            All that ``close`` raises.
        """
        return await self._remove(if_held)

    @both
    async def wait(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bool:
        """Wait until it is open; False when it was not in time.

        Raises:
            UnavailableError: no member answered at the end of the time.
        """

        async def look() -> bool | None:
            return True if await self._data() is None else None

        core = self.client.core
        return await until(core, self._path, "znode", look, wait_ms_of(timeout)) is True
