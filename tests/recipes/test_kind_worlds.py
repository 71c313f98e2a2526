"""A simulated world for each kind of lock: who excludes each other is never inside together."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError
from coordinator.recipes import Grant, Lock, MultiLock, RWLock, Semaphore, TreeLock
from tests.recipes.storm import Life, Storm, left_below, storm

NAMES = ("a", "b", "c")
SLOTS = 2
FAST = ("RWLock", "Semaphore")


@dataclass(frozen=True)
class Inside:
    """One body that runs: whose, under which grant, and whether others may be beside it."""

    life: Life
    grant: Grant[AsyncClient]
    is_shared: bool

    @property
    def believes(self) -> bool:
        """Whether it may still act as a holder."""
        return not self.life.is_dead and not self.grant.is_lost


def contender(kind: str, client: AsyncClient, source: random.Random) -> tuple[Any, bool]:
    """Return a contender of this kind, and whether it shares."""
    timeout = source.choice([0, 1, 3, 10])
    name = source.choice(NAMES[:2])
    match kind:
        case "Lock":
            return Lock(client, name, timeout=timeout), False
        case "TreeLock":
            return TreeLock(client, name, timeout=timeout), False
        case "Semaphore":
            return Semaphore(client, "slots", SLOTS, timeout=timeout), True
        case "MultiLock":
            names = source.sample(NAMES, source.choice([1, 2, 3]))
            return MultiLock(client, *names, timeout=timeout), False
    both = RWLock(client, name, timeout=timeout)
    is_reader = source.random() < 0.6
    return both.read() if is_reader else both.write(), is_reader


def worlds() -> list[Any]:
    """Each kind with each seed; most of them are run by `make check`, or by hand."""
    found = []
    for kind in ("Lock", "MultiLock", "RWLock", "Semaphore", "TreeLock"):
        first = () if kind in FAST else (pytest.mark.check,)
        found.append(pytest.param(kind, 1, marks=first))
        found += [pytest.param(kind, seed, marks=pytest.mark.slow) for seed in range(2, 12)]
    return found


@pytest.mark.parametrize(("kind", "seed"), worlds())
def test_no_two_are_inside_who_exclude_each_other(kind: str, seed: int) -> None:
    """Of all bodies that may act; and who is alone has a token above all who were before."""
    inside: dict[str, list[Inside]] = {}
    tokens: dict[str, int] = {}

    def check(mine: Inside) -> None:
        others = [each for each in inside[mine.grant.lock] if each is not mine and each.believes]
        if not mine.believes:
            return
        if kind == "Semaphore":
            assert len(others) < SLOTS, (mine, others)
            return
        assert not [each for each in others if not (each.is_shared and mine.is_shared)], (
            mine,
            others,
        )

    def enter(life: Life, grant: Grant[AsyncClient], is_shared: bool) -> Inside:
        mine = Inside(life, grant, is_shared)
        beside = inside.setdefault(grant.lock, [])
        life.storm.met["together"] += any(each.believes for each in beside)
        beside.append(mine)
        check(mine)
        if not is_shared:
            assert grant.fencing_token > tokens.get(grant.lock, 0)
        tokens[grant.lock] = max(grant.fencing_token, tokens.get(grant.lock, 0))
        return mine

    async def hold(life: Life) -> None:
        made, is_shared = contender(kind, life.client, life.random)
        async with made as held:
            grants = held if isinstance(held, tuple) else (held,)
            bodies = [enter(life, each, is_shared) for each in grants]
            try:
                for _ in range(life.random.randrange(5)):
                    await asyncio.sleep(life.random.choice([0.05, 0.3]))
                    for mine in bodies:
                        check(mine)
            finally:
                for mine in bodies:  # before the release, whose answer may be late
                    inside[mine.grant.lock].remove(mine)
        life.storm.met["held"] += 1

    async def work(life: Life) -> None:
        while not life.storm.is_over:
            try:
                await hold(life)
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.2)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        assert await left_below(observer, "/locks") == []

    met = storm(seed, work, judge=judge, clients=4)
    met.check(held=30, kill=1, cut=1, together=5 if kind in FAST else 0)
