"""What a simulated client does with locks: each kind of them, alone and one inside another.

What it may believe of its grants at each moment is open to the world. What it was told, and what it
wrote under a grant, is judged from the log.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from coordinator.client.locks import Acquired, AcquireRequest, LockQueue
from coordinator.errors import CoordinatorError, LockTimeoutError, UnavailableError
from coordinator.model.acquire import IfHeld
from tests.simulation.told import Looked, Written

if TYPE_CHECKING:
    from tests.simulation.clients import SimulatedClient

Room = Literal["locks", "elections"]
Key = tuple[str, str]

LOCKS = ("a", "b")
SHAREABLE = "c"
SEMAPHORE = "s"
SEVERAL = (("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c"))
OVER_LATE_S = 10.0
"""How long after its end, and after the last fault, a bounded hold may still stand: there may be
an election first, and the new leader counts anew."""
_TURN_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """One request for a lock, and for how long to wait for it."""

    room: Room
    names: tuple[str, ...]
    request: AcquireRequest
    wait_ms: int

    @property
    def is_election(self) -> bool:
        return self.room == "elections"

    @property
    def keys(self) -> list[Key]:
        return [(self.room, name) for name in self.names]

    @property
    def shown(self) -> str:
        return f"{self.room}/{'+'.join(self.names)}"


@dataclass(slots=True)
class Held:
    """What a client was awarded; ``kind`` is what it may still take it for."""

    acquired: Acquired
    kind: str


class Contending:
    """The contender, or the two of them, that one client is."""

    def __init__(self, client: SimulatedClient) -> None:
        self._client = client
        self.holding: dict[Key, Held] = {}
        self._gave_up: set[Key] = set()
        self._doubtful: set[Key] = set()
        """Queues in which an attempt of this client may stand, for all that it was told."""
        self._from_before: set[str] = set()

    def doubt(self) -> None:
        """That a contender of before is gone may be lost, where the cluster began again."""
        self._from_before = set(self._client.world.record.ephemerals)

    async def once(self) -> None:
        """Acquire something, use it, give it back; maybe another inside."""
        plan = self._plan()
        acquired = await self._take(plan)
        if acquired is not None:
            await self._use(plan, acquired, is_outer=True)

    # --- what to ask for

    def _plan(self, taken: tuple[str, ...] = ()) -> Plan:
        """Draw a request; for one inside another, for something that is not held yet."""
        draw, client = self._client.random, self._client
        sort = draw.choices(
            ("exclusive", "election", "shareable", "slot", "several"), (40, 13, 22, 15, 10)
        )[0]
        room: Room = "elections" if sort == "election" else "locks"
        names: tuple[str, ...] = (draw.choice(LOCKS),)
        request = AcquireRequest(label=client.name)
        match sort:
            case "election":
                request = AcquireRequest(label=client.name, value=b"")
            case "shareable":
                names = (SHAREABLE,)
                kind = "shared" if draw.random() < 0.6 else "exclusive"
                request = self._terms(draw, kind)
            case "slot":
                names, request = (SEMAPHORE,), self._terms(draw, "slot", draw.choice((1, 1, 2)))
            case "several":
                names, request = draw.choice(SEVERAL), self._terms(draw, "exclusive")
            case _:
                request = self._terms(draw, "exclusive")
        wait_ms = draw.choice((0, 500, 2_000, 5_000))
        if set(names) & set(taken) and room == "locks":
            names = tuple(each for each in (*LOCKS, SHAREABLE) if each not in taken)[:1] or ("d",)
            request = self._terms(draw, "exclusive")
        return Plan(room, names, request, wait_ms)

    def _terms(self, draw: random.Random, kind: str, size: int | None = None) -> AcquireRequest:
        return AcquireRequest(
            label=self._client.name,
            kind=kind,
            size=size,
            owner=self._client.name if draw.random() < 0.7 else "",
            lock_delay_ms=draw.choice((400, 1_500, 3_000)) if draw.random() < 0.35 else 0,
            max_hold_ms=draw.choice((500, 1_200, 3_000)) if draw.random() < 0.2 else 0,
        )

    async def _take(self, plan: Plan) -> Acquired | None:
        client = self._client
        queue = client.client.lock_queue(*plan.names, is_election=plan.is_election)
        for key in plan.keys:
            self._check_nothing_left(key)
            self._gave_up.discard(key)
        try:
            acquired = await queue.acquire(plan.request, plan.wait_ms)
        except CoordinatorError as error:
            client.note_failure("contend", plan.shown, None, error)
            is_gone = isinstance(error, LockTimeoutError | UnavailableError)
            for key in plan.keys:
                (self._gave_up if is_gone else self._doubtful).add(key)
                self._check_nothing_left(key)
            return None
        client.sessions.setdefault(acquired.session.session_id, acquired.session)
        kind = acquired.grant.kind
        client.world.beliefs.note_grant(client, acquired, plan.keys, kind)
        for key in plan.keys:
            self.holding[key] = Held(acquired, kind)
        return acquired

    # --- while it is held

    async def _use(self, plan: Plan, acquired: Acquired, *, is_outer: bool) -> None:
        client, draw = self._client, self._client.random
        queue = client.client.lock_queue(*plan.names, is_election=plan.is_election)
        if plan.room == "elections":
            await self._proclaim(plan.names[0], acquired.grant.grant_id)
        elif draw.random() < 0.2:
            await self._note(queue, plan, acquired)
        if draw.random() < 0.25:
            await self._write_under(plan, acquired)
        is_alone = plan.room == "locks" and len(plan.names) == 1
        if is_alone and acquired.grant.kind == "exclusive" and draw.random() < 0.25:
            await self._downgrade(queue, plan, acquired)
        if is_outer and plan.request.owner and draw.random() < 0.35:
            await self._take_inside(plan)
        is_slot = acquired.grant.kind == "slot"
        await asyncio.sleep(draw.choice((0.3, 1.0, 2.0) if is_slot else (0.0, 0.05, 0.3, 1.5)))
        if acquired.is_bounded:
            await self._extend(queue, plan, acquired)
        if acquired.is_bounded and draw.random() < 0.5:
            await self._until_over(plan, acquired)
        if draw.random() < 0.15:
            await self._write_under(plan, acquired)
        await self._give_back(queue, plan, acquired)
        if draw.random() < 0.15:
            await self._write_under(plan, acquired)  # too late: it must be refused

    async def _take_inside(self, plan: Plan) -> None:
        """Acquire another lock in the same name: two who do so crosswise wait for each other."""
        draw = self._client.random
        inner = self._plan(plan.names)
        if inner.room == "locks":
            request = self._terms(draw, inner.request.kind, inner.request.size)
            inner = replace(inner, request=structs.replace(request, owner=plan.request.owner))
        acquired = await self._take(inner)
        if acquired is not None:
            self._client.world.record.tally.deeds["take inside"] += 1
            await self._use(inner, acquired, is_outer=False)

    async def _until_over(self, plan: Plan, acquired: Acquired) -> None:
        """Keep a bounded hold until the cluster has ended it, which must come in time."""
        client, world = self._client, self._client.world
        path, over_s = acquired.paths[0], world.loop.time()
        while path in world.record.ephemerals:
            await asyncio.sleep(_TURN_S)
            now_s = world.loop.time()
            if world.healed_s is None or client.believes_in(acquired):
                over_s = now_s
            elif now_s > over_s + OVER_LATE_S:
                world.record.violate("bounded holds", f"{path} has no end since {over_s:.4f}")
                return
        client.note("outlived", plan.shown, acquired.grant.grant_id)

    async def _give_back(self, queue: LockQueue, plan: Plan, acquired: Acquired) -> None:
        for key in plan.keys:
            self.holding.pop(key, None)
        acquired.stop_watching()
        client, grant_id = self._client, acquired.grant.grant_id
        if client.is_stopping and client.random.random() < 0.3:
            self._doubtful.update(plan.keys)
            client.note("leave", plan.shown, f"{grant_id} to the end of the session")
            return
        try:
            was_held = await queue.release(acquired.grant)
            client.note("release", plan.shown, f"{grant_id} {was_held}")
            client.world.record.tally.deeds["release too late"] += not was_held
        except CoordinatorError as error:
            self._doubtful.update(plan.keys)
            client.note_failure("release", plan.shown, None, error)

    async def _downgrade(self, queue: LockQueue, plan: Plan, acquired: Acquired) -> None:
        """Go on as a reader; from the moment it asks, others may read as well."""
        for key in plan.keys:
            self.holding[key].kind = "shared"
        try:
            await queue.downgrade(acquired.grant)
            self._client.note("downgrade", plan.shown, "done")
        except CoordinatorError as error:
            self._client.note_failure("downgrade", plan.shown, None, error)

    async def _extend(self, queue: LockQueue, plan: Plan, acquired: Acquired) -> None:
        """Move the end of a bounded hold, perhaps in its last moments; maybe twice."""
        draw = random.Random(acquired.grant.fencing_token)  # spares the draws of all else
        for _ in range(draw.choice((0, 0, 1, 2))):
            await asyncio.sleep(draw.choice((0.0, 0.2, acquired.remaining_safe_ms() / 1000)))
            ms = draw.choice((300, 900, 2_000))
            by_ms, to_ms = (ms, 0) if draw.random() < 0.5 else (0, ms)
            try:
                await queue.extend(acquired.grant, by_ms=by_ms, to_ms=to_ms)
                self._client.note("extend", plan.shown, f"by {by_ms}, to {to_ms}")
            except CoordinatorError as error:
                self._client.note_failure("extend", plan.shown, None, error)
                return

    async def _note(self, queue: LockQueue, plan: Plan, acquired: Acquired) -> None:
        note = self._client.value()
        try:
            await queue.note(acquired.grant, note)
            self._client.note("note", plan.shown, f"{note!r}")
        except CoordinatorError as error:
            self._client.note_failure("note", plan.shown, None, error)

    async def _write_under(self, plan: Plan, acquired: Acquired) -> None:
        """Write on the condition that the grant still holds, or did: the log decides."""
        client, draw = self._client, self._client.random
        grant = draw.choice(acquired.grant.grants or (acquired.grant,))
        held = IfHeld(
            grant.lock, fencing_token=grant.fencing_token, is_election=plan.room == "elections"
        )
        path, value = f"/h{draw.randrange(2)}", client.value()
        client.world.conditions[value] = (grant.path.rpartition("/")[0], grant.fencing_token)
        is_new = draw.random() < 0.2
        verb = client.client.create if is_new else client.client.set
        try:
            done = await verb(path, value, if_held=held)  # type: ignore[operator]
        except CoordinatorError as error:
            client.note_failure("write under", path, value, error)
        else:
            zxid = done.stat.czxid if is_new else done.stat.mzxid
            client.world.written.append(Written(client.name, path, value, zxid))
            client.note("write under", path, f"token {grant.fencing_token}")

    async def _proclaim(self, name: str, grant_id: str) -> None:
        client, value = self._client, self._client.value()
        try:
            await client.client.proclaim(name, grant_id, value)
            client.note("proclaim", name, "done")
        except CoordinatorError as error:
            client.note_failure("proclaim", name, value, error)

    # --- what others do

    async def look(self) -> None:
        """Look at a lock; what is shown must have been so."""
        client = self._client
        name = client.random.choice((*LOCKS, SHAREABLE, SEMAPHORE))
        looked = Looked.of(client.name, await client.client.lock(name))
        client.world.looked.append(looked)
        client.note("look", name, f"{looked.holders} at {looked.zxid}")

    async def revoke(self) -> None:
        """Put somebody out of a queue against their will."""
        client = self._client
        name = client.random.choice((*LOCKS, SHAREABLE, SEMAPHORE))
        view = await client.client.lock(name)
        standing = [*view.holders, *view.holders, *view.queue]  # rather one who holds
        if standing:
            grant_id = client.random.choice(standing).grant_id
            await client.client.revoke(name, by=client.name, reason="by chance", grant_id=grant_id)
            client.note("revoke", name, grant_id)

    async def resize(self) -> None:
        """Let more or fewer hold a semaphore."""
        size = self._client.random.choice((1, 1, 2, 3))
        await self._client.client.resize(SEMAPHORE, size)
        self._client.note("resize", SEMAPHORE, f"to {size}")

    def _check_nothing_left(self, key: Key) -> None:
        """Who was told that nothing of an attempt is left must not stand in the queue with it."""
        if key not in self._gave_up or key in self._doubtful:
            return
        client = self._client
        client.note_session()
        record, queue = client.world.record, "/{}/{}/".format(*key)
        record.tally.deeds["look for what is left"] += 1
        for path, owner in record.ephemerals.items():
            is_old = path in self._from_before
            if path.startswith(queue) and owner in client.sessions and not is_old:
                record.violate(
                    "nothing is left behind", f"{client.name} gave up, and {path} stands"
                )
