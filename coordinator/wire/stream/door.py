"""The stream's door: what its connections share, the notices of a new leader, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from coordinator.errors import CoordinatorError, ShuttingDownError
from coordinator.node.config import HttpConfig
from coordinator.waiting import in_turns
from coordinator.wire.admission import Admission, Place
from coordinator.wire.encoding import Encoding
from coordinator.wire.request import Answer
from coordinator.wire.routes.answering import Answering
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.route import Route
from coordinator.wire.stream import frames

REQUESTS_MAX = 1_024
"""The requests of one connection under way at once."""


class ServedConnection(Protocol):
    """A connection, as its door sees it."""

    def tell_leader(self) -> None:
        """Say who leads, unless it has been said, or its client may not know."""

    @property
    def is_certified(self) -> bool:
        """Whether its client has shown a certificate."""
        ...

    def go_away(self, error: CoordinatorError) -> None:
        """Begin nothing more; close once what is under way was answered."""

    def abort(self) -> None:
        """Break it."""


class StreamDoor:
    """The stream connections of one member."""

    def __init__(
        self, door: Door, routes: Iterable[Route], admission: Admission, config: HttpConfig
    ) -> None:
        self._door = door
        self.admission = admission
        self.config = config
        self.answering = Answering(door, routes, "stream")
        self.turns = door.turns
        self.frame_bytes_max = config.body_bytes_max + frames.REQUEST_OVERHEAD_BYTES
        self.requests_max = REQUESTS_MAX
        self._connections: set[ServedConnection] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self.body_bytes = door.body_bytes
        self._all_gone: asyncio.Future[None] | None = None
        door.member.leader_address.on_change(self._on_leader_change)

    @property
    def connection_count(self) -> int:
        """How many clients are connected by it."""
        return len(self._connections)

    def leader_url(self, place: Place) -> str | None:
        """Return where the leader serves, for who is there; None to strangers, and if nobody leads.

        Who may do nothing without a credential is a stranger until it has shown one."""
        is_wide = place.is_local or self.config.access == "off"
        may_know = place.is_known or (is_wide and not self._door.has_rights)
        return self._door.member.leader_address.url() if may_know else None

    def welcome(self, leader_url: str | None) -> frames.WelcomeSettings:
        """Return what this member says of itself, first."""
        return frames.WelcomeSettings(
            member_id=self._door.member_id,
            leader_url=leader_url,
            frame_bytes_max=self.frame_bytes_max,
            requests_max=self.requests_max,
            idle_ms=self.config.idle_deadline_ms,
        )

    def problem(self, error: CoordinatorError) -> Answer:
        """Return the problem details of ``error``, as a body of the stream."""
        return self._door.problem(error, encoding=Encoding.MSGPACK)

    # --- the connections

    def enter(self, connection: ServedConnection) -> None:
        """A connection was made."""
        self._connections.add(connection)
        if self._door.closing.has_begun:
            connection.go_away(_stopping())

    def leave(self, connection: ServedConnection) -> None:
        """A connection was lost."""
        self._connections.discard(connection)
        self._maybe_all_gone()

    def end(self, task: asyncio.Task[None]) -> None:
        """End a request whose client does not wait any more; ``closed`` waits for its task."""
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self._maybe_all_gone()

    def _on_leader_change(self) -> None:
        # In a pass of its own: the engine is in the middle of its change.
        if self._connections:
            asyncio.get_running_loop().call_soon(self._tell_leader)

    def _tell_leader(self) -> None:
        in_turns(list(self._connections), lambda each: each.tell_leader())

    # --- the end

    def part_with_certified(self) -> None:
        """Have clients that showed a certificate connect again: who is trusted has changed."""
        certified = [each for each in self._connections if each.is_certified]
        in_turns(certified, lambda each: each.go_away(_trust_changed()))

    def close(self) -> None:
        """Begin nothing more; what is under way is answered, while ``closed`` is waited for."""
        in_turns(list(self._connections), lambda each: each.go_away(_stopping()))

    def abort(self) -> None:
        """Break all connections."""
        for each in list(self._connections):
            each.abort()

    async def closed(self) -> None:
        """Wait until the last connection has gone; ``abort`` sees to that in the end."""
        if self._connections or self._ending:
            if self._all_gone is None or self._all_gone.done():
                self._all_gone = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_gone)  # others may wait for it, too

    def _maybe_all_gone(self) -> None:
        gone = self._all_gone
        if gone is not None and not gone.done() and not (self._connections or self._ending):
            gone.set_result(None)


def _trust_changed() -> ShuttingDownError:
    return ShuttingDownError("the certificates that count here have changed; connect again")


def _stopping() -> ShuttingDownError:
    return ShuttingDownError("this member is stopping; try another one")
