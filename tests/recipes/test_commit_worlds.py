"""Simulated worlds of a commit log: coordinators and sites die, are cut off, and lose answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError, OutcomeUnknownError
from coordinator.recipes import CommitLog, CommitSite, Transaction
from tests.recipes.storm import Life, Storm, storm

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
SITES = {2: "a", 3: "b", 4: "c"}
"""Clients 0 and 1 are coordinators."""


class Disk:
    """What a site keeps when its process dies."""

    def __init__(self) -> None:
        self.reserved: set[int] = set()
        self.applied: dict[int, Transaction] = {}


class Seen:
    """Every decision that was seen; it never becomes another one."""

    def __init__(self) -> None:
        self.decided: dict[int, tuple[str, int]] = {}
        self.keys: set[str] = set()

    def see(self, transaction: Transaction) -> None:
        self.keys.add(transaction.key)
        if not transaction.is_open:
            decision = (transaction.state, transaction.fencing_token)
            assert self.decided.setdefault(transaction.number, decision) == decision


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transaction_is_done_at_all_sites_or_at_none(seed: int) -> None:
    """Sites agree, a decision stays, none is missing at the end, and no error says too much."""
    keep = 500 if seed % 2 else 2
    disks: dict[str, Disk] = defaultdict(Disk)
    seen = Seen()
    not_begun: set[str] = set()
    again: set[str] = set()

    async def coordinate(life: Life) -> None:
        log = CommitLog(life.client, "pay", timeout=5, keep=keep)
        count = 0
        while not life.storm.is_over:
            met = life.storm.met
            is_again = count > 0 and life.random.random() < 0.3
            if not is_again:
                count += 1
            key = f"{life.name}-{count}"
            if is_again:
                again.add(key)
            try:
                done = await log.run(key, list(SITES.values()), count, timeout=3)
                assert not done.is_open
                seen.see(done)
                met[done.state] += 1
            except OutcomeUnknownError:
                met["unknown"] += 1
            except CoordinatorError as error:
                not_begun.add(key)
                met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random())

    async def attend(life: Life) -> None:
        name = SITES[life.number]
        site, disk = CommitSite(life.client, "pay", name), disks[name]

        async def prepare(transaction: Transaction) -> bool | str:
            seen.see(transaction)
            assert transaction.number not in disk.applied
            await asyncio.sleep(life.random.choice([0, 0, 0.2]))
            if life.random.random() < 0.1:
                disk.reserved.discard(transaction.number)
                return "no funds"
            disk.reserved.add(transaction.number)
            await asyncio.sleep(life.random.choice([0, 0, 0.2]))
            return True

        async def apply(transaction: Transaction) -> None:
            seen.see(transaction)
            assert not transaction.is_open
            before = disk.applied.get(transaction.number)
            if before is None:
                tokens = [each.fencing_token for each in disk.applied.values()]
                assert transaction.fencing_token >= max(tokens, default=0), "an earlier token"
            assert before is None or before.state == transaction.state
            if before is None and transaction.is_committed:
                assert transaction.number in disk.reserved, "committed what it did not promise"
            disk.applied[transaction.number] = transaction
            disk.reserved.discard(transaction.number)
            await asyncio.sleep(life.random.choice([0, 0, 0.2]))

        while True:
            try:
                await site.attend(prepare, apply, timeout=1)
                if life.storm.is_over:
                    log = await CommitLog(life.client, "pay").transactions()
                    if all(each.is_finished for each in log):
                        return
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
                await asyncio.sleep(life.random.random())

    async def work(life: Life) -> None:
        await (attend(life) if life.number in SITES else coordinate(life))

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        log = CommitLog(observer, "pay")
        left = await log.transactions()
        for each in left:
            assert not each.is_open
            seen.see(each)
        assert not (not_begun - again) & seen.keys, "begun, although the error said it was not"
        if keep == 500:
            assert {each.number for each in left} == set(seen.decided)
        else:
            assert len(left) < keep + 10
        for disk in disks.values():
            assert not disk.reserved, "a site was left without the decision"
            for number, done in disk.applied.items():
                assert seen.decided[number][0] == done.state
        for number, (state, _) in seen.decided.items():
            if state == "committed":
                assert all(number in disk.applied for disk in disks.values())
        assert [each.fencing_token for each in left] == sorted(e.fencing_token for e in left)

    met = storm(seed, work, judge=judge, clients=5, seconds=90)
    met.check(committed=2, aborted=1, unknown=1, kill=1, cut=1)
