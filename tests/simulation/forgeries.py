"""What a member that lies says to another one, once in a while: it may cost time, and no vote.

Each lie is what whoever knows the secret could send, made up or with seals that it was really
shown. Drawn from a stream of its own, in worlds of their own (``FORGERIES_EVERY``).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from coordinator.raft.rejoin import incarnation_record
from coordinator.raft.rejoin.acknowledgement_seals import SEAL_BYTES
from coordinator.raft.term_bounds import TERM_JUMP_MAX, TERM_MAX
from tests.simulation.members import SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("forge",)
GAP_S = (0.3, 2.5)


class Forgeries:
    """Those of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/forgeries")
        self._liar = self._random.choice(world.members)

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(*GAP_S))
            liar = self._liar
            others = [each for each in self._world.members if each is not liar]
            victim = self._random.choice(others)
            if liar.is_started and victim.is_started:
                victim.owner.soon(self._tell, liar, victim, self._lie(liar, victim))

    def _lie(self, liar: SimulatedMember, victim: SimulatedMember) -> Message:
        draw, status = self._random, victim.engine.status()
        made_up = draw.randbytes(SEAL_BYTES)
        kind = draw.choice(("incarnation", "proof", "log", "term", "doubt"))
        if kind == "log" or (status.leader_id == liar.member_id and draw.random() < 0.5):
            index = status.last_index + draw.randint(1, 1_000)
            return say.LogLost(
                term=status.term,
                last_index=index,
                said_term=status.term,
                said_index=index,
                seal=made_up,
            )
        if kind == "term":
            return say.TermNotice(draw.choice((status.term + 1 + TERM_JUMP_MAX, TERM_MAX)))
        record = incarnation_record.load(liar.disk, "data")
        met = record.met.get(victim.member_id)
        if kind == "doubt" and met is not None:
            return draw.choice((say.Doubt, say.Vouch))(victim.member_id, met.life_id)
        if kind == "proof" and met is not None:
            larger = (
                met.number, met.incarnation_id, met.life_id,
                status.term + 9, status.last_index + 9,
            )  # fmt: skip
            return say.IncarnationLost(*larger, met.seal)
        incarnation_id = draw.randbytes(say.INCARNATION_ID_BYTES)
        number = draw.randint(1, 10_000)
        return say.IncarnationLost(
            number=number,
            incarnation_id=incarnation_id,
            life_id=incarnation_id,
            proof_term=status.term + 9,
            proof_index=9,
            seal=made_up,
        )

    def _tell(self, liar: SimulatedMember, victim: SimulatedMember, lie: Message) -> None:
        record, end = self._world.record, victim.transport
        if not victim.is_started or not end.is_connected(liar.member_id):
            return
        record.tally.faults["forge"] = record.tally.faults.get("forge", 0) + 1
        record.trace.add("fault", f"m{liar.member_id} lies to {victim.who}: {lie}")
        had_vote = victim.is_proven
        end.listener.on_message(liar.member_id, lie)
        if had_vote and not victim.is_proven and not victim.disk.faults:
            record.violate("one liar takes no vote", f"{victim.who} heard {lie}")
