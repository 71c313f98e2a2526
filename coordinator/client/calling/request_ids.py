"""Client ids and request numbers: what makes sending a write again safe.

The server remembers, for each client id, the outcomes of its last numbers (a window). A request
that may wait for long, such as a lock that is queued for an hour, must not fall out of that window
because its client wrote much in the meantime. So a client has several ids; each has its own numbers
and at most one request under way, whose number is always the newest of its id.

1. At most one request of an id is under way; its number is the largest that the id has used.
2. The floor of an id is a log index known before the id was drawn. By it the server distinguishes a
   client that it has never seen from one that it has forgotten.
3. Ids are used again, the one used last first, so a client that sends one request at a time has
   one id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from coordinator.client.calling.turns import Places
from coordinator.errors import UnavailableError
from coordinator.wire.messages import CLIENT_ID_HEADER, FLOOR_INDEX_HEADER

WRITES_AT_ONCE_MAX = 128
_CLIENT_ID = CLIENT_ID_HEADER.lower()
_FLOOR_INDEX = FLOOR_INDEX_HEADER.lower()


class RequestIds:
    """One client id with its request numbers."""

    __slots__ = ("client_id", "fixed_headers", "floor_index", "number")

    def __init__(self, floor_index: int) -> None:
        self.number = 0
        self.renew(floor_index)

    def renew(self, floor_index: int) -> None:
        """Draw a new id; only while no request of the old one can be under way."""
        self.client_id = uuid.uuid4().hex
        self.floor_index = floor_index
        self.number = min(self.number, 1)
        self.fixed_headers = {_CLIENT_ID: self.client_id, _FLOOR_INDEX: str(floor_index)}
        """The headers that make a request exactly-once, but for its number."""


class RequestIdPool:
    """The ids of one client. ``floor`` returns the largest log index the client has seen."""

    def __init__(self, floor: Callable[[], int]) -> None:
        self._floor = floor
        self._free: list[RequestIds] = []
        self._writes = Places(WRITES_AT_ONCE_MAX)

    def begin_write(self) -> RequestIds | None:
        """Lend an id for one write; None while very many are under way."""
        return self.take() if self._writes.take_now() else None

    async def wait_to_write(self, wait_ms: int) -> RequestIds:
        """Lend an id for one write, within ``wait_ms``.

        Raises:
            UnavailableError: very many were under way all the time.
        """
        try:
            await self._writes.take(max(0, wait_ms) / 1000)
        except TimeoutError:
            raise too_many_writes(wait_ms) from None
        return self.take()

    def end_write(self, ids: RequestIds) -> None:
        """Take back what was lent for a write, which has ended."""
        self._free.append(ids)
        self._writes.leave()

    def take(self) -> RequestIds:
        """Lend an id, its next request begun, for as long as that request may wait."""
        try:
            ids = self._free.pop()
        except IndexError:
            ids = RequestIds(self._floor())
        ids.number += 1
        return ids

    def give_back(self, ids: RequestIds) -> None:
        """Take back what was lent; its request has ended."""
        self._free.append(ids)


def too_many_writes(waited_ms: int) -> UnavailableError:
    """Return what is raised for a write that was not begun."""
    return UnavailableError(
        f"expected fewer than {WRITES_AT_ONCE_MAX} writes of this client under way, found as many "
        f"for {waited_ms} ms; nothing was sent of this one"
    )
