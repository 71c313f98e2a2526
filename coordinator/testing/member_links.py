"""The links between members, which a test cuts; each member sends and receives at its own end.

A cut link silently loses all messages in both directions, as a partition does: the members notice
only the silence. When a member is killed its connections close.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from coordinator.raft.network.agreement import Fact, ReadLevels
from coordinator.raft.network.messages import Message
from coordinator.raft.network.transport import MemberTransport, TransportListener


class Links:
    """Which members of one cluster can reach each other; used in the cluster's loop only."""

    def __init__(self) -> None:
        self._cuts: dict[object, tuple[frozenset[str], frozenset[str]]] = {}
        self._ends: dict[str, LinkEnd] = {}

    def is_cut(self, one: str, other: str) -> bool:
        """Say whether nothing passes between two members."""
        return any(
            (one in left and other in right) or (other in left and one in right)
            for left, right in self._cuts.values()
        )

    def cut(self, left: Collection[str], right: Collection[str]) -> object:
        """Cut each member of ``left`` off from each of ``right``; returns what ``mend`` takes."""
        key = object()
        self._cuts[key] = (frozenset(left), frozenset(right))
        return key

    def mend(self, key: object) -> None:
        """End the cut that was made under ``key``, if there is one."""
        cut = self._cuts.pop(key, None)
        if cut is None:
            return
        for one in cut[0]:
            for other in cut[1]:
                if not self.is_cut(one, other):
                    self._notify(one, other)
                    self._notify(other, one)

    def end_of(self, member_id: str, transport: MemberTransport) -> LinkEnd:
        """Return a new end for a member that starts."""
        end = self._ends[member_id] = LinkEnd(self, member_id, transport)
        return end

    def _notify(self, member_id: str, other: str) -> None:
        end = self._ends.get(member_id)
        if end is not None and end.is_connected(other) and end.listener is not None:
            end.listener.on_connected(other)  # what was sent meanwhile is lost


class LinkEnd:
    """A MemberTransport over the real one."""

    def __init__(self, links: Links, member_id: str, transport: MemberTransport) -> None:
        self.listener: TransportListener | None = None
        self._links = links
        self._member_id = member_id
        self._transport = transport
        self._has_vanished = False

    def agree_on(self, facts: Sequence[Fact]) -> None:
        """Compare ``facts`` with every member that connects."""
        self._transport.agree_on(facts)

    def show_levels(self, read: ReadLevels, release: str) -> None:
        """Show the levels of this member to those that connect."""
        self._transport.show_levels(read, release)

    def drop(self, member_id: str) -> None:
        """End the connection to a member; it is made again."""
        self._transport.drop(member_id)

    def disagreements(self) -> Mapping[str, str]:
        """Return by member what it does not agree on."""
        return self._transport.disagreements()

    async def start(self, listener: TransportListener) -> None:
        """Listen and connect; pass what comes through open links to ``listener``."""
        self.listener = listener
        await self._transport.start(self)

    async def stop(self) -> None:
        """End all connections."""
        await self._transport.stop()

    async def vanish(self) -> None:
        """Break all connections; from now on nothing leaves and nothing arrives."""
        self._has_vanished = True
        await self._transport.stop()

    def send(self, member_id: str, message: Message) -> bool:
        """Send a message, or lose it where the link is cut; False if it was not taken."""
        if self._has_vanished:
            return False
        if self._links.is_cut(self._member_id, member_id):
            return True  # taken, and lost on the way
        return self._transport.send(member_id, message)

    def flush(self) -> None:
        """Send what is buffered, unless the member has vanished."""
        if not self._has_vanished:
            self._transport.flush()

    def is_connected(self, member_id: str) -> bool:
        """Say whether there is an open link to a member."""
        if self._has_vanished or self._links.is_cut(self._member_id, member_id):
            return False
        return self._transport.is_connected(member_id)

    # --- what the real one hears

    def on_message(self, member_id: str, message: Message) -> None:
        """Pass a message on, unless the link is cut."""
        if self.listener is not None and self._is_open(member_id):
            self.listener.on_message(member_id, message)

    def on_connected(self, member_id: str) -> None:
        """Pass on that a member connected, unless the link is cut."""
        if self.listener is not None and self._is_open(member_id):
            self.listener.on_connected(member_id)

    def on_disconnected(self, member_id: str) -> None:
        """Pass on that a member disconnected, unless the link was cut already."""
        if self.listener is not None and self._is_open(member_id):
            self.listener.on_disconnected(member_id)

    def _is_open(self, member_id: str) -> bool:
        return not self._has_vanished and not self._links.is_cut(self._member_id, member_id)
