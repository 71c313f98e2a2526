"""What a member says of its locks in words: pages, rights, bounds, and without a leader."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import NoAuthError
from coordinator.model.access import NOBODY, Caller, Rule, Verb
from coordinator.model.acquire import AcquireRequest
from coordinator.model.diagnosis import Diagnosis, LockDiagnosis, LockWhy
from coordinator.model.manual_holds import ROOT, ManualHold
from coordinator.service.reads.reads import LINEARIZABLE, STALE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import AddToken, Create, InitAccess, PutIdentity, PutRole
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import (
    WITHOUT_LEASES,
    acquired,
    acquiring,
    opened,
    release,
)

PAGE = 2


async def why(world: World, name: str, caller: Caller = NOBODY) -> LockWhy:
    asked = world.leader.explanations.why(name, LINEARIZABLE, world.deadline(), caller=caller)
    return (await soon(asked)).value


async def diagnosis(world: World, caller: Caller = NOBODY, **more: Any) -> Diagnosis:
    asked = world.leader.explanations.diagnosis(
        LINEARIZABLE, world.deadline(), caller=caller, **more
    )
    return (await soon(asked)).value


async def diagnosed(world: World, caller: Caller = NOBODY) -> list[LockDiagnosis]:
    """Return what is found of all locks, read in small pages."""
    found: list[LockDiagnosis] = []
    after: str | None = None
    while True:
        page = await diagnosis(world, caller, after=after, limit=PAGE)
        assert len(page.locks) <= PAGE
        found += page.locks
        after = page.next
        if after is None:
            return found


async def held_by_hand(world: World, name: str, **more: Any) -> None:
    """Hold a lock by hand whose queue is not there any more."""
    hold = ManualHold(fencing_token=7, by="ann", note="a crane", **more)
    paths = [(ROOT, b""), (f"{ROOT}/{name}", hold.to_bytes())]
    for path, value in paths:
        if world.leader._replica.machine.stat(path) is None:
            await created(world, path, value)


async def created(world: World, path: str, data: bytes = b"") -> None:
    await world.leader.proposer.submit(Create(path, data), RequestContext(None, world.deadline()))


async def with_rights(world: World, *rules: Rule) -> Caller:
    """Turn the rights on; return an identity that has these."""
    for operation in (
        PutRole("one", rules),
        PutIdentity("one", ("one",)),
        AddToken("one", token_id="tokenone1", digest=b"d" * 32),
        InitAccess("ops", token_id="opstoken1", digest=b"e" * 32),
    ):
        await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))
    token = world.leader._replica.machine.access.token("tokenone1")
    assert token is not None
    return token.caller


async def test_every_lock_that_is_known_is_diagnosed_page_by_page() -> None:
    """Held, held by hand, or in the history alone; not one of which nothing is known."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        for name in ("a", "e"):
            await soon(acquired(world, session_id, name=name))
        for name in ("b", "f", "g"):
            await release(world, await soon(acquired(world, session_id, name=name)))
        await held_by_hand(world, "d")
        await created(world, "/locks/c")
        found = await diagnosed(world)

    assert [each.lock for each in found] == ["a", "b", "d", "e", "f", "g"]
    assert [each.findings[0].code for each in found][:3] == ["healthy", "healthy", "held-by-hand"]


async def test_what_is_found_is_of_the_locks_that_the_caller_sees() -> None:
    """Neither by a line, nor by where a page goes on: a prefix is no right on its sibling."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        for name in ("a", "own", "own-not", "z"):
            await soon(acquired(world, session_id, name=name))
        for name in ("b", "own2", "y"):
            await release(world, await soon(acquired(world, session_id, name=name)))
        await held_by_hand(world, "own3")
        caller = await with_rights(world, Rule("/locks/own", (Verb.LOCK,)))

        assert [each.lock for each in await diagnosed(world, caller)] == ["own"]
        assert (await diagnosis(world, caller, limit=1)).next is None
        for name in ("own-not", "own2", "own3", "a"):
            with pytest.raises(NoAuthError):
                await why(world, name, caller)
            with pytest.raises(NoAuthError):
                await diagnosis(world, caller, lock=name)
        seen = await why(world, "own", caller)

    assert seen.holder is not None
    assert seen.holder.session_id == ""
    assert session_id not in " ".join(seen.sentences)
    assert "heartbeats renew its lease of" in " ".join(seen.sentences)


async def test_a_chain_ends_where_the_caller_sees_nothing() -> None:
    """The holder of one lock waits for another, which is nobody's business."""
    async with cluster(config=WITHOUT_LEASES) as world:
        one, other = await opened(world), await opened(world)
        await soon(acquired(world, one, name="own", wish=AcquireRequest(owner="t1")))
        await soon(acquired(world, other, name="secret", wish=AcquireRequest(owner="t2")))
        waits = [
            acquiring(world, one, name="secret", wish=AcquireRequest(owner="t1")),
            acquiring(world, other, name="own", wish=AcquireRequest(owner="t3")),
        ]
        await settle()
        whole = await why(world, "own")
        caller = await with_rights(world, Rule("/locks/own", (Verb.READ,)))
        part = await why(world, "own", caller)
        for each in waits:
            each.cancel()
        await asyncio.wait(waits)

    assert [each.lock for each in whole.chain] == ["secret"]
    assert any("itself waits for secret" in each for each in whole.sentences)
    assert part.chain == ()
    assert "secret" not in " ".join(part.sentences)


async def test_of_a_long_queue_the_first_are_shown() -> None:
    """Twenty of each; the counts count all, and ten are said one by one."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        grant = await soon(acquired(world, session_id))
        waits = [acquiring(world, session_id) for _ in range(30)]
        await settle()
        seen = await why(world, "daily")
        for each in waits:
            each.cancel()
        await asyncio.wait(waits)
        await release(world, grant)

    assert (seen.holder_count, len(seen.holders)) == (1, 1)
    assert (seen.queue_length, len(seen.queue)) == (30, 20)
    assert "… and 20 more" in seen.sentences
    assert sum(each[:1].isdigit() and ". " in each[:4] for each in seen.sentences) == 10


async def test_how_a_hold_by_hand_ends_is_a_line_for_a_shell() -> None:
    """Whatever its name is; only for who may know of the hold."""
    async with cluster(config=WITHOUT_LEASES) as world:
        await held_by_hand(world, "-a%20b", alarm_after_ms=1_000)
        await world.advance(5_000)
        (found,) = await diagnosed(world)
        caller = await with_rights(world, Rule("/locks/-a%20b", (Verb.LOCK,)))
        (less,) = await diagnosed(world, caller)

    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("held-by-hand", "problem")
    assert finding.advice.split("\n") == [
        "Held for 5.0 s; planned were 1.0 s.",
        "Release it: coordinator unlock -- '-a b' 7",
        "Or plan again: coordinator extend --by SECONDS -- '-a b' 7",
    ]
    assert "crane" not in less.findings[0].why
    assert less.findings[0].advice == "`coordinator unlock` ends it."


async def test_without_a_leader_the_diagnosis_is_of_what_is_known() -> None:
    """Then it is needed most: it says that there is no leader, and how old the rest is."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id))
        await settle()
        member = world.leader
        world.elect(None)
        read = await soon(member.explanations.diagnosis(LINEARIZABLE, world.deadline()))
        stale = await soon(member.explanations.diagnosis(STALE, world.deadline()))

    assert read.value.cluster.level == "bad"
    assert "No leader is known" in read.value.cluster.text
    assert [each.lock for each in read.value.locks] == ["daily"]
    assert read.age_ms is not None
    assert stale.value.locks == read.value.locks
