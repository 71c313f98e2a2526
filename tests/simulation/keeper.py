"""A program that keeps several sessions by heartbeats of all of them in one request.

It is no client of the library: it counts each lease by itself, from when it sent the request whose
answer names the session, and what no answer names it asks for again. In worlds of their own
(``KEEPERS_EVERY``), with draws of their own.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

from coordinator.client.calling.answers import encoding_of
from coordinator.client.calling.transport import Request
from coordinator.errors import CoordinatorError
from coordinator.model.sessions import margin_ms
from coordinator.wire.encoding import decode
from tests.simulation.link import ClientLink
from tests.simulation.loop import OwnClock, Owner

if TYPE_CHECKING:
    from tests.simulation.world import World

SESSIONS_MAX = 8
ATTEMPT_MS = 700
PAUSE_S = (0.1, 0.5)
JSON = "application/json"


class Keeper:
    """One life, until the last fault is healed; then its sessions run out."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = draw = random.Random(f"{world.seed}/keeper")
        self._owner = Owner("keeper")
        self._clock = OwnClock(world.loop, draw.uniform(0.99, 1.01), draw.randrange(1_000_000))
        self._link = ClientLink(world, self._owner, draw.randrange(1 << 60))
        self._safe_until_ms: dict[str, int] = {}
        self._timeouts_ms: dict[str, int] = {}
        world.record.on_expired.append(self._on_expired)

    def begin(self) -> None:
        self._owner.spawn(self._run())

    async def _run(self) -> None:
        draw = self._random
        while self._world.healed_s is None:
            if len(self._timeouts_ms) < SESSIONS_MAX and draw.random() < 0.4:
                await self._open(draw.choice((1_000, 1_500, 2_500, 4_000)))
            if self._timeouts_ms:
                await self._renew(list(self._timeouts_ms))
            await asyncio.sleep(draw.uniform(*PAUSE_S))

    async def _open(self, timeout_ms: int) -> None:
        """Without a number: one that is lost runs out, and nobody counts on it."""
        sent_ms = self._clock.monotonic_ms()
        opened = await self._answer("/v1/sessions", {"timeout_ms": timeout_ms})
        if opened is not None:
            self._timeouts_ms[opened["session_id"]] = timeout_ms
            self._note(opened["session_id"], sent_ms)

    async def _renew(self, session_ids: list[str]) -> None:
        self._random.shuffle(session_ids)
        sent_ms = self._clock.monotonic_ms()
        said = await self._answer("/v1/sessions/heartbeats", {"session_ids": session_ids})
        if said is None:
            return
        for lease in said["sessions"]:
            self._note(lease["session_id"], sent_ms)
        for session_id in said["ended"]:
            self._timeouts_ms.pop(session_id, None)
            self._safe_until_ms.pop(session_id, None)
        deeds = self._world.record.tally.deeds
        deeds["heartbeats of many"] += 1
        deeds["ended while kept"] += len(said["ended"])

    def _note(self, session_id: str, sent_ms: int) -> None:
        """Count from the sending; what had run out by the answer is given up for good."""
        timeout_ms = self._timeouts_ms.get(session_id)
        if timeout_ms is not None:
            until_ms = sent_ms + timeout_ms - margin_ms(timeout_ms)
            self._safe_until_ms[session_id] = max(
                until_ms, self._safe_until_ms.get(session_id, until_ms)
            )

    def _on_expired(self, session_id: str) -> None:
        left_ms = self._safe_until_ms.get(session_id, 0) - self._clock.monotonic_ms()
        if left_ms > 0:
            self._world.record.violate(
                "no session ends early",
                f"the keeper counts {left_ms} ms left of session {session_id}, which the server "
                "expired",
            )

    async def _answer(self, target: str, body: dict[str, Any]) -> Any:
        """Return what any member says; None if it refuses, or says nothing in time."""
        member = self._random.choice(self._world.members)
        headers = {"content-type": JSON, "accept": JSON}
        request = Request("POST", target=target, headers=headers, body=json.dumps(body).encode())
        try:
            response = await self._link.request(member.url, request, ATTEMPT_MS)
        except CoordinatorError:
            return None
        if response.status >= 300:
            return None
        return decode(response.body, encoding_of(response.headers))
