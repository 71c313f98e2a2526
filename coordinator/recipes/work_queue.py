"""A queue of work: each item is delivered until one worker acknowledges it.

::

    mails = WorkQueue(client, "mails")
    mails.put(b"to ann")
    with mails.take(timeout=60) as delivery:       # None when nothing came in time
        send(delivery.body, token=delivery.fencing_token)

1. Nothing is lost: an item is there until it is acknowledged, in one command with its claim. It is
   delivered twice only if a worker did not end: it died, or lost its session, or
   returned it. So work must allow for being done again, or pass ``fencing_token`` to a guard.
2. A claim is an ephemeral znode below the item, and the delivery's fencing token: the claim of a
   worker that dies goes with its session. An item with a child is not free.
3. A delay is a znode with a time to live below the item: the leader takes it away, by its own
   clock; never too early, after a change of leader late by the whole delay.
4. Items are delivered in the order of their priority (0 first), then as they were put. Items that
   were put with a delay go first among those of their priority once they are due. With several
   workers the order of the ends is anybody's.
5. Of waiting workers one looks for items, in the order in which they came; when it has one, the
   next looks. If it freezes, the others wait until its session has ended.
6. After ``attempts_max`` deliveries an item becomes a dead letter, with the last reason.
7. ``length_max`` is looked at before each put: as many more may be put as are under way at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Generic

from coordinator.client import ClientT, Conditions, Create, Delete, Operation, both, within
from coordinator.errors import BadArgumentsError, NoNodeError, QuotaExceededError
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.maybe_there import listed, names_below, read
from coordinator.recipes.base.names import checked_count, name_of, path_of
from coordinator.recipes.sharing.delivery import CLAIM, Delivery, WorkItem, delay_ms_of, delayed
from coordinator.recipes.sharing.taking import Taking
from coordinator.recipes.waits import Timeout, wait_ms_of

ROOT = "/queues"
PRIORITY = 5
TOGETHER_MAX = 300
_NAME_CHARACTERS_MAX = 150
_PAGE = 200


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What is in a queue: the past when it is read."""

    ready: int
    in_flight: int
    delayed: int
    dead: int
    oldest_ready_ms: int
    """How long ago the oldest ready item was put, by this client's clock; 0 without one."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An item that is not delivered any more, and why."""

    name: str
    body: bytes
    attempts: int
    reason: str


class WorkQueue(Generic[ClientT]):
    """The queue ``name``.

    Args:
        attempts_max: how often an item is delivered, 1 or more.
        length_max: how many items ``put`` lets in, delivered ones included.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        attempts_max: int = 5,
        length_max: int = 10_000,
    ) -> None:
        self.client = client
        self.name = name_of(name)
        self.attempts_max = checked_count("attempts_max", attempts_max)
        self.length_max = checked_count("length_max", length_max)
        self._path = path_of(ROOT, name, characters_max=_NAME_CHARACTERS_MAX)
        self._items = f"{self._path}/items"

    def operations(
        self, body: bytes, *, priority: int = PRIORITY, delay: float = 0.0
    ) -> tuple[Operation, ...]:
        """Return what puts an item, for a ``client.multi`` with other writes: all or none.

        ``length_max`` is not looked at.

        Raises:
            BadArgumentsError: an argument is out of its range.
        """
        if isinstance(priority, bool) or priority not in range(10):
            raise BadArgumentsError(f"priority: expected 0 (first) to 9, found {priority!r}")
        wait_ms, data = delay_ms_of(delay), WorkItem(body).to_bytes()
        if wait_ms == 0:
            path = f"{self._items}/{priority}-"
            return (Create(path, data, "persistent_sequential", parents="persistent"),)
        drawn = self.client.core.delivery.entropy.getrandbits(64)
        path = f"{self._items}/{priority}--{drawn:016x}"
        return (Create(path, data, parents="persistent"), *delayed(path, wait_ms))

    async def _put(
        self,
        *bodies: bytes,
        priority: int = PRIORITY,
        delay: float = 0.0,
        timeout: Timeout = 0,
        if_held: Conditions = None,
    ) -> tuple[str, ...]:
        """Put items, up to 300, all or none; return their names.

        Waits ``timeout`` seconds for room, and for all else the client's timeout.

        Raises:
            QuotaExceededError: the queue was full for all of ``timeout``; nothing was put.
            LockLostError: a grant of ``if_held`` does not hold; nothing was put.
            UnavailableError, OutcomeUnknownError: nothing was put; they may have been.
            BadArgumentsError, DataTooLargeError: an argument is out of its range.
        """
        if not 1 <= len(bodies) <= TOGETHER_MAX:
            raise BadArgumentsError(
                f"bodies: expected 1 to {TOGETHER_MAX} items, found {len(bodies)}"
            )
        core, wait_ms = self.client.core, wait_ms_of(timeout)
        limit_ms = None if wait_ms is None else wait_ms + core.settings.timeout_ms
        made = [
            each
            for body in bodies
            for each in self.operations(body, priority=priority, delay=delay)
        ]

        async def look() -> bool | None:
            stat = await core.exists(self._items)
            length = 0 if stat is None else stat.num_children
            return True if length + len(bodies) <= self.length_max else None

        with within(core.clock, limit_ms):
            if not await until(core, self._items, "children", look, wait_ms):
                raise QuotaExceededError(
                    f"{self._path}: expected room for {len(bodies)} more of {self.length_max} "
                    f"items, found none in time; nothing was put",
                    path=self._path,
                )
            reply = await core.multi(made, if_held=if_held)
        parts = [each.path.removeprefix(f"{self._items}/") for each in reply.results]
        return tuple(each for each in parts if "/" not in each)

    put = both(_put, has_own_time=True)

    async def _undo_take(self, delivery: Delivery[Any] | None) -> None:
        if delivery is not None:
            delivery._keep_giving_back()

    async def _take(self, timeout: Timeout = 0) -> Delivery[ClientT] | None:
        """Return the next item, None when there was none in time; 0 looks once.

        Raises:
            SessionExpiredError, UnhealthyError: this client has no session to hold it with.
            UnavailableError, OutcomeUnknownError: no member answered; nothing is held for long.
        """
        return await Taking(self.client, self._items, self.attempts_max).take(wait_ms_of(timeout))

    take = both(_take, undo=_undo_take)

    @both
    async def stats(self) -> QueueStats:
        """Count what is there.

        Raises:
            UnavailableError: no member answered in time.
        """
        core = self.client.core
        items, dead = await listed(core, self._items), await listed(core, f"{self._path}/dead")
        free = [stat for _, stat in items if stat.num_children == 0]
        claims = [f"{self._items}/{name}/{CLAIM}" for name, stat in items if stat.num_children]
        held = 0
        for begin in range(0, len(claims), _PAGE):
            some = claims[begin : begin + _PAGE]
            held += sum(map(bool, await asyncio.gather(*(core.exists(each) for each in some))))
        oldest_ms = min((stat.ctime_ms for stat in free), default=None)
        age_ms = 0 if oldest_ms is None else max(0, core.clock.wall_ms() - oldest_ms)
        return QueueStats(len(free), held, len(claims) - held, len(dead), age_ms)

    @both
    async def dead(self) -> tuple[DeadLetter, ...]:
        """Return the dead letters.

        Raises:
            UnavailableError: no member answered in time.
        """
        found, core = [], self.client.core
        for name in await names_below(core, f"{self._path}/dead"):
            if (znode := await read(core, f"{self._path}/dead/{name}")) is None:
                continue
            item = WorkItem.of(znode.data)
            found.append(DeadLetter(name, item.body, item.attempts, item.reason))
        return tuple(found)

    @both
    async def revive(self, name: str) -> bool:
        """Deliver a dead letter again, from its first attempt; False: there is none of this name.

        Raises:
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        core, path = self.client.core, f"{self._path}/dead/{name}"
        try:
            znode = await core.get(path)
            item = WorkItem(WorkItem.of(znode.data).body)
            again = Create(f"{self._items}/{name}", item.to_bytes(), parents="persistent")
            await core.multi([Delete(path, expected_czxid=znode.stat.czxid), again])
        except NoNodeError:
            return False
        return True
