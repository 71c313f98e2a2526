"""The core that is made of PySyncObj does what the plain one does, step for step."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.core import Core
from coordinator.raft.engine import Role
from coordinator.raft.hardening import HardenedSyncObj
from coordinator.raft.network.messages import VoteRequest
from coordinator.raft.storage.journal import Journal
from tests.amount import drawn, least
from tests.met import Met
from tests.raft.pure_core import PureCore
from tests.raft.storage.simulated_disk import SimulatedDisk

STEPS = 300
OTHERS = {1: (), 3: ("2", "3"), 5: ("2", "3", "4", "5")}


class Noted:
    """Notes what a core says to its host and asks of its entries."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.waiting: list[bytes] = []
        self._left = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.said.append((name, *arguments))

    def first(self) -> bytes:
        return b"first"

    def next(self) -> bytes | None:
        return self.waiting.pop(0) if self.waiting else None

    def begin_applying(self) -> None:
        self._left = 3

    def apply(self, index: int, term: int, entry: bytes) -> bool:
        """As one that has time for three entries."""
        self._left -= 1
        if self._left >= 0:
            self.said.append(("applied", index, term, entry))
        return self._left >= 0


class Driven:
    """One core with a log, a clock and chances of its own, that are alike for both."""

    def __init__(self, kind: Callable[..., Core], seed: int, count: int) -> None:
        self.now_ms = 10_000
        self.noted = Noted()
        self.log = Journal("data", SimulatedDisk(seed))
        self.log.add(b"", 1, 0)
        context: Any = SimpleNamespace(
            member_id="1",
            others=OTHERS[count],
            majority=count // 2 + 1,
            log=self.log,
            raft=RaftConfig(),
            random=random.Random(seed),
            now_ms=lambda: self.now_ms,
        )
        noted: Any = self.noted
        self.core = kind(context, noted, host=noted, applied_index=1)

    def seen(self) -> dict[str, Any]:
        core, log = self.core, self.log
        return {
            **{name: getattr(core, name) for name in READ},
            "little": core.has_little_to_apply(),
            "log": [tuple(each) for each in log[:]],
            "kept": (log.getCurrentTerm(), log.getVotedForNodeId()),
            "said": self.noted.said,
        }


READ = (
    "role", "term", "voted_for", "leader_id", "commit_index", "applied_index", "noop_index",
    "election_due_ms", "heartbeat_due_ms",
)  # fmt: skip


def step(chance: random.Random, seen: dict[str, Any], others: tuple[str, ...], now_ms: int) -> Any:
    """Return a name and the arguments of something that may be asked of a core in this state."""
    role, term, log = seen["role"], seen["term"], seen["log"]
    last_index, last_term = log[-1][1:]
    other = chance.choice(others) if others else ""
    later = term + chance.randint(1, 2)
    of_leader = later if role is Role.LEADER or chance.randrange(4) == 0 else term
    committed = [(index, at) for _, index, at in log if index >= seen["commit_index"]]
    previous = chance.choice(committed)
    steps: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "tick": ((), {}),
        "apply": ((), {}),
        "postpone_election": ((), {}),
        "install": ((chance.randint(seen["commit_index"], last_index),), {}),
    }
    if role is not Role.LEADER:
        steps["campaign"] = ((), {})
    if others:
        asked = VoteRequest(
            term + chance.randint(-1, 2),
            last_index=last_index + chance.randint(-1, 1),
            last_term=max(0, last_term + chance.randint(-1, 1)),
        )
        heard_ms = now_ms - chance.choice((0, 50, 10_000))
        steps |= {
            "hear_leader": ((other, of_leader - chance.randrange(2), chance.randrange(9)), {}),
            "consider_vote": ((other, asked), {}),
            "count_vote": ((other, term - chance.randrange(2)), {}),
            "adopt_term": ((later,), {}),
            "set_follower": ((other, chance.randint(0, last_index), heard_ms), {}),
            "append": (
                (other,),
                {
                    "term": of_leader,
                    "epoch": chance.randrange(9),
                    "commit_index": chance.randint(0, last_index + 3),
                    "previous": previous,
                    "entries": [(of_leader, b"%d" % n) for n in range(chance.randrange(4))],
                },
            ),
        }
        if role is Role.LEADER:  # what lets it stay one is asked more often
            rare = chance.randrange(4) == 0
            steps = steps if rare else {n: steps[n] for n in ("tick", "apply", "set_follower")}
        if role is Role.CANDIDATE and chance.randrange(2):
            return "count_vote", ((other, term), {})
        if "hear_leader" in steps and role is Role.LEADER:
            steps["hear_leader"] = ((other, later, 0), {})
    return chance.choice(sorted(steps.items()))


@pytest.mark.histories
def test_both_cores_do_the_same_step_for_step() -> None:
    """Whatever is asked of them: terms, votes, roles, the log, deadlines, and all that is said."""
    met = Met()
    for seed in range(drawn(120)):
        chance = random.Random(seed)
        count = (1, 3, 5)[seed % 3]
        both = [Driven(kind, seed, count) for kind in (HardenedSyncObj, PureCore)]
        for number in range(STEPS):
            before = both[0].seen()
            name, (arguments, named) = step(chance, before, OTHERS[count], both[0].now_ms)
            pause_ms, entry = chance.choice((0, 1, 30, 400)), chance.randrange(3) == 0
            for each in both:
                each.now_ms += pause_ms
                each.noted.said.clear()
                each.noted.waiting += [b"entry %d" % number] if entry else []
                getattr(each.core, name)(*arguments, **named)
                each.noted.waiting.clear()
            one, other = (each.seen() for each in both)
            assert one == other, f"seed {seed}, step {number}: {name} {arguments} {named}"

            role = one["role"]
            met[f"{name} as {role.name}"] += 1
            met["became leader"] += role is Role.LEADER and before["role"] is not Role.LEADER
            met["stepped down"] += name == "tick" and role is not before["role"]
            met["committed as leader"] += (
                role is Role.LEADER and one["commit_index"] > before["commit_index"]
            )
            met["cut"] += len(one["log"]) < len(before["log"])
            met["voted"] += any(type(each[-1]).__name__ == "VoteGrant" for each in one["said"])

    met.check(**least(became_leader=60, stepped_down=30, committed_as_leader=60, cut=60, voted=60))
