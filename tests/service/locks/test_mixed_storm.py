"""All kinds of locks in a storm: lost messages, changes of leader, members that lag, forced ends.

A judge applies the log to a machine of its own and looks after every entry. What must hold:

1. at every zxid the holders of a queue are one exclusive, or only shared ones, or slots; a group
   holds in all of its queues or in none; nobody holds behind somebody who waits;
2. a grant that is answered held at the zxid that the answer names;
3. a bound is not exceeded by more than a change of leader allows, and never cut short;
4. when all attempts have ended, and those that ended unknown were abandoned, nothing is left.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import CoordinatorError, OutcomeUnknownError
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.model.limits import NEW_CLUSTER
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import decode_command
from coordinator.state.commands import EndHold, Kind, RequestId
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import HoldEnded
from tests.amount import least
from tests.met import Met
from tests.service.fake_cluster import World, cluster, soon
from tests.service.locks.lock_scenes import looked
from tests.service.locks.storm import CONFIG, SEEDS, Passed, Storm, commands_met
from tests.state.exercised import Exercised

LOCKS = ("a", "b", "c", "s")
WANTED: tuple[tuple[str | tuple[str, ...], Kind], ...] = (
    ("a", Kind.EXCLUSIVE), ("a", Kind.SHARED), ("b", Kind.SHARED), ("b", Kind.EXCLUSIVE),
    (("a", "b"), Kind.EXCLUSIVE), (("b", "c"), Kind.EXCLUSIVE), ("c", Kind.EXCLUSIVE),
    ("s", Kind.SLOT), ("s", Kind.SLOT), ("s", Kind.EXCLUSIVE),
)  # fmt: skip


class Judge:
    """Looks at every entry of the log."""

    def __init__(self, world: World) -> None:
        self.exercised = Exercised()
        self._machine = StateMachine(NEW_CLUSTER)
        self._world = world
        self._commit = world.commit
        self._holders_at: dict[int, frozenset[tuple[str, int]]] = {}
        self._granted_ms: dict[tuple[str, int], int] = {}
        world.commit = self.commit  # type: ignore[method-assign]

    def commit(self, command: bytes, answer: Any = None) -> None:
        self._commit(command, answer)
        decoded = decode_command(command)
        outcome = self.exercised.apply(self._machine, decoded, self._world.term)
        now_ms = self._world.clock.monotonic_ms()
        if isinstance(decoded.operation, EndHold) and isinstance(outcome.result, HoldEnded):
            self._check_bound(decoded.operation, outcome.result, now_ms)
        for path in outcome.granted:
            record = self._machine.locks.record(path)
            assert record is not None
            self._granted_ms[path, record.czxid] = now_ms
        self._check_queues()
        self._holders_at[outcome.zxid] = frozenset(
            (each.path, each.czxid)
            for name in LOCKS
            for each in self._machine.locks.holders(f"/locks/{name}")
        )

    def _check_bound(self, operation: EndHold, result: HoldEnded, now_ms: int) -> None:
        if result.was_held:
            granted_ms = self._granted_ms[operation.path, operation.czxid]
            (grant,) = [
                each
                for each in self._machine.locks.ended()
                if (each.path, each.czxid) == (operation.path, operation.czxid)
            ]
            assert now_ms - granted_ms >= int(grant.owner.partition("/")[0]), "a hold was cut short"

    def _check_queues(self) -> None:
        locks = self._machine.locks
        for name in LOCKS:
            directory = f"/locks/{name}"
            every = locks.contenders(directory)
            holders = [each for each in every if each.is_holder]
            assert every[: len(holders)] == tuple(holders), "somebody overtook a waiter"
            kinds = {each.kind for each in holders}
            assert len(kinds) <= 1, "kinds that exclude each other hold together"
            if Kind.EXCLUSIVE in kinds:
                assert len(holders) == 1, "two exclusive holders"
            for each in every:
                for other in each.group:
                    record = locks.record(other)
                    assert record is not None
                    assert record.is_holder is each.is_holder, "a group holds in part"

    def is_wanted(self, name: str) -> bool:
        return bool(self._machine.locks.contenders(f"/locks/{name}"))

    def check_grant(self, grant: GrantReply) -> None:
        latest = max(zxid for zxid in self._holders_at if zxid <= grant.zxid)
        for each in grant.grants or (grant,):
            held = self._holders_at[latest]
            assert (each.path, each.fencing_token) in held, "a grant was answered that did not hold"


class MixedStorm:
    """The clients of one run."""

    def __init__(self, world: World, judge: Judge, seed: int) -> None:
        self.world, self.judge = world, judge
        self.storm = Storm(world, seed)
        self.chosen = self.storm.chosen
        self.requests: list[tuple[Any, ...]] = []
        self.ended_unknown: dict[RequestId, str] = {}
        """With one of the names that each was an attempt at."""
        self.grant_count = 0

    @property
    def asked(self) -> RequestContext:
        return RequestContext(request=None, deadline_ms=self.world.deadline(5_000))

    def step(self) -> None:
        chosen, storm = self.chosen, self.storm
        action = chosen.choices(
            ["acquire", "retry", "release", "cancel", "elect", "lag", "change", "resize", "close",
             "open"],
            weights=[40, 8, 30, 8, 3, 6, 12, 3, 1, 6],
        )[0]  # fmt: skip
        if action == "acquire":
            name, kind = chosen.choice(WANTED)
            request = RequestId(f"c{len(self.requests)}", 1)
            session_id = chosen.choice(storm.session_ids)
            self.requests.append((session_id, name, self.wish(kind), request))
            storm.run(self.acquire(*self.requests[-1]))
        elif action == "retry" and self.requests:
            storm.run(self.acquire(*chosen.choice(self.requests[-10:])))
        elif action in ("release", "change") and storm.held:
            grant = storm.held.pop(chosen.randrange(len(storm.held)))
            storm.run(self.release(grant) if action == "release" else self.change(grant))
        elif action == "resize":
            resize = storm.member.holding.resize("s", chosen.choice([1, 2, 3]), self.asked)
            storm.run(self.quietly(resize))
        elif action == "cancel" and storm.tasks:
            storm.cancel()
        elif action == "elect":
            storm.elect()
        elif action == "lag":
            storm.lag()
        elif action == "close" and len(storm.session_ids) > 2:
            session_id = storm.session_ids.pop()
            close = storm.member.close_session(session_id, None, self.world.deadline(5_000))
            storm.run(self.quietly(close))
        elif action == "open":
            storm.run(self.hold_in_silence())

    def wish(self, kind: Kind, lock_delays: tuple[int, ...] = (0, 0, 1_000)) -> AcquireRequest:
        max_hold_ms = self.chosen.choice([0, 0, 500, 2_000])
        return AcquireRequest(
            kind=kind,
            owner=f"{max_hold_ms}/{len(self.requests)}",  # the judge finds the bound here
            size=2 if kind is Kind.SLOT else None,
            lock_delay_ms=self.chosen.choice(lock_delays),
            max_hold_ms=max_hold_ms,
        )

    async def hold_in_silence(self) -> None:
        """Acquire in a session whose client never sends a heartbeat: what it holds is lost."""
        try:
            opened = await self.storm.member.open_session(
                1_000, "", None, self.world.deadline(5_000)
            )
        except CoordinatorError:
            return
        self.storm.session_ids.insert(0, opened.session_id)
        free = [
            (name, kind)
            for name, kind in WANTED
            if isinstance(name, str) and not self.judge.is_wanted(name)
        ]
        name, kind = self.chosen.choice(free or WANTED)  # rather one that it gets at once
        request = RequestId(f"c{len(self.requests)}", 1)
        self.requests.append((opened.session_id, name, self.wish(kind, (0, 1_000)), request))
        await self.acquire(*self.requests[-1])

    async def acquire(
        self, session_id: str, name: Any, wish: AcquireRequest, request: RequestId
    ) -> None:
        wait_ms = self.chosen.choice([0, 200, 2_000, 20_000])
        try:
            grant = await self.storm.member.locks.acquire(
                name,
                session_id=session_id,
                request=request,
                wait_deadline_ms=self.world.deadline(wait_ms),
                wanted=wish,
                is_try=wait_ms == 0,
            )
        except OutcomeUnknownError:
            self.ended_unknown[request] = name if isinstance(name, str) else name[0]
        except CoordinatorError:
            pass  # certainly nothing is left: checked at the end
        except asyncio.CancelledError:
            self.ended_unknown[request] = name if isinstance(name, str) else name[0]
            raise
        else:
            self.judge.check_grant(grant)
            self.grant_count += 1
            self.storm.held.append(grant)

    async def release(self, grant: GrantReply) -> None:
        await self.storm.release(grant, self.storm.member)

    async def change(self, grant: GrantReply) -> None:
        """Downgrade it, note something, or force it out; it may still hold afterwards."""
        self.storm.held.append(grant)
        holding, lock = self.storm.member.holding, grant.lock
        match self.chosen.choice(["downgrade", "note", "revoke"]):
            case "downgrade":
                await self.quietly(holding.downgrade(lock, grant.grant_id, self.asked))
            case "note":
                await self.quietly(holding.note(lock, grant.grant_id, b"x", self.asked))
            case _:
                await self.quietly(holding.revoke(lock, grant.grant_id, "me", "x", self.asked))

    async def quietly(self, work: Any) -> None:
        try:
            await work
        except CoordinatorError:
            pass

    async def calm_down(self) -> None:
        world = self.world
        await self.storm.calm_down()
        for request, name in self.ended_unknown.items():
            locks = world.leader.locks
            await soon(locks.abandon(name, request.client_id, request.number, 0, world.deadline()))
        await self.storm.release_all()


async def storm_of(seed: int) -> Met:
    """Let one storm of 300 steps pass; return what it met."""
    async with cluster(config=CONFIG) as world:
        judge = Judge(world)
        storm = MixedStorm(world, judge, seed)
        await storm.storm.pass_over(storm.step)

        await storm.calm_down()

        storm.storm.check()
        assert storm.grant_count > 5
        for name in LOCKS:
            view = await looked(world, name, at=world.leader)
            assert (view.holders, view.queue) == ((), ())
    met = commands_met(judge.exercised)
    met["answered"], met["ended unknown"] = storm.grant_count, len(storm.ended_unknown)
    return met


PASSED = Passed(storm_of)


@pytest.mark.histories
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_storm_of_all_kinds_keeps_them_apart_and_leaves_nothing(seed: int) -> None:
    """Twenty seeds of 300 steps; the name of a failed run is its seed."""
    await PASSED.one(seed)


@pytest.mark.histories
async def test_the_storms_held_what_they_are_about() -> None:
    """All of them together: every way in which a lock changes hands, of every kind."""
    met = await PASSED.all()

    met.check(**least(
        answered=300, ended_unknown=200, Enter_repeat=200, Abandon_holder=30, Release_holder=250,
        handed_over=200, several_handed_over=50, several_hold_shared=200, several_hold_slot=400,
        ExpireSession_holder=10, ExpireSession_hands_over=4, closed_by_a_lock_delay=100,
        Reopen_reopened=2, EndHold_holder=15, EndHold_hands_over=8, Revoke_holder=30,
        Downgrade_downgraded=8, Note_noted=20, Resize_resized=40, CloseSession_holder=5,
    ))  # fmt: skip
