"""Commands nobody meant: what decodes is applied alike everywhere, what does not is refused.

The corpus is what the property tests of the state draw; it is damaged as bytes and as values.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
from hypothesis import HealthCheck, Phase, given, seed, settings

from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import Command
from coordinator.state.machine import StateMachine
from coordinator.state.outcome_codec import decode_outcome, encode_outcome
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import damaged, repacked
from tests.fuzz.watch import watching
from tests.state.strategies import SMALL_LIMITS, histories

ROOT = Path(__file__).resolve().parent.parent.parent
LIFE_COMMANDS = 150
ELSEWHERE_LIVES = 8
"""So many lives are replayed in one other process, of another hash seed."""


def drawn_corpus(of_seed: int, histories_max: int = 150) -> list[bytes]:
    """Return some thousand good commands, the same for the same seed and number."""
    corpus: list[bytes] = []

    @seed(of_seed)
    @settings(
        max_examples=histories_max,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories)
    def collect(history: list[Command]) -> None:
        corpus.extend(encode_command(command) for command in history)

    collect()
    return corpus


class Replicas:
    """One state, reached in two ways: straight, and by way of encodings and snapshots."""

    def __init__(self) -> None:
        self.straight = StateMachine(SMALL_LIMITS)
        self.roundabout = StateMachine(SMALL_LIMITS)
        self.log: list[bytes] = []
        self.outcomes: list[bytes] = []

    def apply(self, data: bytes, chance: random.Random) -> bool:
        """Apply what decodes on both; return whether it did."""
        try:
            command = decode_command(data)
        except ValueError:
            return False
        self.log.append(data)
        index = len(self.log)
        before = self.straight.zxid, self.straight.znode_count, self.straight.data_bytes
        outcome = self.straight.apply(command, index, 1)
        encoded = encode_outcome(outcome)
        assert decode_outcome(encoded) == outcome
        assert (outcome.result is None) != (outcome.refusal is None)
        if outcome.refusal is not None:
            after = self.straight.zxid, self.straight.znode_count, self.straight.data_bytes
            assert after == before
            assert not outcome.events

        again = decode_command(encode_command(command))
        repeated = self.roundabout.apply(again, index, 1)

        assert encode_outcome(repeated) == encoded
        self.outcomes.append(encoded)
        if chance.random() < 0.02:
            restored = StateMachine(SMALL_LIMITS)
            restored.restore(self.roundabout.snapshot())
            self.roundabout = restored
        return True

    def check(self) -> None:
        """Fail unless both ways led to the same."""
        assert self.straight.digest() == self.roundabout.digest()


def replay_elsewhere(lives: list[Replicas]) -> None:
    """Fail unless another process comes to the same outcomes and states."""
    history = "\n\n".join("\n".join(data.hex() for data in life.log) for life in lives)
    done = subprocess.run(
        [sys.executable, "-m", "tests.state.replay"],
        input=history,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = iter(done.stdout.split())
    for life in lives:
        for encoded in life.outcomes:
            assert next(found) == encoded.hex()
        assert next(found) == life.straight.digest()
        assert next(found) == b"".join(life.straight.snapshot()).hex()


def test_replicas_stay_equal_whatever_commands_come(fuzz: Fuzz) -> None:
    """No command raises, hangs or parts the replicas; what is refused changes nothing."""
    chance = fuzz.random("machine")
    corpus = drawn_corpus(fuzz.seed, 40 if fuzz.column in ("glance", "look") else 150)
    donors = [
        part
        for data in corpus[:500]
        for part in msgpack.unpackb(data, use_list=False, strict_map_key=False)
    ]
    done = fuzz.of("machine")
    lives: list[Replicas] = []
    with watching(done) as watch:
        while done.count < fuzz.count("machine"):
            life = Replicas()
            for _ in range(LIFE_COMMANDS):
                data = chance.choice(corpus)
                kind = chance.random()
                if kind > 0.7:
                    data = damaged(data, chance, others=corpus)
                elif kind > 0.25:
                    data = repacked(data, chance, donors)
                with watch.each(f"seed {fuzz.seed}: {data.hex()}"):
                    done.accepted += life.apply(data, chance)
            life.check()
            lives.append(life)
            if len(lives) == ELSEWHERE_LIVES:
                replay_elsewhere(lives)
                lives.clear()
        if lives:
            replay_elsewhere(lives)
