"""How much bad input each target gets, and what was made of it: the table, as data.

``glance`` is a part of the fast suite, ``look`` of ``make check``; ``short`` is what ``make fuzz``
does; ``release`` is added up before a release, in parts of different seeds. A failure prints its
seed and its number; ``--fuzz short --fuzz-seed SEED`` makes the same again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of bad input: how many ``units`` of it."""

    units: str
    glance: int
    look: int
    short: int
    release: int


TARGETS = {
    "openapi": Target("requests made from the OpenAPI document", 8, 40, 10_000, 1_000_000),
    "openapi-disk": Target("of them to a process with a disk", 4, 20, 2_000, 200_000),
    "requests": Target("requests as bytes, mutated", 120, 600, 30_000, 3_000_000),
    "requests-disk": Target("of them to a process with a disk", 40, 200, 8_000, 800_000),
    "rights": Target("requests without rights, at others' things", 80, 400, 20_000, 2_000_000),
    "streams": Target("conversations of the stream, mutated", 20, 100, 10_000, 1_000_000),
    "machine": Target("commands, mutated, on three replicas", 400, 2_000, 50_000, 10_000_000),
    "strangers": Target("frames of callers that prove nothing", 60, 300, 10_000, 1_000_000),
    "handshakes": Target("handshakes of who is not who it says", 8, 40, 500, 10_000),
    "frames": Target("messages on a member's socket, badly framed", 100, 500, 10_000, 1_000_000),
    "idle": Target("calls to member ports that say nothing", 60, 300, 2_000, 20_000),
    "liars": Target("messages of a proved member, mutated", 400, 2_000, 20_000, 2_000_000),
    "replays": Target("messages that come again, late, elsewhere", 300, 1_500, 20_000, 2_000_000),
    "files": Target("damaged files met by a start (0: each byte, each length)", 12, 60, 0, 0),
    "configuration": Target("configuration files, mutated", 80, 400, 2_000, 100_000),
    "flags": Target("command lines, mutated", 12, 60, 2_000, 50_000),
    "slowness": Target("half headers, half bodies and unread streams, each", 20, 100, 2_000, 2_000),
}


@dataclass(slots=True)
class Done:
    """What was done to one target."""

    count: int = 0
    accepted: int = 0
    stopped: int = 0
    """How often the one who was fed ended itself, for a reason it names."""
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    grown_bytes: int = 0


class Fuzz:
    """The counts of this run, its seed, and what came of it."""

    def __init__(self, column: str, counts: list[str], seed: int) -> None:
        self.seed = seed
        self.column = column
        self.done: dict[str, Done] = {}
        self._counts: dict[str, int] = {}
        for given in counts:
            name, _, number = given.partition("=")
            if name not in TARGETS or not number.isdigit():
                raise ValueError(f"expected TARGET=COUNT of {', '.join(TARGETS)}, found {given!r}")
            self._counts[name] = int(number)

    def count(self, name: str) -> int:
        """Return how many ``units`` of this target are asked for."""
        found: int = self._counts.get(name, getattr(TARGETS[name], self.column))
        return found

    def random(self, name: str) -> random.Random:
        """Return this target's own source of chance."""
        return random.Random(f"{self.seed} {name}")

    def of(self, name: str) -> Done:
        """Return the record of this target."""
        return self.done.setdefault(name, Done())

    def summary(self) -> Iterator[str]:
        """Say for each target what was done."""
        for name, done in self.done.items():
            yield (
                f"{name:14} {done.count:>9,} {TARGETS[name].units}: {done.accepted:,} accepted,"
                f"{f' {done.stopped} stops,' if done.stopped else ''}"
                f" {done.seconds:.1f} s, slowest {done.slowest_seconds * 1_000:.0f} ms,"
                f" memory +{done.grown_bytes / 2**20:.1f} MiB"
            )
