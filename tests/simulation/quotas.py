"""Quotas that come and go while things go wrong: programs fill what they may have, and more.

Some programs create, write, delete, wait for locks and open sessions under tokens, at any member,
also at one that lags, and write into each other's znodes. An operator gives them quotas, lowers and
takes them away. Nobody else notices: the clients of the world have no credential, and no quota.
Drawn from a stream of its own, in worlds of their own (``NAMES``).

Judged at each application of each member, against quotas followed from the log: what a program has
more of than before is within its quota; a refused command changed no count; the counts are what
a recount finds, also after a snapshot was installed. What a member says of somebody's quota is what
was true at the zxid that it names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coordinator.errors import QuotaExceededError
from coordinator.model.access import QUOTA_LIMITS, Caller
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Delete,
    Enter,
    Kind,
    Multi,
    OpenSession,
    Operation,
    PutIdentity,
    RequestId,
    SetData,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from tests.simulation.access_operator import ATTEMPT_MS, AccessOperator
from tests.simulation.log import QUEUES_OF_RIGHTS
from tests.simulation.members import SimulatedMember
from tests.state.test_quota_laws import kept, recounted

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("quotas",)
PROGRAMS = ("ada", "bob", "cyd")
GAP_S = (0.2, 1.2)
RECOUNT_EVERY = 16
"""Applications of one life of a member from one recount to the next."""
MOST = {"sessions": 3, "znodes": 12, "bytes": 4_000, "waiters": 3}
PATHS = tuple(f"/q/{name}{number}" for name in PROGRAMS for number in range(3))

Uses = dict[str, dict[str, int]]
"""How much each identity has, by what it is of."""


class Quotas(AccessOperator):
    """The programs, the operator and the judge of one world."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "quotas", "quotas hold")
        self._put: list[tuple[int, str, dict[str, int | None]]] = []
        """Each change of a quota that was done, under which zxid, in order."""
        self._last: dict[str, Uses] = {}
        """What each life of a member counted after the last command it applied."""
        self._applied: dict[str, int] = {}
        self._zxid = 0
        self._uses_at: dict[int, Uses] = {}
        """What was counted after the last command that had made each zxid."""

    async def run(self) -> None:
        """Go on until cancelled."""
        await self.turn_on()
        for name in PROGRAMS:
            while not await self._change(PutIdentity(name, ("all",))):
                pass
            while name not in self._tokens:
                await self._give(name)
        tasks = [asyncio.create_task(self._operate())]
        tasks += [asyncio.create_task(self._work(name)) for name in PROGRAMS for _ in range(2)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for each in tasks:
                each.cancel()

    async def _operate(self) -> None:
        draw = self._random
        while True:
            changes: list[tuple[str, int | None]] = []
            for what in draw.sample(sorted(QUOTA_LIMITS), 2):
                value = draw.randrange(MOST[what] + 1)
                changes.append((what, value if draw.random() < 0.8 else None))
            if await self._change(
                PutIdentity(draw.choice(PROGRAMS), roles=None, subjects=None, quota=tuple(changes))
            ):
                self._deed("changed")
            await asyncio.sleep(draw.uniform(*GAP_S))

    # --- the programs

    async def _work(self, name: str) -> None:
        draw = self._random
        while True:
            await asyncio.sleep(draw.uniform(0.02, 0.2))
            member = self._any()
            if member is not None:
                await self._at(member, self._asked(member, name))

    async def _asked(self, member: SimulatedMember, name: str) -> bool:
        deadline_ms = member.clock.monotonic_ms() + ATTEMPT_MS
        bearer = f"Bearer {self._tokens[name]}"
        caller = await member.service.access.caller(bearer, (), deadline_ms)
        if self._random.random() < 0.1:
            await self._look(member, caller, deadline_ms)
            return True
        try:
            await member.service.proposer.submit(
                self._drawn(),
                RequestContext(
                    RequestId(f"{name}-{self._random.randrange(1 << 60)}", 1),
                    deadline_ms,
                    caller=caller,
                ),
            )
        except QuotaExceededError:
            return False
        return True

    def _drawn(self) -> Operation:
        draw = self._random
        if draw.random() < 0.3:
            session_id = f"q{draw.randrange(1 << 60):x}"
            opening = OpenSession(session_id, draw.choice((800, 1_500)))
            if draw.random() < 0.3:
                return opening
            queues = tuple(sorted(draw.sample(QUEUES_OF_RIGHTS, draw.choice((1, 1, 2)))))
            return Enter(
                queues,
                prefix="lock-",
                kind=Kind.EXCLUSIVE,
                session_id=session_id,
                data=b"",
                opening=opening,
            )
        if draw.random() < 0.3:
            return Multi(tuple([self._of_a_znode() for _ in range(3)]))
        return self._of_a_znode()

    def _of_a_znode(self) -> Create | SetData | Delete:
        draw = self._random
        path, data = draw.choice(PATHS), bytes(draw.choice((0, 10, 600, 1_500)))
        kind = draw.randrange(10)
        if kind < 5:
            return Create(path, data, parents=CreateMode.PERSISTENT)
        return SetData(path, data) if kind < 8 else Delete(path)

    async def _look(self, member: SimulatedMember, caller: Caller, deadline_ms: int) -> None:
        """Compare what a member says of a quota with what was so at the zxid that it names."""
        access = member.service.access
        reply = await access.quota(caller, caller.identity, LINEARIZABLE, deadline_ms)
        self._deed("looked")
        for what in QUOTA_LIMITS:
            said = getattr(reply.value, what).used
            was = self._uses_at.get(reply.zxid, {}).get(what, {}).get(caller.identity, 0)
            if said != was:
                self._violate(f"{member.who} says {said} {what} of {caller} at {reply.zxid}: {was}")

    # --- the judgement

    def note_applied(
        self, who: str, machine: StateMachine, command: Command, outcome: Outcome
    ) -> None:
        """A life of a member has applied a command."""
        if not machine.access.is_on:
            return
        self._follow(machine, command.operation, outcome)
        now, was = kept(machine), self._last.get(who)
        self._last[who] = now
        if machine.zxid >= self._zxid:
            self._zxid, self._uses_at[machine.zxid] = machine.zxid, now
        count = self._applied[who] = self._applied.get(who, 0) + 1
        if was is None or count % RECOUNT_EVERY == 0:
            self._recount(who, machine, now)
        if was is None or outcome.is_repeat:
            return
        if outcome.refusal is not None:
            self._check_refused(who, outcome, now == was)
            return
        for name in PROGRAMS:
            for what, counts in now.items():
                used, allowed = counts.get(name, 0), self._allowed(name, what, machine.zxid)
                grown = used - was[what].get(name, 0)
                if grown > 0 and allowed is not None and used > allowed:
                    self._violate(
                        f"{who}: {name} has {used} {what} of {allowed} at zxid {machine.zxid}"
                    )

    def note_restored(self, who: str, machine: StateMachine) -> None:
        """A life of a member has installed a snapshot."""
        if machine.access.is_on:
            self._last[who] = kept(machine)
            self._recount(who, machine, self._last[who])
            self._deed("restored")

    def _check_refused(self, who: str, outcome: Outcome, is_same: bool) -> None:
        assert outcome.refusal is not None
        if not is_same:
            self._violate(f"{who}: what was refused changed a count: {outcome.refusal.message}")
        fields = outcome.refusal.fields
        if fields.get("identity") not in PROGRAMS:
            return
        what = str(fields["limit"]).removeprefix("quota.")
        allowed = self._allowed(str(fields["identity"]), what, outcome.zxid)
        if fields["maximum"] != allowed:
            self._violate(f"{who}: expected a quota of {allowed} in {outcome.refusal.message}")
        self._deed(f"refused {what}")

    def _follow(self, machine: StateMachine, operation: Operation, outcome: Outcome) -> None:
        last = self._put[-1][0] if self._put else 0
        is_done = outcome.refusal is None and not outcome.is_repeat
        if isinstance(operation, PutIdentity) and is_done and outcome.zxid > last:
            self._put.append((outcome.zxid, operation.name, dict(operation.quota)))

    def _allowed(self, name: str, what: str, zxid: int) -> int | None:
        """Return the quota of a program after the command of ``zxid``; None: none of its own."""
        for at, whose, changes in reversed(self._put):
            if at <= zxid and whose == name and what in changes:
                return changes[what]
        return None

    def _recount(self, who: str, machine: StateMachine, now: Uses) -> None:
        found = {what: dict(counts) for what, counts in recounted(machine).items()}
        if now != found:
            self._violate(f"{who} counts {now} at zxid {machine.zxid}, and there are {found}")
