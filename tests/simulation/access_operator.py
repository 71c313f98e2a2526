"""An operator of a simulated world, who turns access rights on and makes programs and tokens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from coordinator.errors import CoordinatorError
from coordinator.model.access import NOBODY, Caller, Rule, Verb
from coordinator.model.tokens import digest_of, token_of
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    AddToken,
    InitAccess,
    Operation,
    PutIdentity,
    PutRole,
    RequestId,
)
from tests.simulation.members import SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPT_MS = 3_000
EVERYTHING = (Rule("/", tuple(Verb)), Rule("@", tuple(Verb)))
OPERATOR = token_of("operator01", b"o" * 32)


class AccessOperator:
    """The operator of one world, and what he and his programs ask of members.

    ``name`` is what his draws and deeds are called by, ``promise`` what is judged."""

    def __init__(self, world: World, name: str, promise: str) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/{name}")
        self._name = name
        self._promise = promise
        self._tokens: dict[str, str] = {}
        """The token that each program has now, as it was given it."""
        self._count = 0

    async def turn_on(self) -> None:
        """Turn access rights on, at whatever member takes it."""
        for _ in range(100):
            if await self._begun():
                break
            await asyncio.sleep(0.3)

    async def _begun(self) -> bool:
        """Prepare what everybody needs, and turn access rights on."""
        steps: list[Operation] = [
            PutRole("all", EVERYTHING),
            PutIdentity("anonymous", ("all",)),
            InitAccess("operator", token_id="operator01", digest=digest_of(OPERATOR)),
        ]
        for each in steps:
            member = self._any()
            if member is None or not await self._at(member, self._submitted(member, each, NOBODY)):
                return False
        self._deed("turned on")
        return True

    async def _give(self, name: str) -> None:
        self._count += 1
        token = token_of(f"token{self._count:05}", self._random.randbytes(32))
        if await self._change(AddToken(name, token_id=token[3:13], digest=digest_of(token))):
            self._tokens[name] = token

    async def _change(self, operation: Operation) -> bool:
        member = self._any()
        if member is None:
            await asyncio.sleep(0.1)
            return False
        return await self._at(member, self._as_operator(member, operation))

    async def _as_operator(self, member: SimulatedMember, operation: Operation) -> bool:
        deadline_ms = member.clock.monotonic_ms() + ATTEMPT_MS
        caller = await member.service.access.caller(f"Bearer {OPERATOR}", (), deadline_ms)
        return await self._submitted(member, operation, caller)

    async def _submitted(
        self, member: SimulatedMember, operation: Operation, caller: Caller
    ) -> bool:
        await member.service.proposer.submit(
            operation,
            RequestContext(
                RequestId(f"{self._name}-{self._random.randrange(1 << 60)}", 1),
                member.clock.monotonic_ms() + ATTEMPT_MS,
                caller=caller,
            ),
        )
        return True

    def _any(self) -> SimulatedMember | None:
        started = [each for each in self._world.members if each.is_started]
        return self._random.choice(started) if started else None

    async def _at(self, member: SimulatedMember, asking: Coroutine[Any, Any, bool]) -> bool:
        """Ask within one life of a member; what it refuses, or leaves unknown, is False."""
        task = member.owner.spawn(_quietly(asking), self._name)
        await asyncio.wait({task}, timeout=2 * ATTEMPT_MS / 1000)
        return task.done() and not task.cancelled() and task.result()

    def _deed(self, name: str) -> None:
        self._world.record.tally.deeds[f"{self._name}: {name}"] += 1

    def _violate(self, what: str) -> None:
        self._world.record.violate(self._promise, what)


async def _quietly(asking: Coroutine[Any, Any, bool]) -> bool:
    try:
        return await asking
    except CoordinatorError:
        return False
