"""The onlooker: records what a live cluster does, as its own watches, reads and status say.

1. Contenders come and go by events of the cluster, with their zxids; who holds follows from their
   order, as everywhere in the product.
2. How long a lease still lasts is what the leader says when it is asked (``safe_ms``).
3. Members are asked one by one, so a member that is cut off says what *it* believes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.client import AsyncClient, Change, HttpTransport, Request
from coordinator.errors import AuthFailedError, CoordinatorError, NoAuthError, from_problem
from coordinator.learn.film import Recorder, Value
from coordinator.model.events import EventType

SAMPLE_S = 0.2
MEMBERS_S = 0.4
_MEMBER_MS = 300
_AGAIN_S = 0.2
AskMember = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Returns what the member at a URL says of itself (its status)."""


@dataclass(slots=True)
class SeenContender:
    """One place in the queue of the watched lock, as its events say."""

    path: str
    token: int
    session_id: str


@dataclass
class Onlooker:
    """Records one lock and the members around it."""

    client: AsyncClient
    recorder: Recorder
    lock: str
    urls: Mapping[str, str]
    names: dict[str, str] = field(default_factory=dict)
    """Who has which session."""
    ask: AskMember | None = None
    """How a member is asked; None: by HTTP, without a token."""

    def __post_init__(self) -> None:
        self._queue: list[SeenContender] = []
        self._members: dict[str, dict[str, Value]] = {}
        self._transport = HttpTransport()
        self._tasks: list[asyncio.Task[None]] = []
        self._sampled: dict[tuple[str, ...], Value] = {}
        self.zxid = 0

    async def start(self, from_zxid: int) -> None:
        """Watch what comes after ``from_zxid``, and have looked once."""
        await self._look_at_members()
        self.zxid = from_zxid
        self._tasks = [
            asyncio.create_task(self._watch(from_zxid)),
            asyncio.create_task(self._sample()),
            asyncio.create_task(self.look_at_members()),
        ]

    async def stop(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    @property
    def leader_id(self) -> str:
        """Who led with the highest term when the members were last asked; "" if nobody did."""
        leaders = [
            (int(str(each.get("term", 0))), member_id)
            for member_id, each in self._members.items()
            if each.get("role") == "leader"
        ]
        return max(leaders, default=(0, ""))[1]

    # --- the queue, by its events

    async def _watch(self, from_zxid: int) -> None:
        while True:
            try:
                stream = self.client.watch(
                    f"/locks/{self.lock}", kind="subtree", from_zxid=from_zxid
                )
                async with stream as changes:
                    async for change in changes:
                        from_zxid = change.zxid
                        await self._record(change)
            except CoordinatorError as error:
                self.recorder.step("film", f"The watch was lost, and goes on: {error.message}")
                await asyncio.sleep(_AGAIN_S)

    async def _record(self, change: Change) -> None:
        at_ms = self.recorder.at_ms
        for event in change.events:
            if event.path == f"/locks/{self.lock}":
                continue
            before = self._holder()
            who = self.names.get(event.ephemeral_owner or "", "another client")
            if event.type is EventType.CREATED:
                entered = SeenContender(event.path, event.czxid, event.ephemeral_owner or "")
                self._queue.append(entered)
                text = f"{who} is queued for {self.lock} with token {event.czxid}"
                self._show(change.zxid, at_ms, who, text, before)
            elif event.type is EventType.DELETED:
                self._queue = [each for each in self._queue if each.path != event.path]
                how = await self._how_it_ended(event.czxid)
                self._show(change.zxid, at_ms, who, f"{who}'s contender is gone: {how}", before)

    async def _how_it_ended(self, token: int) -> str:
        try:
            found = [each async for each in self.client.grants(self.lock, fencing_token=token)]
        except CoordinatorError as error:
            return f"why is not known now ({error.code})"
        if not found or not found[-1].how:
            return "it left the queue"
        grant = found[-1]
        if grant.how == "expired":
            return f"its session expired after {grant.silent_ms} ms of silence"
        return f"its grant {grant.how}"

    def _holder(self) -> SeenContender | None:
        return self._queue[0] if self._queue else None

    def _show(
        self, zxid: int, at_ms: int, who: str, text: str, before: SeenContender | None
    ) -> None:
        self.zxid = max(self.zxid, zxid)
        holder = self._holder()
        if holder is None:
            text += "; the lock is free"
        elif holder != before:
            now = self.names.get(holder.session_id, "another client")
            text += f"; {now} holds, token {holder.token}"
        changes: dict[tuple[str, ...], Value] = {
            ("lock", "holder"): None if holder is None
            else self.names.get(holder.session_id, "another client"),
            ("lock", "token"): None if holder is None else holder.token,
            ("lock", "queue"): [self.names.get(each.session_id, "another client")
                                for each in self._queue[1:]],
            ("next_token",): self.zxid + 1,
            ("zxid",): self.zxid,
        }  # fmt: skip
        if holder != before:
            changes["lock", "left_ms"] = None
        self.recorder.step(who, text + ".", changes, zxid=zxid, at_ms=at_ms)

    # --- samples

    async def _sample(self) -> None:
        while True:
            try:
                async with asyncio.timeout(1.0):
                    view = await self.client.lock(self.lock)
            except (CoordinatorError, TimeoutError):
                await asyncio.sleep(SAMPLE_S)
                continue
            self.zxid = max(self.zxid, view.zxid)
            found: dict[tuple[str, ...], Value] = {
                ("lock", "left_ms"): None if view.holder is None else view.holder.safe_ms,
                ("next_token",): self.zxid + 1,
                ("zxid",): self.zxid,
            }
            new = {path: value for path, value in found.items()
                   if self._sampled.get(path, ...) != value}  # fmt: skip
            if new:
                self._sampled |= new
                self.recorder.sample(new)
            await asyncio.sleep(SAMPLE_S)

    async def look_at_members(self) -> None:
        """Ask every member again and again, until it is cancelled."""
        while True:
            await self._look_at_members()
            await asyncio.sleep(MEMBERS_S)

    async def _look_at_members(self) -> None:
        found = await asyncio.gather(*(self._member(url) for url in self.urls.values()))
        for member_id, now in zip(self.urls, found, strict=True):
            before = self._members.get(member_id)
            if now == before:
                continue
            self._members[member_id] = now
            changes: dict[tuple[str, ...], Value] = {("members", member_id): dict(now)}
            if before is None:
                self.recorder.sample(changes)
            elif now.get("role") == "leader" and before.get("role") != "leader":
                text = f"Member {member_id} leads in term {now['term']}."
                self.recorder.step("cluster", text, changes)
            elif not now["is_up"]:
                self.recorder.step("cluster", f"Member {member_id} does not answer.", changes)
            elif not now["is_ready"] and before.get("is_ready"):
                text = f"Member {member_id} says: {now['summary']}"
                self.recorder.step("cluster", text, changes)
            elif now["is_ready"] and not before.get("is_ready"):
                self.recorder.step("cluster", f"Member {member_id} is ready again.", changes)
            else:
                self.recorder.sample(changes)

    async def _member(self, url: str) -> dict[str, Value]:
        try:
            body = await (self.ask or self._ask_in_clear)(url)
            return {
                "is_up": True,
                "role": str(body["role"]),
                "term": int(body["term"]),
                "is_ready": bool(body["is_ready"]),
                "summary": str(body["summary"]),
            }
        except (AuthFailedError, NoAuthError):  # it is up; what it is, we may not know
            return {"is_up": True, "is_ready": True, "role": "", "term": 0, "summary": ""}
        except (CoordinatorError, KeyError, ValueError):
            return {"is_up": False, "is_ready": False, "role": "", "term": 0, "summary": ""}

    async def _ask_in_clear(self, url: str) -> Mapping[str, Any]:
        reply = await self._transport.request(url, Request("GET", "/v1/status"), _MEMBER_MS)
        body: dict[str, Any] = json.loads(reply.body)
        if reply.status >= 400:
            raise from_problem(body)
        return body
