"""Histories of a correct store, made from a seed: clients that overlap, answers that get lost.

Every operation takes effect at one moment between its call and its return, so the history is
linearizable by construction. One whose answer is lost takes effect later, perhaps much later, or
never, and nobody is told. ``Facts`` says how much an answer tells.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any

from tests.history.operations import Operation


class Facts(StrEnum):
    """What answers tell, the most first."""

    ALL = "value, Stat and the store's zxid"
    STAT = "value and Stat"
    VERSION = "value and version"
    VALUE = "value"


_TOLD = {
    Facts.ALL: {"value", "error", "version", "czxid", "mzxid", "zxid"},
    Facts.STAT: {"value", "error", "version", "czxid", "mzxid"},
    Facts.VERSION: {"value", "error", "version"},
    Facts.VALUE: {"value", "error"},
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of history to make. Ratios are of all operations, ``unknown`` of the writes."""

    operation_count: int
    key_count: int = 1
    client_count: int = 16
    facts: Facts = Facts.ALL
    write_ratio: float = 0.4
    unknown_ratio: float = 0.0
    value_count: int | None = None
    """How many different values are written; None: each write has its own."""


@dataclass(frozen=True, slots=True)
class _Znode:
    value: str
    version: int
    czxid: int
    mzxid: int


class _Store:
    """The sequential store itself."""

    def __init__(self) -> None:
        self.znodes: dict[str, _Znode] = {}
        self.zxid = 0

    def apply(self, key: str, kind: str, asked: dict[str, Any]) -> dict[str, Any]:
        znode = self.znodes.get(key)
        if kind == "create":
            if znode is not None:
                return {"error": "NodeExists", "zxid": self.zxid}
            self.zxid += 1
            self.znodes[key] = _Znode(asked["value"], 0, self.zxid, self.zxid)
        elif znode is None:
            return {"error": "NoNode", "zxid": self.zxid}
        elif kind == "read":
            return {"value": znode.value, **self._stat(key)}
        elif asked.get("expected_version", -1) not in (-1, znode.version):
            return {"error": "BadVersion", "zxid": self.zxid}
        elif kind == "set":
            self.zxid += 1
            self.znodes[key] = _Znode(asked["value"], znode.version + 1, znode.czxid, self.zxid)
        else:
            self.zxid += 1
            del self.znodes[key]
            return {"zxid": self.zxid}
        return self._stat(key)

    def _stat(self, key: str) -> dict[str, Any]:
        znode = self.znodes[key]
        return {
            "version": znode.version,
            "czxid": znode.czxid,
            "mzxid": znode.mzxid,
            "zxid": self.zxid,
        }


class _World:
    """Events in order of time; each gets its own number, which is what the history records."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.random = Random(seed)
        self.shape = shape
        self.store = _Store()
        self.history: list[Operation] = []
        self.known_versions: dict[str, int] = {}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._number = 0

    def at(self, when: float, what: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def stamp(self) -> int:
        self._number += 1
        return self._number

    def run(self) -> None:
        for client in range(self.shape.client_count):
            self.at(self.random.random(), lambda now, c=f"c{client}": self.call(c, now))  # type: ignore[misc]
        while self._events:
            now, _, what = heapq.heappop(self._events)
            what(now)

    def call(self, client: str, now: float) -> None:
        """Begin an operation; what follows of it and of its client are later events."""
        if len(self.history) == self.shape.operation_count:
            return
        random = self.random
        key = f"/k{random.randrange(self.shape.key_count)}"
        kind, asked = self._choose(key)
        index = len(self.history)
        self.history.append(Operation(client, key, kind, asked, None, self.stamp(), None))
        answer: dict[str, Any] = {}

        def take_effect(_now: float) -> None:
            answer.update(self.store.apply(key, kind, asked))
            if "version" in answer:
                self.known_versions[key] = answer["version"]

        def answered(now: float) -> None:
            told = {k: v for k, v in answer.items() if k in _TOLD[self.shape.facts]}
            self.history[index] = replace(
                self.history[index], output=told, returned_at=self.stamp()
            )
            self.at(now + random.expovariate(2.0), lambda later: self.call(client, later))

        if kind != "read" and random.random() < self.shape.unknown_ratio:
            if random.random() < 0.5:
                self.at(now + random.expovariate(random.choice((1.0, 0.05))), take_effect)
            self.at(now + 3.0, lambda later: self.call(client, later))
            return
        effect = now + random.expovariate(1.0)
        self.at(effect, take_effect)
        self.at(effect + random.expovariate(1.0), answered)

    def _choose(self, key: str) -> tuple[str, dict[str, Any]]:
        random = self.random
        if random.random() >= self.shape.write_ratio:
            return "read", {}
        count = self.shape.value_count
        number = len(self.history) if count is None else random.randrange(count)
        value = {"value": f"v{number}"}
        draw = random.random()
        version = self.known_versions.get(key, 0) + random.choice((0, 0, 0, 1))
        # Where nothing is, most writes could only be refused; a few are to be.
        if draw < (0.1 if key in self.store.znodes else 0.7):
            return "create", value
        if draw < 0.6:
            return "set", value
        if draw < 0.85:
            return "set", {**value, "expected_version": version}
        if draw < 0.95:
            return "delete", {}
        return "delete", {"expected_version": version}


def generate(seed: int, shape: Shape) -> list[Operation]:
    """Return a linearizable history; the same seed and shape, the same history."""
    world = _World(seed, shape)
    world.run()
    return world.history
