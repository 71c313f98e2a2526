"""A commit log: votes, decisions, what a crash leaves, and what callers learn."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from coordinator.client import connect
from coordinator.errors import (
    BadArgumentsError,
    LockTimeoutError,
    NoNodeError,
    OutcomeUnknownError,
    ThrottledError,
    UnavailableError,
)
from coordinator.recipes import CommitLog, CommitSite, Lock, Transaction
from coordinator.recipes.sharing import commit_steps
from coordinator.recipes.sharing.commit_record import SiteState
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving


async def yes(_: Transaction) -> bool:
    return True


async def no(_: Transaction) -> str:
    return "no funds"


async def nothing(_: Transaction) -> None:
    """Apply without an effect."""


def transaction(**sites: SiteState) -> Transaction:
    return Transaction("t", state="open", sites=sites, value=None, fencing_token=1)


def test_a_decision_needs_every_vote_and_stays() -> None:
    """Pure: what is decided from which votes, and what no step changes any more."""
    both = transaction(a="yes", b="yes")
    late = transaction(a="yes", b="preparing")
    refused = transaction(a="asked", b="asked").votes("a", False, "")

    assert both.decides(2).is_committed
    assert late.decides(2).state == "aborted"
    assert late.decides(2).reason == "no vote: b"
    assert refused.votes("a", True, "") == refused
    assert refused.decides(2).reason == "a: voted no"
    for decided in (both.decides(2), late.decides(2), refused.decides(2)):
        assert decided.decides(3) == decided
        assert decided.votes("b", True, "") == decided
        assert decided.prepares("b") == decided
    assert not late.decides(2).is_finished
    preparing = transaction(a="asked", b="preparing").decides(2)
    assert not preparing.is_finished, "b may have begun, and must hear that it is aborted"
    assert preparing.applies("b").is_finished
    assert late.decides(2).applies("a").applies("b").is_finished
    assert refused.decides(2).applies("b").sites["b"] == "asked"
    with pytest.raises(BadArgumentsError, match="expected a decision before 'a' applies"):
        late.applies("a")
    with pytest.raises(BadArgumentsError, match=r"expected one of the sites \['a', 'b'\]"):
        late.prepares("c")


@in_memory
async def test_all_sites_do_what_is_decided(world: MemoryCluster) -> None:
    """Committed if all vote yes, else aborted with the reason; sites get the token."""
    async with world.client() as client:
        log = CommitLog(client, "pay")
        one, two = CommitSite(client, "pay", "one"), CommitSite(client, "pay", "two")
        done: list[tuple[str, str, int]] = []

        async def apply(it: Transaction) -> None:
            done.append((it.key, it.state, it.fencing_token))

        for key, other in (("a", yes), ("b", no)):
            running = asyncio.create_task(log.run(key, ["one", "two"], {"n": 1}))
            assert await one.attend(yes, apply, 5) == 1
            assert await two.attend(other, apply, 5) == 1
            decided = await running
            while await one.attend(yes, apply, 0) or await two.attend(yes, apply, 0):
                pass
            found = await log.look(key)
            assert found is not None
            assert found.is_finished
            assert (found.state, found.reason) == (decided.state, decided.reason)

        assert [each[:2] for each in done] == [
            *[("a", "committed"), ("a", "committed"), ("b", "aborted")]
        ]
        assert done[0][2] < done[2][2]
        assert decided.reason == "two: no funds"


@in_memory
async def test_a_crashed_coordinator_is_followed_by_the_next(world: MemoryCluster) -> None:
    """In order, with a higher token: all votes there, committed; else aborted."""
    network = world.network()
    async with world.client(network, session_timeout=2) as dying, world.client() as client:
        running = asyncio.create_task(CommitLog(dying, "pay").run("a", ["one"], timeout=60))
        await asyncio.sleep(1)
        network.is_cut = True  # before the vote: it cannot see it
        site = CommitSite(client, "pay", "one")
        assert await site.attend(yes, nothing, 0) == 1
        voted = await CommitLog(client, "pay").look("a")
        assert voted is not None
        assert await site.decision(voted, 0) is None
        with pytest.raises(LockTimeoutError):
            await CommitLog(client, "pay", timeout=0).run("b", ["one"], timeout=0)

        decided = await CommitLog(client, "pay", timeout=30).recover()
        with pytest.raises(OutcomeUnknownError, match=r"look\('a'\) says which"):
            await running

        assert [each.state for each in decided] == ["committed"]
        assert decided[0].fencing_token > voted.fencing_token
        assert await site.decision(voted, 0) == decided[0]
        assert (await CommitLog(client, "pay").run("a", ["one"])).is_committed
        assert await CommitLog(client, "pay").look("b") is None


@in_memory
async def test_who_does_not_hold_the_lock_decides_nothing(world: MemoryCluster) -> None:
    """Also before it has learned that its lock was taken away; the next one decides instead."""
    async with world.client() as one, world.client() as client:
        running = asyncio.create_task(CommitLog(one, "pay").run("a", ["one"], timeout=60))
        await asyncio.sleep(1)
        [asked] = await CommitSite(client, "pay", "one").due()
        await client.revoke("commit-log:pay", by="ops", reason="test")
        await CommitSite(client, "pay", "one").vote(asked, True)
        with pytest.raises(OutcomeUnknownError):
            await running

        left = await CommitLog(client, "pay").look("a")
        assert left is not None
        assert left.is_open
        [decided] = await CommitLog(client, "pay").recover()
        assert decided.is_committed
        assert decided.fencing_token > asked.fencing_token


@in_memory
async def test_a_site_comes_next_where_nobody_else_does(world: MemoryCluster) -> None:
    """It prepares again after a crash, votes, and decides, because its coordinator is gone."""
    network = world.network()
    async with world.client(network, session_timeout=2) as dying, world.client() as client:
        running = asyncio.create_task(CommitLog(dying, "pay").run("a", ["one"], timeout=60))
        await asyncio.sleep(1)
        network.is_cut = True
        site = CommitSite(client, "pay", "one")
        applied: list[str] = []

        async def crash(_: Transaction) -> bool:
            raise KeyError("the process dies")

        async def apply(it: Transaction) -> None:
            applied.append(it.state)

        with pytest.raises(KeyError):
            await site.attend(crash, apply, 0)
        with pytest.raises(OutcomeUnknownError):
            await running
        await asyncio.sleep(5)

        assert await site.attend(yes, apply, 0) == 1
        assert applied == []
        assert await site.attend(yes, apply, 0) == 1
        assert applied == ["committed"]


@in_memory
async def test_an_error_before_the_beginning_says_so(world: MemoryCluster) -> None:
    """Busy, away: nothing is begun. A lost answer to the beginning: nobody knows."""
    network = world.network()
    async with world.client(network, timeout=1) as client, world.client() as other:
        log = CommitLog(client, "pay", timeout=0)
        async with Lock(other, "commit-log:pay"):
            with pytest.raises(LockTimeoutError):
                await log.run("a", ["one"])
        network.is_cut = True
        with pytest.raises(UnavailableError):
            await log.run("a", ["one"])
        network.is_cut = False
        assert await CommitLog(other, "pay").look("a") is None

        network.loses_reply_of = lambda request: "/v1/multi" in request.target
        with pytest.raises(OutcomeUnknownError, match="open, committed or aborted"):
            await log.run("b", ["one"])


@in_memory
async def test_a_log_keeps_what_sites_need_and_drops_the_rest(
    world: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished ones above ``keep`` go; at the bound of unfinished ones nothing is begun."""
    monkeypatch.setattr(commit_steps, "UNFINISHED_MAX", 2)
    async with world.client() as client:
        log, site = CommitLog(client, "pay", keep=2), CommitSite(client, "pay", "one")
        for number in range(5):
            await log.run(number, ["one"], timeout=0)
        assert [each.key for each in await log.transactions()] == ["3", "4"]

        for key in ("x", "y"):
            running = asyncio.create_task(log.run(key, ["one"]))
            await asyncio.sleep(0.5)
            [open_now] = [each for each in await site.due() if each.is_open]
            await site.vote(open_now, True)
            assert (await running).is_committed
        with pytest.raises(ThrottledError, match=r"'x', waits for one\. Nothing was begun"):
            await log.run("z", ["one"])
        [first, second] = await site.due()
        for _ in range(2):
            await site.applied(first)

        assert not (await log.run("z", ["one"], timeout=0)).is_committed
        assert await log.look("y") == second
        await client.delete("/commit-logs/pay/x")
        with pytest.raises(NoNodeError):
            await site.applied(first)


@in_memory
async def test_a_site_that_is_gone_for_good_is_written_off(
    world: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes on; what the site left is named, is not called applied, and stays so."""
    monkeypatch.setattr(commit_steps, "UNFINISHED_MAX", 2)
    async with world.client() as client:
        log, site = CommitLog(client, "pay"), CommitSite(client, "pay", "bank")

        async def voted(key: str) -> Transaction:
            running = asyncio.create_task(log.run(key, ["bank"], timeout=5))
            await asyncio.sleep(0.5)
            (due,) = [each for each in await site.due() if each.is_open]
            await site.vote(await site.prepare(due), True)
            return await running

        for key in ("one", "two"):
            assert (await voted(key)).is_committed
        with pytest.raises(ThrottledError, match="bank"):
            await log.run("three", ["bank"], timeout=0)

        gone = await CommitSite(client, "pay", "bank").write_off()

        assert [(each.key, each.sites["bank"]) for each in gone] == [
            ("one", "written_off"),
            ("two", "written_off"),
        ]
        assert all(each.is_finished and each.is_committed for each in gone)
        assert await site.write_off() == await site.due() == []
        assert (await site.applied(gone[0])).sites["bank"] == "written_off"
        assert not (await log.run("three", ["bank"], timeout=0)).is_committed


@in_memory
async def test_what_is_open_is_decided_before_its_site_is_written_off(
    world: MemoryCluster,
) -> None:
    """A coordinator that died left it; without its vote it is aborted, and then written off."""
    async with world.client() as client, world.client() as other:
        running = asyncio.create_task(CommitLog(other, "pay").run("one", ["bank"], timeout=60))
        site = CommitSite(client, "pay", "bank")
        (due,) = await site.due(5)
        await site.prepare(due)
        assert await site.write_off() == [], "its coordinator is at work"
        running.cancel()
        await asyncio.wait({running})

        (gone,) = await site.write_off()

        assert (gone.state, gone.sites["bank"]) == ("aborted", "written_off")


@in_memory
async def test_arguments_are_refused_before_anything_is_sent(world: MemoryCluster) -> None:
    """What was expected and what was found; foreign znodes, too."""
    bad_sites: list[Any] = [[], "one", ["a"] * 2, [""], [f"{n}" for n in range(17)]]
    async with world.client() as client:
        log = CommitLog(client, "pay")
        for sites in bad_sites:
            with pytest.raises(BadArgumentsError, match="site"):
                await log.run("a", sites)
        for value in (object(), float("nan"), "x" * 4_096):
            with pytest.raises(BadArgumentsError, match="value: expected"):
                await log.run("a", ["one"], value)
        for keep in (0, 501, True):
            with pytest.raises(BadArgumentsError, match="keep: expected 1 to 500"):
                CommitLog(client, "pay", keep=keep)
        assert await log.transactions() == []
    for data in (b"", b"[]", b'{"state":"open"}'):
        with pytest.raises(BadArgumentsError, match="expected a transaction, found"):
            Transaction.of("/commit-logs/pay/a", data, 1, 0)


def test_plain_functions_are_called_in_the_thread_of_their_caller() -> None:
    """With a sync client."""
    with serving() as url, connect(url) as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(CommitLog(client, "pay").run, "a", ["one"])
        site = CommitSite(client, "pay", "one")
        called: list[tuple[str, str]] = []

        def apply(it: Transaction) -> None:
            called.append((it.state, threading.current_thread().name))

        assert site.attend(lambda it: True, apply, 10) == 1
        assert running.result(10).is_committed
        assert site.attend(lambda it: True, apply, 10) == 1
        assert called == [("committed", threading.current_thread().name)]
