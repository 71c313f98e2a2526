"""The clients that send requests to a member, reported to the leader: turns hold in the cluster.

Only while a client asks, and ten times a second at most; no request waits for it."""

from __future__ import annotations

import asyncio

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.service.base.context import MemberContext
from coordinator.service.base.timers import Every
from coordinator.service.base.turns import ASKING_SHOWN_MAX

REQUEST_KIND = "asking"
LOOK_EVERY_MS = 100
_ANSWER_S = 1.0
_COUNT_MAX = 255
_PAYLOAD_BYTES_MAX = 256 * 1024
"""The size of a member's report; longer ones are ignored."""
_ASKING = msgspec.msgpack.Decoder(list[tuple[str, bool]])


class ActiveClients:
    """The reports of one member to the leader."""

    def __init__(self, context: MemberContext) -> None:
        self._engine = context.engine
        self._leadership = context.leadership
        self._tasks = context.tasks
        self._turns = context.turns
        self._timers = context.timers
        self._looks: Every | None = None
        self._reporting: asyncio.Task[None] | None = None
        context.engine.on_request(REQUEST_KIND, self._on_request)

    def start(self) -> None:
        """Begin to look, from the first client that asks on."""
        self._looks = self._timers.every(LOOK_EVERY_MS, self._look)
        self._turns.on_asked = self._looks.go_on

    def _look(self, _now_ms: int) -> None:
        """Report to the leader which clients ask here; look no more if none does."""
        asking = self._turns.asking()
        if not asking and self._looks is not None:
            self._looks.pause()
        if self._reporting is not None and not self._reporting.done():
            return
        leader_id = self._leadership.known_leader()
        if asking and leader_id not in (None, self._engine.member_id):
            self._reporting = self._tasks.spawn(self._report(leader_id, asking), "say who asks")

    async def _report(self, leader_id: str, asking: list[tuple[str, bool]]) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                payload = msgspec.msgpack.encode(asking)
                reply = await self._engine.request(leader_id, REQUEST_KIND, payload)
        except (TimeoutError, CoordinatorError):
            return  # the next look reports it again
        if len(reply) == 2:
            self._turns.note_cluster(reply[0], is_one_modest=bool(reply[1]))

    async def _on_request(self, _sender: str, payload: bytes) -> bytes:
        try:
            asking = _ASKING.decode(payload) if len(payload) <= _PAYLOAD_BYTES_MAX else []
        except msgspec.DecodeError:
            asking = []
        count, is_one_modest = self._turns.note_elsewhere(asking[:ASKING_SHOWN_MAX])
        return bytes((min(count, _COUNT_MAX), is_one_modest))
