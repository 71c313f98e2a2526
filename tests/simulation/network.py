"""The network between members: delay, loss, cuts of each direction, connections that break.

Messages cross it encoded. In one direction of one connection they keep their order, as TCP does,
but for stragglers and duplicates, which are harsher than TCP and must do no harm. What arrives runs
as the receiving process, so a paused member finds it afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.raft.network.agreement import (
    NOTHING_AGREED,
    Agreement,
    Fact,
    Levels,
    ReadLevels,
    ShownAgreement,
    difference,
)
from coordinator.raft.network.messages import NEWEST, MemberRequest, Message
from coordinator.raft.network.transport import TransportListener
from tests.simulation.loop import Owner

NOTICE_S = (1.0, 3.0)
"""How long a cut connection stands before its ends find out."""
RECONNECT_S = (0.0, 1.0)


@dataclass
class Weather:
    """What happens to every message; the faults change it."""

    delay_ms: tuple[float, float] = (0.2, 2.0)
    loss: float = 0.0
    stragglers: float = 0.0
    """Share of messages that take up to three seconds, out of order."""
    duplicates: float = 0.0


class MemberNetwork:
    """All links between the members."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.weather = Weather()
        self.ends: dict[str, NetworkEnd] = {}
        self.cuts: set[tuple[str, str]] = set()
        """(from, to): what is sent there vanishes."""
        self.broken: set[tuple[str, str]] = set()
        """Pairs (sorted) whose connection both ends know to be gone."""
        self.leaving: dict[tuple[str, str], float] = {}
        """(who died, who still hears it): until when what was under way arrives."""
        self.on_sent: list[Callable[[str, Message], None]] = []
        self._arrivals: dict[tuple[str, str], float] = {}

    def cut(self, source: str, target: str) -> None:
        """Cut one direction; after a while both ends notice."""
        self.cuts.add((source, target))
        after_s = self.random.uniform(*NOTICE_S)
        asyncio.get_running_loop().call_later(after_s, self._notice, source, target)

    def mend(self, source: str, target: str) -> None:
        """End a cut; a connection that was given up comes back after a while."""
        self.cuts.discard((source, target))
        after_s = self.random.uniform(*RECONNECT_S)
        asyncio.get_running_loop().call_later(after_s, self._reconnect, *pair(source, target))

    def heal(self) -> None:
        for source, target in sorted(self.cuts):
            self.mend(source, target)

    def duplicate_connection(self, one: str, other: str) -> None:
        """Replace the connection by a new one; what is under way over the old one may be lost."""
        ends = self.ends
        if self.is_connected(one, other):
            for here, there in ((one, other), (other, one)):
                ends[here].owner.soon(ends[here].tell_connected, there)

    def is_connected(self, one: str, other: str) -> bool:
        end, far = self.ends.get(one), self.ends.get(other)
        if end is None or far is None or (self.broken and pair(one, other) in self.broken):
            return False
        return end.agreement == far.agreement or not self.disagreement(one, other)

    def disagreement(self, one: str, other: str) -> str:
        """Say why two members that are up refuse each other, as ``one`` puts it."""
        own, theirs = self.ends[one].agreement, self.ends[other].agreement
        return (
            ""
            if own == theirs
            else difference(own, ShownAgreement.read(theirs.shown()), one, other)
        )

    def seems_connected(self, here: str, there: str) -> bool:
        """Whether ``here`` has no way to know better."""
        if self.is_connected(here, there):
            return True
        until_s = self.leaving.get((there, here))
        return until_s is not None and asyncio.get_running_loop().time() <= until_s

    def part(self, gone: str, other: str) -> float:
        """Return when ``other`` learns that ``gone`` has died."""
        loop, draw = asyncio.get_running_loop(), self.random
        lag_s = 0.0 if draw.random() < 0.3 else draw.uniform(0, 2 * self.weather.delay_ms[1]) / 1000
        self.leaving[gone, other] = loop.time() + lag_s
        return loop.time() + lag_s

    def carry(self, sender: NetworkEnd, target: str, message: Message) -> None:
        way = (sender.member_id, target)
        payload = NEWEST.encode(message)
        draw, weather = self.random, self.weather
        if way in self.cuts or (weather.loss and draw.random() < weather.loss):
            return
        end = self.ends.get(target)
        if end is None:
            return  # it has died, and the sender does not know yet
        now_s = asyncio.get_running_loop().time()
        arrival_s = now_s + draw.uniform(*weather.delay_ms) / 1000
        arrival_s = max(arrival_s, self._arrivals.get(way, 0.0))
        self._arrivals[way] = arrival_s
        if weather.stragglers and draw.random() < weather.stragglers:
            arrival_s += draw.uniform(0.1, 3.0)
        end.owner.at(arrival_s, self._arrive, sender, end, payload)
        is_twice = weather.duplicates > 0 and draw.random() < weather.duplicates
        if is_twice and not isinstance(
            message, MemberRequest
        ):  # a question is asked once, as over TCP
            late_s = arrival_s + draw.uniform(0.0, 1.0)
            end.owner.at(late_s, self._arrive, sender, end, payload)

    def _arrive(self, sender: NetworkEnd, end: NetworkEnd, payload: bytes) -> None:
        # What was under way when its sender died arrives until the end of the connection does,
        # and nothing of it over the connection of the next life.
        source = sender.member_id
        is_of_this_life = self.ends.get(source, sender) is sender
        if end.is_up and is_of_this_life and self.seems_connected(end.member_id, source):
            end.listener.on_message(source, NEWEST.decode(payload))

    def break_connection(self, one: str, other: str) -> None:
        """End a connection; another one is made after a while."""
        self._mark_broken(pair(one, other))
        after_s = self.random.uniform(*RECONNECT_S)
        asyncio.get_running_loop().call_later(after_s, self._reconnect, *pair(one, other))

    def _mark_broken(self, both: tuple[str, str]) -> None:
        if both in self.broken:
            return
        self.broken.add(both)
        for here, there in (both, both[::-1]):
            if here in self.ends and there in self.ends:
                self.ends[here].owner.soon(self.ends[here].tell_lost, there)

    def _notice(self, source: str, target: str) -> None:
        if (source, target) in self.cuts:
            self._mark_broken(pair(source, target))

    def _reconnect(self, one: str, other: str) -> None:
        if (one, other) in self.cuts or (other, one) in self.cuts:
            return
        if (one, other) in self.broken:
            self.broken.discard((one, other))
            for here, there in ((one, other), (other, one)):
                if here in self.ends and there in self.ends:
                    self.ends[here].owner.soon(self.ends[here].tell_connected, there)


class NetworkEnd:
    """One member's transport, for one of its lives."""

    listener: TransportListener

    def __init__(
        self,
        network: MemberNetwork,
        member_id: str,
        owner: Owner,
        on_send: Callable[[Message], None],
    ) -> None:
        self._network = network
        self.member_id = member_id
        self.owner = owner
        self.is_up = False
        self._agreement = NOTHING_AGREED
        self.read_levels: ReadLevels = Levels
        self._on_send = on_send

    def agree_on(self, facts: Sequence[Fact]) -> None:
        self._agreement = self._agreement.with_facts(facts)

    def show_levels(self, read: ReadLevels, release: str) -> None:
        self.read_levels = read
        self._agreement = replace(self._agreement, release=release)

    @property
    def agreement(self) -> Agreement:
        return replace(self._agreement, levels=self.read_levels())

    def drop(self, member_id: str) -> None:
        self._network.break_connection(self.member_id, member_id)

    def disagreements(self) -> Mapping[str, str]:
        if not self.is_up:
            return {}
        others = [each for each in self._network.ends if each != self.member_id]
        found = {each: self._network.disagreement(self.member_id, each) for each in others}
        return {each: why for each, why in found.items() if why}

    async def start(self, listener: TransportListener) -> None:
        self.listener = listener
        self.is_up = True
        network = self._network
        network.ends[self.member_id] = self
        network.leaving = {
            both: until_s for both, until_s in network.leaving.items() if self.member_id not in both
        }
        network.broken = {both for both in network.broken if self.member_id not in both}
        for other_id, other in list(network.ends.items()):
            if other is self:
                continue
            both = (self.member_id, other_id)
            if both in network.cuts or both[::-1] in network.cuts:
                network.broken.add(pair(*both))
                continue
            self.owner.soon(self.tell_connected, other_id)
            other.owner.soon(other.tell_connected, self.member_id)

    async def stop(self) -> None:
        self.vanish()

    def vanish(self) -> None:
        """The process is gone: the others hear its last words, and see its connections close."""
        if not self.is_up:
            return
        self.is_up = False
        network = self._network
        if network.ends.get(self.member_id) is self:
            del network.ends[self.member_id]
        for other_id, other in list(network.ends.items()):
            if (self.member_id, other_id) not in network.cuts:
                until_s = network.part(self.member_id, other_id)
                other.owner.at(until_s, other.tell_lost, self.member_id)

    def tell_connected(self, member_id: str) -> None:
        if self.is_up and self.is_connected(member_id):
            self.listener.on_connected(member_id)

    def tell_lost(self, member_id: str) -> None:
        if self.is_up and not self.is_connected(member_id):
            self.listener.on_disconnected(member_id)

    def send(self, member_id: str, message: Message) -> bool:
        if not self.is_connected(member_id):
            return False
        self._on_send(message)
        self._network.carry(self, member_id, message)
        for listener in self._network.on_sent:
            listener(self.member_id, message)
        return True

    def flush(self) -> None:
        """Everything left when it was sent."""

    def is_connected(self, member_id: str) -> bool:
        return self.is_up and self._network.seems_connected(self.member_id, member_id)


def pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
