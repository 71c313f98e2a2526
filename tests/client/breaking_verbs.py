"""A verb whose connection breaks again and again, and the judgement of what the client says of it.

Each byte of its request and of the answer, and each of two members (one that still serves
afterwards, one that is gone): a verb that returns was done once, a verb that raises a definite
error was not done and is not done later. An unknown outcome may be either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from coordinator import connect
from coordinator.client import AsyncClient, Connector, RetryPolicy
from coordinator.errors import CoordinatorError, OutcomeUnknownError
from tests.client.breaking_door import BreakingDoor, Side, breaking_door

QUICK = RetryPolicy(base_ms=1, cap_ms=1, tries=2, jitter=0.0)
SESSION_S = 60.0
TAKEN_BACK_S = 10
"""Until then, what was withdrawn in the background is gone, now that the member is there again."""


TransportName = Literal["http", "stream"]


def connected(
    door: BreakingDoor, transport: TransportName, label: str = "", timeout_s: float = 30
) -> Connector:
    return connect(
        door.url,
        retry=QUICK,
        session_timeout=SESSION_S,
        timeout=timeout_s,
        label=label,
        transport=transport,
    )


Given = Any
"""What a verb was prepared with: a grant, an object that holds, a session."""


@dataclass(frozen=True)
class Verb:
    """``count`` says how often it has taken effect; ``key`` is fresh for each case."""

    act: Callable[[AsyncClient, str, Given], Awaitable[object]]
    count: Callable[[AsyncClient, str], Awaitable[int]]
    prepare: Callable[[AsyncClient, str], Awaitable[Given]] | None = None
    returns: object = None
    """What the verb has to return, None for anything."""
    withdraws: bool = False
    """What it left is taken back: before it says anything, which takes 1 s with the member gone,
    or by a task that has ended soon after the member is there again."""
    in_its_own: bool = False
    """The client is fresh for each case, and labelled ``key``."""
    timeout_s: float = 30
    """The time-out of its client; short for what waits so long for a member that is gone."""


class Cases:
    """One verb, broken again and again; what is definite is looked at once more in the end."""

    def __init__(
        self,
        verb: Verb,
        client: AsyncClient,
        truth: AsyncClient,
        door: BreakingDoor,
        transport: TransportName,
    ) -> None:
        self._transport = transport
        self._verb, self._client, self._truth, self._door = verb, client, truth, door
        self.withdraws = verb.withdraws
        self._number = 0
        self._definite: dict[str, str] = {}
        self.told: dict[str, int] = {"done": 0, "not done": 0, "unknown": 0}

    async def broken(self, side: Side, byte_count: int, *, goes: bool) -> bool:
        """Run the verb; whether its connection was broken, and not done before it could be."""
        verb, door = self._verb, self._door
        self._number += 1
        key = f"case-{self._number}"
        await door.open()
        door.disarm()
        if not verb.in_its_own:
            return await self._broken(self._client, key, side, byte_count, goes=goes)
        async with connected(door, self._transport, key, verb.timeout_s) as client:
            was_broken = await self._broken(client, key, side, byte_count, goes=goes)
            door.disarm()
            await door.open()
            return was_broken

    async def _broken(
        self, client: AsyncClient, key: str, side: Side, byte_count: int, *, goes: bool
    ) -> bool:
        verb, door = self._verb, self._door
        given = await verb.prepare(client, key) if verb.prepare is not None else None
        await client.get("/")  # so a kept connection is there
        door.break_after(side, byte_count, goes=goes)
        case = f"{side} broken after {byte_count} bytes, the member {'gone' if goes else 'there'}"
        try:
            returned = await verb.act(client, key, given)
        except OutcomeUnknownError:
            self.told["unknown"] += 1
        except CoordinatorError as error:
            self._definite[key] = f"{case}: {error!r}"
            self.told["not done"] += 1
        else:
            self.told["done"] += 1
            assert verb.returns in (None, returned), f"{case}: returned {returned!r}"
            assert await verb.count(self._truth, key) == 1, f"{case}: it returned"
        return not door.is_armed

    async def look_again(self) -> None:
        """What was said to be not done has not been done meanwhile."""
        self._door.disarm()
        await self._door.open()
        await self._client.get("/")
        for key, case in self._definite.items():
            for _ in range(TAKEN_BACK_S * 10 if self.withdraws else 1):
                if (count := await self._verb.count(self._truth, key)) == 0:
                    break
                await asyncio.sleep(0.1)
            assert count == 0, case


async def every_break(cases: Cases, *, step: int) -> None:
    """Break after each ``step``-th byte of request and answer, the member there and gone."""
    for goes in (True, False):
        for side in ("request", "answer"):
            byte_count = 0
            while await cases.broken(side, byte_count, goes=goes):
                byte_count += 7 * step if goes and cases.withdraws else step
    await cases.look_again()


async def examine(verb: Verb, *, step: int, transport: TransportName) -> None:
    """Break the connection of ``verb`` after each ``step``-th byte; what it says must be so."""
    async with (
        breaking_door() as (door, around),
        connected(door, transport, timeout_s=verb.timeout_s) as client,
        connect(transport=around) as truth,
    ):
        cases = Cases(verb, client, truth, door, transport)
        await client.session()

        await every_break(cases, step=step)

        assert cases.told["done"]
        assert cases.told["unknown"] or cases.told["not done"], "nothing was broken"
