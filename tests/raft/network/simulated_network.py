"""A network in memory: delays, one-way cuts, loss and reordering, drawn from a seed.

Messages cross it encoded, so that what the codec refuses is found here too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from coordinator.raft.network.agreement import (
    NOTHING_AGREED,
    Agreement,
    Fact,
    Levels,
    ReadLevels,
    ShownAgreement,
    difference,
)
from coordinator.raft.network.messages import NEWEST, Message
from coordinator.raft.network.transport import TransportListener

SHUNNED_S = 1.0
"""What ``reconnect_delay_ms_max`` is, where nobody says otherwise."""


class SimulatedNetwork:
    """All links between the members; each direction of each link is its own."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.members: dict[str, SimulatedTransport] = {}
        self.cuts: set[tuple[str, str]] = set()
        """(from, to): what is sent there vanishes, and nobody is told."""
        self.delay_ms = (1.0, 1.0)
        self.loss = 0.0
        self.stragglers = 0.0
        """How many messages take up to three seconds, in spite of ``delay_ms`` and any order."""
        self.duplicates = 0.0
        self.is_ordered = True
        self.sent_total = 0
        self.drops: list[tuple[str, str]] = []
        """(who dropped the connection, to whom)."""
        self.shunned: set[frozenset[str]] = set()
        """Pairs of which one dropped the connection less than ``SHUNNED_S`` ago."""
        self.on_message: Callable[[str, str, Message], bool] | None = None
        """Sees (from, to, message) before it arrives; False drops it."""
        self._arrivals: dict[tuple[str, str], float] = {}

    def cut(self, source: str, target: str) -> None:
        self.cuts.add((source, target))

    def isolate(self, member_id: str) -> None:
        for other in self.members:
            if other != member_id:
                self.cut(member_id, other)
                self.cut(other, member_id)

    def heal(self) -> None:
        self.cuts.clear()

    def connected(self, one: str, other: str) -> bool:
        members = self.members
        is_shunned = frozenset((one, other)) in self.shunned
        both_up = one in members and other in members
        return both_up and not is_shunned and not self.disagreement(one, other)

    def disagreement(self, one: str, other: str) -> str:
        """Say why two members that are up refuse each other, as ``one`` puts it."""
        own, theirs = self.members[one].agreement, self.members[other].agreement
        return (
            ""
            if own == theirs
            else difference(own, ShownAgreement.read(theirs.shown()), one, other)
        )

    def carry(self, source: str, target: str, message: Message) -> None:
        self.sent_total += 1
        loop = asyncio.get_running_loop()
        payload = NEWEST.encode(message)
        if (source, target) in self.cuts or self.random.random() < self.loss:
            return
        arrival = loop.time() + self.random.uniform(*self.delay_ms) / 1000
        if self.is_ordered:
            # Strictly later: timers of the same moment end in any order.
            arrival = max(arrival, self._arrivals.get((source, target), 0.0) + 1e-6)
            self._arrivals[source, target] = arrival
        life = self.members.get(target)
        if self.random.random() < self.stragglers:
            arrival += self.random.uniform(0.1, 3.0)
        loop.call_at(arrival, self._arrive, source, target, life, payload)
        if self.random.random() < self.duplicates:
            late = arrival + self.random.uniform(0.0, 1.0)
            loop.call_at(late, self._arrive, source, target, life, payload)

    def _arrive(
        self, source: str, target: str, life: SimulatedTransport | None, payload: bytes
    ) -> None:
        transport = self.members.get(target)
        if transport is None or transport is not life or (source, target) in self.cuts:
            return
        if not self.connected(source, target):
            return  # its connection went with it
        if transport.held is not None:
            transport.held.append((source, payload))
            return
        message = NEWEST.decode(payload)
        if self.on_message is not None and not self.on_message(source, target, message):
            return
        transport.listener.on_message(source, message)


class SimulatedTransport:
    """One member's end of the network, for one of its lives."""

    listener: TransportListener

    def __init__(self, network: SimulatedNetwork, member_id: str) -> None:
        self._network = network
        self._member_id = member_id
        self._is_up = False
        self._agreement = NOTHING_AGREED
        self.read_levels: ReadLevels = Levels
        self.held: list[tuple[str, bytes]] | None = None
        """What arrived while the member was paused."""
        self.on_send: Callable[[str, Message], None] | None = None

    def pause(self) -> None:
        """Keep what arrives until ``resume``; what the member says still leaves."""
        self.held = self.held if self.held is not None else []

    def resume(self) -> None:
        held, self.held = self.held or [], None
        for source, payload in held:
            if self._is_up:
                self.listener.on_message(source, NEWEST.decode(payload))

    def agree_on(self, facts: Sequence[Fact]) -> None:
        self._agreement = self._agreement.with_facts(facts)

    def show_levels(self, read: ReadLevels, release: str) -> None:
        self.read_levels = read
        self._agreement = replace(self._agreement, release=release)

    @property
    def agreement(self) -> Agreement:
        return replace(self._agreement, levels=self.read_levels())

    def drop(self, member_id: str) -> None:
        """End the connection; no other follows for a while, as on a real network."""
        network, pair = self._network, frozenset((self._member_id, member_id))
        network.drops.append((self._member_id, member_id))
        if pair in network.shunned:
            return
        network.shunned.add(pair)
        loop = asyncio.get_running_loop()
        for here, there in ((self._member_id, member_id), (member_id, self._member_id)):
            if here in network.members:
                loop.call_soon(network.members[here].listener.on_disconnected, there)
        loop.call_later(SHUNNED_S, self._connect_again, member_id)

    def _connect_again(self, member_id: str) -> None:
        network, own_id = self._network, self._member_id
        network.shunned.discard(frozenset((own_id, member_id)))
        if network.connected(own_id, member_id):
            network.members[own_id].listener.on_connected(member_id)
            network.members[member_id].listener.on_connected(own_id)

    def disagreements(self) -> Mapping[str, str]:
        if not self._is_up:
            return {}
        others = [each for each in self._network.members if each != self._member_id]
        found = {each: self._network.disagreement(self._member_id, each) for each in others}
        return {each: why for each, why in found.items() if why}

    async def start(self, listener: TransportListener) -> None:
        self.listener = listener
        self._is_up = True
        self._network.members[self._member_id] = self
        for other_id, other in list(self._network.members.items()):
            if other is not self and self._network.connected(self._member_id, other_id):
                listener.on_connected(other_id)
                other.listener.on_connected(self._member_id)

    async def stop(self) -> None:
        self.vanish()

    def vanish(self) -> None:
        """The process is gone: the others see its connections close."""
        if not self._is_up:
            return
        self._is_up = False
        members = self._network.members
        if members.get(self._member_id) is self:
            del members[self._member_id]
        for other in list(members.values()):
            asyncio.get_running_loop().call_soon(other.maybe_tell_lost, self._member_id)

    def maybe_tell_lost(self, member_id: str) -> None:
        if self._is_up and member_id not in self._network.members:
            self.listener.on_disconnected(member_id)

    def send(self, member_id: str, message: Message) -> bool:
        if not self.is_connected(member_id):
            return False
        if self.on_send is not None:
            self.on_send(member_id, message)
        self._network.carry(self._member_id, member_id, message)
        return True

    def flush(self) -> None:
        """Everything left when it was sent."""

    def is_connected(self, member_id: str) -> bool:
        return self._is_up and self._network.connected(self._member_id, member_id)
